"""Sentences of explain about a slow row."""

import pytest

from ccctl.render.text.explained import Explained, _nics_in_words
from exec.benchmark import Measurement, Report, Row, judged
from synth.networks import pod


def _sentence(name, time_s):
    measured = Measurement(time_s, time_s, time_s, 0, 1.0, 1.0, 0)
    row = Row("all_reduce", 1 << 30, 1 << 28, "float", "sum", -1, "", None, measured, None, {})
    report = Report(8, ("h",), "nccl-tests", "NCCL", 1, 20, (row,))
    rows = tuple(judged(report, pod(name)))
    return Explained("log", name, 8, report, rows, (0,), None, {}, ())._sentence(0)


def test_a_normal_row_stands_beside_what_others_measured_on_such_a_machine():
    slow, fast = (_sentence("dgx-h100", time_s) for time_s in (5.872e-3, 3.9e-3))
    assert "others measured 370 with rings, 480 with NVLink SHARP; this is 13.5 % below rings" in slow
    assert "NVLink SHARP seems not to be used" in slow
    assert "others measured" in fast and "below rings" not in fast


def test_where_switches_sum_there_is_one_bound():
    sentence = _sentence("dgx-h100+nvls", 3.9e-3)
    assert "ranks and switches can reach here at most" in sentence
    assert "With sums in switches" not in sentence


@pytest.mark.parametrize(
    ("nics", "words"),
    [
        (2.9, "about what 3"),
        (3.0, "about what 3"),
        # Three NICs of 50 GB/s carry 150 and four 200: 174.9 lies between.
        (3.5, "between what 3 and 4"),
        (3.9, "about what 4"),
        (1.5, "between what 1 and 2"),
    ],
)
def test_a_rate_between_those_of_two_numbers_of_nics_names_both(nics, words):
    assert _nics_in_words(nics) == words
