import math

import pytest
from hypothesis import given, strategies as st

from probes.base.numbers import decimal, whole

NASTY = ["", " ", "²", "٣", "1_000", "0x10", "nan", "inf", "-inf", "1e999", "9" * 5000, "--1", "1 2", "1\n"]


@pytest.mark.parametrize("text", NASTY)
def test_what_is_no_number_of_ours_is_none(text):
    assert whole(text) is None
    if text != "1_000":
        assert decimal(text) is None


def test_numbers_keep_to_their_bounds():
    assert whole("007") == 7
    assert whole("0" * 5000 + "7") == 7
    assert whole("-3", -5, 5) == -3
    assert whole("6", 0, 5) is None
    assert whole(str(1 << 63)) is None
    assert decimal("1.5e-3") == 0.0015
    assert decimal(".5", 0.0, 1.0) == 0.5
    assert decimal("-1") is None


@given(st.text() | st.from_regex(r"[-+0-9.eE]{0,400}"))
def test_any_text_is_a_number_in_range_or_none(text):
    count, value = whole(text, -10, 1 << 40), decimal(text, -1e300, 1e300)
    assert count is None or -10 <= count <= 1 << 40
    assert value is None or (math.isfinite(value) and -1e300 <= value <= 1e300)
