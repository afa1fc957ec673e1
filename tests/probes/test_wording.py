from __future__ import annotations

import pytest

from probes.base.wording import first_of, meant, nearest, plural, rate_text, some, without_domain


@pytest.mark.parametrize(("count", "said"), [(0, "0 links"), (1, "1 link"), (2, "2 links")])
def test_one_thing_is_singular(count, said):
    assert plural(count, "link") == said


@pytest.mark.parametrize(
    ("bytes_per_s", "said"), [(4.709e6, "0.004709 GB/s"), (3.2e12, "3200 GB/s"), (1.374e13, "13740 GB/s")]
)
def test_a_rate_has_no_power_of_ten(bytes_per_s, said):
    assert rate_text(bytes_per_s) == said


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
    known = ["ring", "all_gather", "jobs"]
    assert meant(word, known) == hint
    assert (nearest(word, known) is None) == (hint == "")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a.rack1.lab.org", "b.rack1.lab.org", "a.rack1.lab.org"], ["a", "b"]),
        (["a.rack1.lab.org", "a.rack2.lab.org"], ["a.rack1", "a.rack2"]),
        (["lab", "a.lab"], ["lab", "a.lab"]),
        (["10.0.0.1", "10.0.1.1"], ["10.0.0.1", "10.0.1.1"]),
        (["a.lab.org"], ["a.lab.org"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_hosts_are_called_without_the_domain_that_all_share(names, short):
    assert list(without_domain(names).values()) == short
