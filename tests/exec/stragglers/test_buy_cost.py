"""Costs of the phases: the paper's S/B by hand, and what is simulated against the schedules themselves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from sample_networks import named
from sample_schedules import complete, random_schedule, ring_all_reduce, schedule_of

from exec.stragglers.buy_cost import ConstantCosts, SimulatedCosts, VolumeCosts
from exec.stragglers.late_base import late_bases
from probes.base.errors import UsageError
from synth.check.schedule import check
from synth.collective import KINDS, collective, several
from synth.methods import greedy
from synth.relays.partial import WAYS, late_schedule, partial_schedule
from synth.schedules import COPY
from synth.simulation.schedule import replay


def test_volume_over_bandwidth_of_an_all_reduce():
    # Four ranks, tensors of 4 KiB, links of 1 GB/s.
    ring = ring_all_reduce(4)
    costs = VolumeCosts(ring)
    tensor_s = 4096 / 1e9
    # All four links of the ring are used: 2(N - 1)T over 4 GB/s.
    assert costs.whole_s == pytest.approx(6 * tensor_s / 4)
    # Three of four ready: the ring is used all round, as rank 3 relays. Its own data go round to rank 2.
    found = costs.phases(frozenset({0, 1, 2}))
    assert found.one_s == pytest.approx(4 * tensor_s / 4)
    assert found.two_s == pytest.approx(1 * tensor_s / 3)
    assert found.buy_s == found.one_s + found.two_s
    # With one rank there is nothing to add up.
    assert costs.phases(frozenset({2})).one_s == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_has_a_volume(kind):
    schedule = random_schedule(kind, 4, 2, seed=3)
    costs = VolumeCosts(schedule)
    assert 0 < costs.whole_s < math.inf
    for ready in ({0}, {1, 3}, {0, 1, 2}):
        found = costs.phases(frozenset(ready))
        assert found.one_s >= 0
        assert 0 <= found.two_s < math.inf


def test_several_at_once_have_no_volume():
    wanted = several([collective("broadcast", 2, 1), collective("broadcast", 2, 1, root=1)])
    schedule = schedule_of(complete(2), wanted, [(0, 0, 1, COPY), (1, 1, 0, COPY)])
    with pytest.raises(UsageError, match=r"schedule: expected one of all_reduce, .* found broadcast \+"):
        VolumeCosts(schedule)
    assert SimulatedCosts(schedule).phases(frozenset({0})).one_s > 0


def test_simulated_costs_are_those_of_the_schedules():
    ring = ring_all_reduce(6, 2)
    costs = SimulatedCosts(ring, [ring])
    assert costs.whole_s == replay(ring).time_s
    for ready in ({0}, {1, 4}, {0, 1, 2, 3, 4}):
        late = set(range(6)) - ready
        found = costs.phases(frozenset(ready))
        assert found.one_s == replay(partial_schedule(ring, ready)).time_s
        assert found.two_s == min(replay(late_schedule(ring, late, way)).time_s for way in WAYS)
        assert costs.phases(frozenset(ready)) is found
        assert SimulatedCosts(ring).phases(frozenset(ready)).two_s <= found.two_s


@pytest.mark.parametrize("kind", KINDS)
def test_bases_are_proven_schedules_of_the_same_buffers(kind):
    schedule = replace(random_schedule(kind, 4, 4, seed=3), chunk_bytes=1 << 20)
    bases = late_bases(schedule)
    assert bases[0] is schedule
    assert len(bases) == 2 + (kind in ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"))
    for base in bases:
        assert check(base) == []
        assert base.collective.same_but_for_chunks(schedule.collective)
        assert base.collective.total_bytes(base.chunk_bytes) == schedule.collective.total_bytes(1 << 20)


def test_bases_are_whole_elements_and_links_that_are_there():
    schedule = random_schedule("all_reduce", 4, 1, seed=3)
    assert len(late_bases(replace(schedule, chunk_bytes=1000))) == 1
    line = named("line of 4")
    made = greedy.synthesize(line, collective("all_reduce", 4, 4), 1 << 20)
    assert len(late_bases(made)) == 2


def test_a_broadcast_cannot_begin_before_its_root():
    schedule = random_schedule("broadcast", 4, 1, seed=1)
    root = schedule.collective.root
    others = frozenset(range(4)) - {root}
    for costs in (SimulatedCosts(schedule), VolumeCosts(schedule)):
        assert costs.phases(others).buy_s == math.inf
        assert costs.phases(frozenset({root})).two_s == 0


def test_a_constant_cost():
    costs = ConstantCosts(0.04)
    assert (costs.phases(frozenset({1})).buy_s, costs.whole_s, costs.has_phases) == (0.04, 0.0, False)
