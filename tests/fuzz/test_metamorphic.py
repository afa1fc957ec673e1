"""Bounds, times and verdicts when a network is scaled, relabelled, reordered, or has a link more."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings, strategies as st
from metamorphic import relabelled, reordered, scaled, split, with_link, without_link
from sample_networks import networks

from probes.base.columns import bytes_of, ints
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.errors import NotApplicableError
from synth.methods import direct, greedy, paths, ring, tree
from synth.network import Link
from synth.schedules import Timing
from synth.simulation.schedule import replay

METHODS = (greedy, tree, ring, direct, paths)
ALIKE = tuple(kind for kind in KINDS if kind != "all_to_next")
TIGHT = 1e-9
SLOW = [HealthCheck.too_slow]
# Prices of a linear program are rounded down until they prove a bound, in other ways for other networks.
ROUNDED = 1e-4
# They are searched for in so many steps, and may end farther from the best ones on one network than on
# another: 0.24 % was seen. Any prices prove a bound.
PRICED = 0.05


@st.composite
def schedules(draw, kinds=KINDS, most_ranks=5):
    """A schedule of some method for some collective on a random network with ports, by a seed of its own."""
    network = draw(networks(most_ranks))
    kind = draw(st.sampled_from(kinds))
    wanted = collective(
        kind, network.ranks, draw(st.integers(1, 2)), root=draw(st.integers(0, network.ranks - 1))
    )
    chunk_bytes = draw(st.sampled_from([64, 4096, 1 << 20]))
    for method in draw(st.permutations(METHODS)):
        with contextlib.suppress(NotApplicableError):
            return method.synthesize(network, wanted, chunk_bytes)
    reject()


def bound_s(schedule):
    return bounds(schedule.network, schedule.collective, schedule.chunk_bytes)[0].time_s


def proven(schedule):
    found = check(schedule)
    assert found == []
    return replay(schedule).time_s


@given(schedules())
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_no_schedule_beats_a_bound(schedule):
    time_s = proven(schedule)
    for bound in bounds(schedule.network, schedule.collective, schedule.chunk_bytes):
        assert bound.time_s <= time_s * (1 + TIGHT), bound


@given(schedules(), st.sampled_from([1e-3, 0.5, 3.0, 1024.0]))
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_what_takes_so_many_times_as_long_takes_so_many_times_as_long(schedule, factor):
    slow = replace(schedule, network=scaled(schedule.network, factor, factor))
    assert replay(slow).time_s == pytest.approx(factor * replay(schedule).time_s, rel=TIGHT)
    assert bound_s(slow) == pytest.approx(factor * bound_s(schedule), rel=ROUNDED)


@given(schedules(), st.sampled_from([0.25, 8.0]))
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_without_latency_times_are_bytes_over_bandwidth(schedule, factor):
    bare = replace(schedule, network=scaled(schedule.network, 0.0, 1.0))
    fast = replace(schedule, network=scaled(schedule.network, 0.0, 1 / factor))
    assert replay(fast).time_s == pytest.approx(replay(bare).time_s / factor, rel=TIGHT)
    assert bound_s(fast) == pytest.approx(bound_s(bare) / factor, rel=ROUNDED)


@given(schedules(ALIKE), st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_names_of_ranks_change_no_time_and_no_bound(schedule, rng):
    order = list(range(schedule.network.ranks))
    rng.shuffle(order)
    renamed = relabelled(schedule, order)
    assert proven(renamed) == pytest.approx(proven(schedule), rel=TIGHT)
    assert bound_s(renamed) == pytest.approx(bound_s(schedule), rel=ROUNDED)


@given(schedules(), st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_the_order_of_links_and_ports_changes_nothing(schedule, rng):
    links, ports = list(range(schedule.network.links)), list(range(len(schedule.network.ports)))
    rng.shuffle(links)
    rng.shuffle(ports)
    same = reordered(schedule, links, ports)
    assert proven(same) == pytest.approx(proven(schedule), rel=TIGHT)
    assert bound_s(same) == pytest.approx(bound_s(schedule), rel=ROUNDED)


@given(schedules(), st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_the_order_of_sends_that_start_together_changes_nothing(schedule, rng):
    timing = replay(schedule)
    shuffled = list(range(schedule.sends))
    rng.shuffle(shuffled)
    order = np.array(shuffled, dtype=np.int64)[np.argsort(timing.start_s[shuffled], kind="stable")]
    same = replace(
        schedule,
        chunk=ints(schedule.chunk[order]),
        link=ints(schedule.link[order]),
        op=bytes_of(schedule.op[order]),
        outcome=None,
    )
    assert proven(same) == pytest.approx(timing.time_s, rel=TIGHT)
    assert check(same, Timing(timing.start_s[order], timing.arrival_s[order], timing.time_s)) == []


@given(schedules(), st.data())
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_a_link_more_never_raises_the_bound_above_what_is_reached(schedule, data):
    network = schedule.network
    src = data.draw(st.integers(0, network.ranks - 1))
    dst = data.draw(st.integers(0, network.ranks - 1).filter(lambda rank: rank != src))
    wider = with_link(network, Link(src, dst, 1e-6, 1e-10))
    raised_s = bound_s(replace(schedule, network=wider))
    assert raised_s <= proven(schedule) * (1 + TIGHT)
    assert raised_s <= bound_s(schedule) * (1 + PRICED)


@given(schedules(), st.data())
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_a_link_less_never_lowers_the_bound(schedule, data):
    narrower = without_link(schedule.network, data.draw(st.integers(0, schedule.network.links - 1)))
    used = np.unique(schedule.link)
    assume(len(used) < schedule.network.links or _connected(narrower))
    assume(_connected(narrower))
    assert bound_s(replace(schedule, network=narrower)) >= bound_s(schedule) * (1 - PRICED)


def _connected(network):
    reach = np.eye(network.ranks, dtype=bool)
    reach[network.src, network.dst] = True
    for _ in range(network.ranks):
        reach = reach @ reach
    return bool(reach.all())


@given(schedules())
@settings(derandomize=True, max_examples=10, suppress_health_check=SLOW)
def test_chunks_cut_in_two_stay_proven_and_above_the_bound(schedule):
    halves = split(schedule)
    time_s = proven(halves)
    assert bound_s(halves) <= time_s * (1 + TIGHT)
    if not schedule.network.hold_alpha:
        # Whatever whole chunks can do, halves can do as fast: no bound on them is above a whole one's time.
        assert bound_s(halves) <= proven(schedule) * (1 + TIGHT)
