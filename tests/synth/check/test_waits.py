"""Verdicts of the judge on waits and slots, beside the compiler's code, which shares nothing with it."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import named, networks

from probes.base import bytes_of, ints
from synth.check.slots import slots_of
from synth.check.waits import Waits, blocked, least_depth, order_of
from synth.check.well_formed import shape
from synth.collective import KINDS, collective
from synth.compiler import lower
from synth.memory_layout import cells_of
from synth.methods import greedy
from synth.simulation.fifo_order import links_of, run


@st.composite
def programs(draw):
    """A compiled program, some of whose steps are exchanged, given other operations, or made to wait."""
    network = draw(networks(5))
    kind = draw(st.sampled_from(("all_gather", "all_reduce", "reduce_scatter")))
    shape = collective(kind, network.ranks, draw(st.integers(1, 3)))
    program = lower(greedy.synthesize(network, shape, 1000))
    op, wait_tb, wait_step = program.op.copy(), program.wait_tb.copy(), program.wait_step.copy()
    rows = st.integers(0, program.steps - 1)
    for _ in range(draw(st.integers(0, 4))):
        one, two = draw(rows), draw(rows)
        if draw(st.booleans()):
            op[[one, two]] = op[[two, one]]
        elif program.tb_rank[program.tb_of[one]] == program.tb_rank[program.tb_of[two]]:
            wait_tb[one] = program.tb_of[two]
            wait_step[one] = two - program.tb_start[program.tb_of[two]]
    return replace(program, op=bytes_of(op), wait_tb=ints(wait_tb), wait_step=ints(wait_step))


@settings(max_examples=drawn(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.integers(1, 4))
def test_what_runs_is_what_runs_step_by_step(program, depth):
    if any("no peer" in finding for finding in shape(program)):
        return
    waits, links = Waits(program), links_of(program)
    order = order_of(waits, depth)
    ran, _, filled = run(links, depth)
    assert np.array_equal(np.sort(order), np.sort(ran))
    assert np.array_equal(waits.sender, links.sender) and np.array_equal(waits.goal, links.goal)
    place = np.full(program.steps, -1)
    place[order] = np.arange(len(order))
    for before in (waits.goal, waits.sender, waits.room(depth)):
        waiting = order[before[order] >= 0]
        assert (place[before[waiting]] >= 0).all() and (place[before[waiting]] < place[waiting]).all()
    assert (blocked(waits, order, depth) == []) == (len(ran) == program.steps and not filled.any())
    fits = least_depth(waits)
    enough = [len(run(links, one)[0]) == program.steps for one in range(1, program.steps + 2)]
    assert fits == (enough.index(True) + 1 if any(enough) else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
def test_slots_hold_what_the_makers_say(kind, in_place):
    network = named("fully connected")
    program = lower(greedy.synthesize(network, collective(kind, network.ranks, 2, root=1), 1000))
    ours, theirs = slots_of(program, in_place=in_place), cells_of(program, in_place=in_place)
    assert np.array_equal(ours.first, theirs.first) and np.array_equal(ours.size, theirs.size)
    assert np.array_equal(ours.same, theirs.same)
    for mine, other in ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs)):
        for name in ("rank", "slot", "chunk", "sizes"):
            assert np.array_equal(getattr(mine, name), getattr(other, name))
    assert [ours.name(n) for n in range(len(ours.same))] == [theirs.name(n) for n in range(theirs.total)]


def test_each_slot_of_an_unknown_input_is_a_chunk():
    network = named("fully connected")
    program = lower(greedy.synthesize(network, collective("all_gather", network.ranks, 2), 1000))
    sizes = tuple(range(1, program.ranks + 1))
    unknown = replace(program, input_chunks=sizes, output_chunks=sizes[::-1])
    ours, theirs = slots_of(unknown, in_place=False), cells_of(unknown, in_place=False)
    assert np.array_equal(ours.size, theirs.size) and np.array_equal(ours.inputs.rank, theirs.inputs.rank)
    assert ours.inputs.chunk.tolist() == list(range(sum(sizes))) and not len(ours.outputs.chunk)
