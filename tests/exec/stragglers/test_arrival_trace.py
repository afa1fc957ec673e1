from __future__ import annotations

import pytest

from ccctl.errors import DataError, UsageError
from exec.stragglers import parse_trace


def read(text, **how):
    return parse_trace(text, "trace.csv", **how)


def test_bare_rows_are_milliseconds_after_the_first():
    found = read("10,12.5,48\n\n# a pause\n3,1,1\n")
    assert found.ready_s.tolist() == [
        pytest.approx([0.0, 0.0025, 0.038]),
        pytest.approx([0.002, 0.0, 0.0]),
    ]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0.5,0.538\n", "s"),
        ("500,538\n", "ms"),
        ("500ms,0.538s\n", "us"),
        ("iteration,rank 0 (s),rank 1 (ms)\n7,0.5,538\n", "us"),
        ("a,b\n500,538\n", "ms"),
        ("1750000000.5,1750000000.538\n", "s"),
        ("-38,0\n", "ms"),
    ],
)
def test_units(text, unit):
    assert read(text, unit=unit).ready_s.max(axis=1) == pytest.approx([0.038], abs=1e-6)


def test_one_column_is_how_late_the_last_rank_was():
    text = "9.988760948181152\n22.435283660888675\n"
    found = read(text, ranks=3)
    assert found.ready_s.tolist() == [pytest.approx([0, 0, 0.00998876]), pytest.approx([0, 0, 0.02243528])]
    with pytest.raises(UsageError, match="has one column, the lateness of the last rank"):
        read(text)


def test_as_many_ranks_as_were_said():
    assert read("0,1\n", ranks=2).ranks == 2
    with pytest.raises(UsageError, match="has 2 ranks"):
        read("0,1\n", ranks=3)


def test_every_problem_with_its_line():
    with pytest.raises(DataError) as caught:
        read("0,1\n0\n0,soon\n0,1e999\n0,5 parsecs\n")
    lines = caught.value.problems
    assert lines[0] == "line 2: expected 2 columns, found 1"
    assert [line.split(":")[0] for line in lines] == ["line 2", "line 3", "line 4", "line 5"]
    assert "moment: expected a time with its unit" in lines[1]


@pytest.mark.parametrize("text", ["", "# nothing\n", "iteration,rank 0,rank 1\n"])
def test_no_iterations(text):
    with pytest.raises(DataError, match="no iterations; expected lines such as"):
        read(text)


def test_a_header_without_ranks():
    with pytest.raises(DataError, match="has no column for a rank"):
        read("iteration\n1\n")
