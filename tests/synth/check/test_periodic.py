"""The judge of periods: what it proves, the plain judge proves expanded; what is damaged it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from random_networks import random_networks

from probes.base.columns import bytes_of, floats, ints
from synth import Request, synthesize, verify
from synth.check.schedule import check
from synth.networks.families import family
from synth.schedules import Timing
from synth.simulation.schedule import replay


def _made(network, size_bytes=1 << 20):
    return synthesize(Request(network, "all_reduce", size_bytes=size_bytes, method="periodic")).schedule


def _sorted(made, start_s, **columns):
    """``made`` with other starts, its rows rising by them."""
    order = np.argsort(start_s, kind="stable")
    found = {name: columns.get(name, getattr(made, name))[order] for name in ("chunk", "link", "op")}
    return replace(
        made,
        chunk=ints(found["chunk"]),
        link=ints(found["link"]),
        op=bytes_of(found["op"]),
        start_s=floats(start_s[order]),
    )


@settings(max_examples=10, deadline=None)
@given(periods=st.sampled_from([1, 2, 7]), network=random_networks())
def test_expanded_ones_pass_the_plain_judge_at_their_times_and_as_soon_as_they_can(periods, network):
    made = _made(network)
    assert check(made) == []
    whole = made.expanded(periods)
    assert whole.problems() == []
    assert whole.collective.chunks == periods * made.collective.chunks
    period, row = made.in_order(periods)
    start_s = period * made.period_s + made.start_s[row]
    arrival_s = start_s + network.travel_s(made.chunk_bytes)[whole.link]
    latest_s = (periods - 1) * made.period_s + made.latency_s
    assert check(whole, Timing(floats(start_s), floats(arrival_s), latest_s)) == []
    assert check(whole) == []
    assert replay(whole).time_s <= latest_s * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(network=random_networks(), data=st.data())
def test_what_overlaps_only_with_another_period_is_refused(network, data):
    made = _made(network)
    uses = np.bincount(made.link, minlength=network.links)
    link = data.draw(st.sampled_from(np.flatnonzero(uses == uses.max()).tolist()))
    rows = np.flatnonzero(made.link == link)
    if len(rows) < 2:
        return
    kept = data.draw(st.sampled_from(rows.tolist()))
    moved = data.draw(st.sampled_from([row for row in rows.tolist() if row != kept]))
    # Late enough that nothing of its own period is near, and at the same place of the cycle.
    later = np.ceil((made.latency_s + made.period_s) / made.period_s) + 3
    start_s = made.start_s.copy()
    start_s[moved] = start_s[kept] + later * made.period_s
    assert any("two periods" in finding for finding in check(_sorted(made, start_s)))


@pytest.mark.parametrize("spec", ["ring:5", "switch:6", "mesh:3x3"])
def test_mutated_periods_are_refused(spec):
    network = family(spec, [1e-6], [1e9])
    made = _made(network)
    assert verify(made) == []
    random = np.random.default_rng(0)
    assert check(replace(made, period_s=made.period_s * 0.9))
    for row in random.choice(len(made.chunk), 12, replace=False).tolist():
        fewer = np.delete(np.arange(len(made.chunk)), row)
        names = ("chunk", "link", "op", "start_s")
        assert check(replace(made, **{name: getattr(made, name)[fewer] for name in names}))
        other = made.op.copy()
        other[row] = 1 - other[row]
        assert check(replace(made, op=other))
        start_s = made.start_s.copy()
        start_s[row] += 1.5 * made.latency_s
        late = _sorted(made, start_s)
        if made.arrival_s[row] < made.latency_s * 0.5:
            assert check(late)


def test_columns_that_do_not_fit_are_named():
    made = _made(family("ring:3", [1e-6], [1e9]))
    short = replace(made, start_s=made.start_s[:-1])
    assert any(problem.startswith("start_s: expected") for problem in short.problems())
    assert any("periods" in problem for problem in replace(made, periods=0).problems())
    assert any("period_s" in problem for problem in replace(made, period_s=float("nan")).problems())
    falling = replace(made, start_s=floats(made.start_s[::-1]))
    assert any("no less than the row before" in problem for problem in falling.problems())
    assert check(falling)
