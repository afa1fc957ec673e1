"""The rule: decisions, its competitive ratio as a property, and the deadline after which a worker is dead."""

from __future__ import annotations

import math

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.stragglers.ski_rental import WaitingCollective, competitive_ratio, fault_deadline_s
from probes.base.errors import UsageError

TIMES = st.floats(0.0, 1.0, allow_nan=False)
COSTS = st.floats(1e-3, 1.0, allow_nan=False)
CYCLES = st.floats(1e-3, 0.1, allow_nan=False)


def by_the_rule(arrivals_s, buys_s, whole_s, cycle_s, spared_s=0.0):
    """Return the cost of a coordinator that learns of each arrival and decides cycle by cycle."""
    last_s = arrivals_s[-1]
    waiting, told, cycle = WaitingCollective(0.0, spared_s=spared_s), 0, 0
    while cycle * cycle_s < last_s:
        now_s = cycle * cycle_s
        while arrivals_s[told] <= now_s:
            waiting = waiting.offered(buys_s[told])
            told += 1
        if waiting.goes(now_s):
            return now_s + buys_s[told - 1]
        cycle += 1
    return last_s + whole_s


def in_hindsight(arrivals_s, buys_s, whole_s):
    going = [at + buy for at, buy in zip(arrivals_s[:-1], buys_s, strict=True)]
    return min([arrivals_s[-1] + whole_s, *going])


@settings(max_examples=drawn(300))
@given(last=TIMES, buy=COSTS, cycle=CYCLES)
def test_with_a_constant_cost_at_most_twice_the_best_and_a_cycle(last, buy, cycle):
    paid, best = by_the_rule([0.0, last], [buy], 0.0, cycle), in_hindsight([0.0, last], [buy], 0.0)
    assert competitive_ratio([buy], 0.0, cycle) == pytest.approx(2 + cycle / buy)
    assert paid <= (2 + cycle / buy) * best + 1e-9


@settings(max_examples=drawn(500))
@given(data=st.data(), ranks=st.integers(2, 6), whole=st.floats(0.0, 1.0), cycle=CYCLES)
def test_with_a_cost_that_changes_at_most_the_ratio_of_the_bound(data, ranks, whole, cycle):
    arrivals = [0.0, *sorted(data.draw(st.lists(TIMES, min_size=ranks - 1, max_size=ranks - 1)))]
    buys = data.draw(st.lists(COSTS, min_size=ranks - 1, max_size=ranks - 1))
    ratio = competitive_ratio(buys, whole, cycle)
    assert ratio <= 1 + max(*buys, whole) / min(buys) + cycle / min(buys) + 1e-9
    assert by_the_rule(arrivals, buys, whole, cycle) <= ratio * in_hindsight(arrivals, buys, whole) + 1e-9


@settings(max_examples=drawn(500))
@given(data=st.data(), ranks=st.integers(2, 6), cycle=CYCLES)
def test_with_a_cost_that_never_rises_twice_the_best_and_a_cycle(data, ranks, cycle):
    arrivals = [0.0, *sorted(data.draw(st.lists(TIMES, min_size=ranks - 1, max_size=ranks - 1)))]
    buys = sorted(data.draw(st.lists(COSTS, min_size=ranks - 1, max_size=ranks - 1)), reverse=True)
    whole = data.draw(st.floats(0.0, buys[-1]))
    ratio = competitive_ratio(buys, whole, cycle)
    assert ratio == pytest.approx(2 + cycle / buys[-1])
    assert by_the_rule(arrivals, buys, whole, cycle) <= ratio * in_hindsight(arrivals, buys, whole) + 1e-9


@settings(max_examples=drawn(300))
@given(data=st.data(), ranks=st.integers(2, 6), whole=st.floats(1e-3, 1.0), cycle=CYCLES)
def test_going_by_what_is_extra_has_the_better_bound(data, ranks, whole, cycle):
    arrivals = [0.0, *sorted(data.draw(st.lists(TIMES, min_size=ranks - 1, max_size=ranks - 1)))]
    buys = data.draw(st.lists(COSTS, min_size=ranks - 1, max_size=ranks - 1))
    paid = by_the_rule(arrivals, buys, whole, cycle, spared_s=whole)
    best = in_hindsight(arrivals, buys, whole)
    assert paid <= best + cycle + max(*buys, whole) - min(*buys, whole) + 1e-9
    if buys == sorted(buys, reverse=True) and whole <= buys[-1]:
        assert paid <= 2 * best - whole + cycle + 1e-9


@settings(max_examples=drawn(200))
@given(data=st.data(), ranks=st.integers(2, 6), cycle=CYCLES)
def test_going_by_what_is_extra_where_costs_never_rise(data, ranks, cycle):
    arrivals = [0.0, *sorted(data.draw(st.lists(TIMES, min_size=ranks - 1, max_size=ranks - 1)))]
    buys = sorted(data.draw(st.lists(COSTS, min_size=ranks - 1, max_size=ranks - 1)), reverse=True)
    whole = data.draw(st.floats(0.0, buys[-1]))
    paid = by_the_rule(arrivals, buys, whole, cycle, spared_s=whole)
    assert paid <= 2 * in_hindsight(arrivals, buys, whole) - whole + cycle + 1e-9


def test_the_bounds_are_attained():
    # The last worker is ready just after the rule has gone.
    assert by_the_rule([0.0, 0.101], [0.1], 0.0, 1e-4) / in_hindsight([0.0, 0.101], [0.1], 0.0) > 1.98
    # The cost rises tenfold as soon as the second worker is ready.
    arrivals, buys = [0.0, 1e-5, 0.101], [0.1, 1.0]
    paid, best = by_the_rule(arrivals, buys, 0.0, 1e-4), in_hindsight(arrivals, buys, 0.0)
    assert 10.9 < paid / best <= competitive_ratio(buys, 0.0, 1e-4)
    # A cycle longer than needed is waited for to its end.
    assert by_the_rule([0.0, 1.0], [0.012], 0.0, 5e-3) == pytest.approx(0.027)


def test_decisions():
    waiting = WaitingCollective(first_ready_s=10.0)
    assert not waiting.goes(99.0)
    waiting = waiting.offered(0.04)
    assert not waiting.goes(10.03)
    assert waiting.goes(10.041)
    # An offer binds; a ready set that costs more does not lengthen the wait.
    assert waiting.offered(0.2) == waiting
    assert waiting.offered(0.02).goes(10.03)


def test_going_that_costs_nothing_has_no_ratio():
    assert competitive_ratio([0.0, 1.0]) == math.inf


def test_a_worker_is_dead_five_times_the_duration_after_phase_1():
    assert fault_deadline_s(2.0, 2.5) == pytest.approx(5.0)
    assert fault_deadline_s(2.0, 2.5, factor=2) == pytest.approx(3.5)
    assert fault_deadline_s(2.0, 2.001, least_s=15) == pytest.approx(17.001)


@pytest.mark.parametrize("wrong", [{"factor": -1.0}, {"factor": math.nan}, {"least_s": math.inf}])
def test_a_deadline_needs_numbers(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        fault_deadline_s(0.0, 1.0, **wrong)
    with pytest.raises(UsageError, match="expected a number ≥ 0"):
        fault_deadline_s(1.0, 0.5)
