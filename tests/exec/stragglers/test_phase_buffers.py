"""Phase 1 and phase 2, run by the reference interpreter, give together what the whole schedule gives."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import chessboard, drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import named, networks
from sample_schedules import random_schedule, ring_all_reduce

from exec.program.interpreter import interpret
from exec.stragglers.phase_buffers import input_of, merged
from probes.base.errors import UsageError
from synth import compile as proven
from synth.check.schedule import check
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.errors import NotApplicableError
from synth.methods import greedy, paths
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve
from synth.relays.partial import WAYS, has_data, late_phase, partial_phase
from synth.relays.pieces import cut

ELEMENTS = 3


def inputs_of(whole, seed=0):
    """Small integers, whose sums are exact, for each slot of each rank."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(1, 1000, int(whole.sources.has(rank).sum()) * ELEMENTS).astype(np.float64)
        for rank in range(whole.ranks)
    ]


def carried_out(phases, inputs, compiled=lower):
    """Every rank's output of the whole collective."""
    return joined(phases, [outputs_of(phase, inputs, compiled) for phase in phases])


def outputs_of(phase, inputs, compiled):
    """Every rank's output of a phase."""
    return interpret(
        compiled(phase.schedule), [input_of(phase, rank, one) for rank, one in enumerate(inputs)]
    )


def joined(phases, outputs):
    """Every rank's output of the whole collective, from those of its phases."""
    return [
        merged(phases, [output[rank] for output in outputs], rank)
        for rank in range(phases[0].schedule.network.ranks)
    ]


def judge(schedule, active, compiled=lower):
    late = set(range(schedule.network.ranks)) - active
    inputs = inputs_of(schedule.collective)
    expected = interpret(compiled(schedule), inputs)
    first = [partial_phase(schedule, active)] if has_data(schedule, active) else []
    first_outputs = [outputs_of(phase, inputs, compiled) for phase in first]
    for way in WAYS if has_data(schedule, late) else WAYS[:1]:
        second = [late_phase(schedule, late, way)] if has_data(schedule, late) else []
        outputs = first_outputs + [outputs_of(phase, inputs, compiled) for phase in second]
        found = joined([*first, *second], outputs)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]


@pytest.mark.parametrize(("kind", "half"), chessboard(KINDS, (0, 1)))
def test_for_every_active_set(kind, half):
    schedule = random_schedule(kind, 4, 2, seed=11)
    sets = [active for size in range(5) for active in itertools.combinations(range(4), size)]
    for active in sets[half::2]:
        judge(schedule, set(active))


@settings(max_examples=drawn(25), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), network=networks(6), kind=st.sampled_from(KINDS), name=st.sampled_from(list(METHODS)))
def test_for_every_method_on_random_networks(data, network, kind, name):
    method = METHODS[name]
    if method.solves or method.exchanges:
        return
    shape = collective(kind, network.ranks, 2, root=network.ranks - 1)
    others = (greedy.synthesize, paths.synthesize)
    try:
        schedule = serve(method.synthesize, network, shape, 4096, relays=method.relays, others=others, seed=0)
    except NotApplicableError:
        return
    judge(schedule, data.draw(st.sets(st.integers(0, network.ranks - 1))), proven)


def test_across_hosts():
    network = named("hosts of two")
    schedule = METHODS["hierarchical"].synthesize(network, collective("all_reduce", 8, 8), 4096)
    judge(schedule, {0, 1, 2, 4, 7}, proven)


def test_three_phases_give_the_same_bits_on_every_rank():
    ring = ring_all_reduce(5)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(5 * ELEMENTS).astype(np.float32) for _ in range(5)]
    phases = [partial_phase(ring, {0, 3}), late_phase(ring, {1, 4}, "copy"), late_phase(ring, {2}, "sum")]
    found = carried_out(phases, inputs)
    assert {one.tobytes() for one in found} == {found[0].tobytes()}
    assert np.allclose(found[0], np.sum(inputs, axis=0), atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "reduce_scatter"])
def test_phase_2_may_take_another_schedule_in_finer_pieces(kind, way):
    first = random_schedule(kind, 4, 1, seed=5)
    second = random_schedule(kind, 4, 1, seed=6)
    second = cut(replace(second, collective=first.collective), 4)
    assert check(second) == []
    rng = np.random.default_rng(2)
    slots = [int(first.collective.sources.has(rank).sum()) for rank in range(4)]
    inputs = [rng.integers(1, 1000, 8 * count).astype(np.float64) for count in slots]
    phases = [partial_phase(first, {0, 2}), late_phase(second, {1, 3}, way)]
    expected = interpret(lower(first), inputs)
    assert [one.tolist() for one in carried_out(phases, inputs)] == [one.tolist() for one in expected]


def test_other_operators():
    ring = ring_all_reduce(4)
    inputs = inputs_of(ring.collective)
    phases = [partial_phase(ring, {1, 2}), late_phase(ring, {0, 3}, "copy")]
    outputs = [
        interpret(lower(phase.schedule), [input_of(phase, rank, inputs[rank]) for rank in range(4)], "max")
        for phase in phases
    ]
    for rank in range(4):
        found = merged(phases, [output[rank] for output in outputs], rank, "max")
        assert found.tolist() == np.max(inputs, axis=0).tolist()


def test_phases_that_do_not_bring_all_are_refused():
    ring = ring_all_reduce(4)
    phase = partial_phase(random_schedule("all_gather", 3, 1, seed=0), {0, 1})
    with pytest.raises(UsageError, match=r"phases: expected phases that bring .* rank 2.* element 2"):
        merged([phase], [np.ones(2)], 2)
    with pytest.raises(UsageError, match="whole: expected a flat array of 4 equal slots"):
        input_of(partial_phase(ring, {0}), 0, np.ones(6))
