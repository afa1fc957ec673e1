from __future__ import annotations

import pytest

from probes.wording import first_of, meant, plural, some


@pytest.mark.parametrize(("count", "said"), [(0, "0 links"), (1, "1 link"), (2, "2 links")])
def test_one_thing_is_singular(count, said):
    assert plural(count, "link") == said


def test_a_list_names_some_and_counts_the_others():
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c"], 2, "; ") == "a; b and 1 more"


def test_lines_beyond_the_first_are_counted_in_one_of_their_own():
    assert first_of(["a", "b"], 2, "finding") == ["a", "b"]
    assert first_of(["a", "b"], 1, "finding") == ["a", "… and 1 more finding"]
    assert first_of(["a", "b", "c"], 1, "finding") == ["a", "… and 2 more findings"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("rign", "did you mean 'ring'?"),
        ("AllGather", "did you mean 'all_gather'?"),
        ("--bogus", ""),
        ("", ""),
        ("ring" * 1000, ""),
    ],
)
def test_what_is_meant(word, hint):
    assert meant(word, ["ring", "all_gather", "jobs"]) == hint
