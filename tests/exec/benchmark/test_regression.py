"""Comparing reports: what tolerance and noise let pass, and which rows belong together."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from exec.benchmark.regression import compare
from exec.benchmark.report import Measurement, Report, Row, Spread


def measured(p50_s, quartiles_s=0.0, samples=20, mean_s=None):
    half_s = quartiles_s / 2
    spread = Spread(0.0, p50_s - half_s, p50_s + half_s, 1.0, 0.0, samples)
    return Measurement(mean_s or p50_s, p50_s, p50_s, 0, 1.0, 1.0, 0, spread)


def report(*found, **changes):
    """One row of 1 KiB for each measurement, out of place."""
    row = Row("all_reduce", 1024, 256, "float32", "sum", -1, "ring", None, None, None, {})
    rows = tuple(replace(row, out_of_place=one, **changes) for one in found)
    return Report(4, ("h",), "mpi", "MPI", 1, 20, rows)


@pytest.mark.parametrize(
    ("old_s", "new_s", "quartiles_s", "slower", "faster"),
    [
        (1.0, 1.05, 0.0, False, False),
        (1.0, 1.2, 0.0, True, False),
        (1.2, 1.0, 0.0, False, True),
        # Repetitions that differ by half of their median say nothing about a fifth.
        (1.0, 1.2, 0.5, False, False),
        (1.0, 1.2, 0.05, True, False),
    ],
)
def test_slower_is_beyond_the_tolerance_and_beyond_the_noise(old_s, new_s, quartiles_s, slower, faster):
    (change,) = compare(report(measured(old_s, quartiles_s)), report(measured(new_s, quartiles_s)))
    assert (change.slower, change.faster) == (slower, faster)
    assert change.ratio == pytest.approx(new_s / old_s)


def test_a_change_says_that_ranks_waited_for_cores():
    old, new = report(measured(1.0)), report(measured(2.0), crowded="4 ranks share 2 cores")
    assert [change.crowded for one in (old, new) for change in compare(old, one)] == [False, True]


def test_more_repetitions_make_the_same_change_believed():
    few, many = (
        compare(report(measured(1.0, 0.5, samples)), report(measured(1.2, 0.5, samples)))[0]
        for samples in (20, 2000)
    )
    assert many.noise_s < few.noise_s
    assert (few.slower, many.slower) == (False, True)
    assert few.least_s == pytest.approx(3 * few.noise_s)
    assert few.least_s > few.new_s - few.old_s > many.least_s


def test_without_spread_averages_are_compared():
    plain = replace(measured(1.0, mean_s=2.0), spread=None)
    (change,) = compare(report(plain), report(measured(1.0, 0.1, mean_s=3.0)))
    assert (change.old_s, change.new_s, change.noise_s) == (2.0, 3.0, 0.0)


def test_only_rows_of_one_size_type_operator_and_placement_belong_together():
    one = report(measured(1.0))
    for changes in ({"size_bytes": 2048}, {"dtype": "float64"}, {"redop": "max"}, {"collective": "reduce"}):
        assert compare(one, report(measured(1.0), **changes)) == []
    in_place = replace(one, rows=(replace(one.rows[0], out_of_place=None, in_place=measured(1.0)),))
    assert compare(one, in_place) == []
    assert len(compare(one, report(measured(1.0), program="tree"))) == 1


def test_programs_are_told_apart_where_both_reports_have_several():
    ring, tree = report(measured(1.0)), report(measured(5.0), program="tree")
    both = replace(ring, rows=ring.rows + tree.rows)
    assert {change.label.rsplit(", ")[-1]: change.new_s for change in compare(both, both)} == {
        "ring": 1.0,
        "tree": 5.0,
    }


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5), st.floats(0.5, 2.0))
def test_a_row_that_was_gone_through_again_counts_once_and_between_its_extremes(times_s, old_s):
    (change,) = compare(report(measured(old_s)), report(*(measured(time_s) for time_s in times_s)))
    assert min(times_s) <= change.new_s <= max(times_s)
    assert not (change.slower and change.faster)
