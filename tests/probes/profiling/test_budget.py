import pytest
from hypothesis import given, strategies as st

from probes.profiling.budget import Cost, RoundPlan, fitted
from probes.sampling.prober import Dose
from probes.sampling.rounds import doubling_strides, meetings, rings, strides, waves

COST = Cost(0.04, 0.1)


def plan(ranks):
    return RoundPlan(tuple(map(tuple, rings(ranks, strides(ranks)))), 5, Dose(0.03, 0.04))


def cut(pairs):
    return waves(pairs, list(range(99)), dict.fromkeys(range(99), 99))


def seconds(found):
    """Cost of the rest of the first pass: a hundredth, and six of each wave, do not measure links."""
    rounds = found.rounds_of(1)
    alpha = sum(len(cut(pairs)) for pairs in meetings(rounds)) * (0.01 + found.dose.pingpong_s)
    return alpha + sum(len(cut(pairs)) for pairs in rounds) * (0.06 + found.dose.trains_s)


@given(st.integers(2, 24), st.floats(0.01, 60))
def test_what_is_planned_fits_or_is_a_single_round(ranks, left_s):
    found = fitted(plan(ranks), cut, COST, left_s)
    assert 0.01 <= found.dose.trains_s <= 0.04
    assert found.tried
    assert seconds(found) <= left_s or len(found.rounds) == 1
    assert found.rounds == plan(ranks).rounds[: len(found.rounds)]
    assert bool(found.left_out) == (found.passes == 1)


@given(st.integers(2, 24), st.floats(0.01, 30), st.floats(1, 3))
def test_more_time_never_measures_less(ranks, left_s, more):
    less, much = (fitted(plan(ranks), cut, COST, time_s) for time_s in (left_s, more * left_s))
    assert len(much.rounds) >= len(less.rounds)
    assert much.passes >= less.passes


def test_plenty_of_time_leaves_nothing_out():
    assert fitted(plan(8), cut, COST, 60).left_out == ()


def test_first_each_look_is_shorter_then_rounds_are_left_out():
    assert fitted(plan(8), cut, COST, 1.5).left_out[0].endswith("of the time at each link")
    told = fitted(plan(8), cut, COST, 0.3).left_out
    assert told[0].endswith("of 7 rounds")
    assert told[1] == "75% of the time at each link"


@pytest.mark.parametrize("ranks", [2, 3, 8, 9, 16])
def test_the_rounds_that_connect_everybody_come_first(ranks):
    assert strides(ranks)[: len(doubling_strides(ranks))] == doubling_strides(ranks)
    assert sorted(strides(ranks)) == list(range(1, ranks))


def test_a_plan_without_links_has_no_rounds_of_nothing():
    whole = plan(4)
    first, *others = whole.rounds
    assert whole.without(set(first)).rounds == tuple(others)
    left = whole.without({others[0][0]})
    assert left.rounds == (first, others[0][1:], *others[1:])
    assert whole.without({pair for pairs in whole.rounds for pair in pairs}).rounds == ()
