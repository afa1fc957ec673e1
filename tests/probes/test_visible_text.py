"""Text of others is shown whole or escaped, on one line, and JSON keeps its values."""

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from probes.base.visible_text import shortened, unsteered, unsteered_json, visible

ANY = st.text(st.characters() | st.sampled_from("\x00\x1b\x7f\x9b\u061c\u202e\u2028\u2066\ud800\n\t"))


@given(ANY)
def test_no_character_that_is_shown_steers(words):
    for shown in (visible(words), unsteered(words).replace("\n", "").replace("\t", "")):
        assert not {unicodedata.category(one) for one in shown} & {"Cc", "Zl", "Zp", "Cs"}
        assert not {unicodedata.bidirectional(one) for one in shown} & {
            *("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"),
        }
        assert not set("\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff") & set(shown)


@given(ANY)
def test_json_keeps_its_values(words):
    written = unsteered_json(json.dumps([words], ensure_ascii=False))
    assert json.loads(written) == [words]
    assert written == unsteered(written)


@pytest.mark.parametrize("words", ["gpu01.site", "Küche → 3", "日本", "é"])
def test_names_as_people_have_them_stay(words):
    assert visible(words) == unsteered(words) == words


def test_long_text_keeps_both_ends():
    shown = shortened("a" + 10_000_000 * "x" + "z")
    assert len(shown) < 1000
    assert shown[0] == "a" and shown[-1] == "z" and "(10000002 characters)" in shown


def test_long_text_of_hostile_characters_stays_short():
    assert len(visible(10_000_000 * "\u202e")) < 10_000
