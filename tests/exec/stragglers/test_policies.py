"""Policies over arrivals: by hand, and the orders and bounds that hold for all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_schedules import random_schedule, ring_all_reduce

from exec.stragglers.arrivals import Arrivals, bimodal, exponential, of_lags
from exec.stragglers.buy_cost import ConstantCosts, SimulatedCosts, VolumeCosts
from exec.stragglers.policies import POLICIES, ready_sets, replay_arrivals
from probes.base.errors import UsageError


def costs_of(replay):
    return {name: one.cost_s.tolist() for name, one in replay.policies.items()}


def test_by_hand_with_a_constant_cost():
    arrivals = Arrivals.of(np.array([[0.0, 0.0], [5.0, 5.03], [0.0, 1.0]]))
    found = replay_arrivals(arrivals, ConstantCosts(0.04))
    assert costs_of(found) == {
        "break_even": [0.0, pytest.approx(0.03), pytest.approx(0.08)],
        "break_even_extra": [0.0, pytest.approx(0.03), pytest.approx(0.08)],
        "break_even_published": [0.0, pytest.approx(0.03), pytest.approx(0.08)],
        "always_wait": [0.0, pytest.approx(0.03), 1.0],
        "always_go": [0.0, 0.04, 0.04],
        "optimum": [0.0, pytest.approx(0.03), 0.04],
    }
    assert found.relayed.tolist() == [[False, False], [False, False], [False, True]]
    assert found.policies["break_even"].went.tolist() == [False, False, True]
    assert found.ratios("always_wait").tolist() == [1.0, 1.0, 25.0]
    assert found.policies["break_even"].completion_s is None


def test_by_hand_with_phases():
    ring = ring_all_reduce(4)
    costs = SimulatedCosts(ring)
    phases = costs.phases(frozenset({0, 1, 2}))
    arrivals = of_lags(np.array([1.0]), 4)
    found = replay_arrivals(arrivals, costs, cycle_s=1e-6)
    # Phase 1 is long over when the last rank is ready.
    assert found.policies["break_even"].completion_s.tolist() == [1.0 + phases.two_s]
    assert found.policies["always_wait"].completion_s.tolist() == [1.0 + costs.whole_s]
    assert found.policies["optimum"].completion_s.tolist() == [1.0 + min(phases.two_s, costs.whole_s)]
    # The rank first waits for as long as the partial collective costs beyond the whole one.
    extra = found.policies["break_even_extra"]
    assert extra.went.tolist() == [True]
    assert 0 <= extra.cost_s[0] <= found.policies["break_even"].cost_s[0]
    # A worker of whom nothing is heard for so long would have been taken for dead.
    assert found.declared_faulty.tolist() == [[False, False, False, True]]
    patient = replay_arrivals(arrivals, costs, cycle_s=1e-6, fault_factor=1e9)
    assert not patient.declared_faulty.any()


@cache
def costs_of_ring(chunk_bytes, volume):
    ring = replace(ring_all_reduce(4), chunk_bytes=chunk_bytes)
    return (VolumeCosts if volume else SimulatedCosts)(ring)


ROWS = st.lists(st.lists(st.floats(0, 0.2), min_size=4, max_size=4), min_size=1, max_size=6)


@settings(max_examples=drawn(80))
@given(
    rows=ROWS,
    chunk_bytes=st.sampled_from([1 << 10, 1 << 20, 1 << 25]),
    cycle=st.floats(1e-4, 0.05),
    volume=st.booleans(),
)
def test_no_policy_beats_the_optimum_nor_the_rule_its_bound(rows, chunk_bytes, cycle, volume):
    found = replay_arrivals(Arrivals.of(np.array(rows)), costs_of_ring(chunk_bytes, volume), cycle_s=cycle)
    best = found.policies["optimum"]
    for name in POLICIES:
        one = found.policies[name]
        assert (one.cost_s >= best.cost_s).all()
        assert (one.completion_s >= best.completion_s).all()
        # Nothing is complete before the last rank is ready.
        assert (one.completion_s >= found.arrivals.last_s).all()
    assert (found.ratios("break_even") <= found.bound * (1 + 1e-9)).all()


def test_the_published_rule_waits_longer_where_the_cost_rises_with_the_ready_ranks():
    """Volumes of an all_reduce rise with the ready ranks; only the published rule then waits for more."""
    costs = costs_of_ring(1 << 25, True)
    first, later = (costs.phases(frozenset(range(ready))).buy_s for ready in (2, 3))
    assert later > first
    between_s = (first + later) / 2
    arrivals = Arrivals.of(np.array([[0.0, 0.0, first / 2, between_s]]))
    found = replay_arrivals(arrivals, costs, cycle_s=first / 1000)
    assert found.policies["break_even"].went.tolist() == [True]
    assert found.policies["break_even_published"].went.tolist() == [False]
    assert found.policies["break_even_published"].cost_s[0] == pytest.approx(between_s + costs.whole_s)


def test_who_goes_first_waits_for_data():
    schedule = random_schedule("broadcast", 3, 1, seed=4)
    root = schedule.collective.root
    row = np.where(np.arange(3) == root, 1.0, [[0.0, 0.5, 2.0]])
    found = replay_arrivals(Arrivals.of(row), SimulatedCosts(schedule))
    assert found.policies["always_go"].cost_s[0] >= found.arrivals.ready_s[0, root]
    assert np.isfinite(found.policies["break_even"].cost_s).all()


def test_ready_sets_are_those_that_need_a_cost():
    arrivals = Arrivals.of(np.array([[0.0, 0.1, 0.2], [0.0, 0.0, 0.3], [1.0, 1.0, 1.0]]))
    assert ready_sets(arrivals) == {frozenset({0}), frozenset({0, 1})}


def test_generators():
    late = bimodal(0.1, 0.25, ranks=6, iterations=4000, stragglers=2, seed=7)
    assert (late.iterations, late.ranks) == (4000, 6)
    assert not late.ready_s[:, :4].any()
    assert set(np.unique(late.ready_s).tolist()) == {0.0, 0.1}
    assert np.mean(late.ready_s[:, 4:] > 0) == pytest.approx(0.25, abs=0.02)
    again = bimodal(0.1, 0.25, ranks=6, iterations=4000, stragglers=2, seed=7)
    assert np.array_equal(late.ready_s, again.ready_s)
    drawn = exponential(0.1, ranks=4, iterations=4000, stragglers=1, seed=7)
    assert drawn.ready_s[:, 3].mean() == pytest.approx(0.1, rel=0.1)
    # One rank is the first even if all straggle.
    everyone = exponential(0.1, ranks=4, iterations=100, stragglers=4, seed=7)
    assert (everyone.ready_s.min(axis=1) == 0).all()


@pytest.mark.parametrize("stragglers", [0, 5])
def test_stragglers_are_ranks(stragglers):
    with pytest.raises(UsageError, match="stragglers: expected 1 to 4"):
        exponential(0.1, ranks=4, iterations=1, stragglers=stragglers, seed=0)


@pytest.mark.parametrize(
    "moments", [np.zeros((0, 2)), np.zeros((1, 1)), np.zeros(3), np.array([[0, np.inf]])]
)
def test_arrivals_are_finite_rows(moments):
    with pytest.raises(UsageError, match="moments_s: expected"):
        Arrivals.of(moments)
