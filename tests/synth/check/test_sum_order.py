"""The judge proves the order of sums: schedules and programs that add up in another order are refused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from fixed_order import drawn_inputs, fixed_sum, nodes, reproducible_program
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks
from sample_schedules import ring_all_reduce

from exec.program.interpreter import interpret
from probes.base.columns import ints
from synth.check.program import judge
from synth.check.schedule import check
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import aligned
from synth.networks.families import family
from synth.program import OPS
from synth.simulation.contribution_counts import contributions

OTHER_ORDER = "another order than that of the aligned tree"


def in_any_order(made):
    return replace(made, collective=replace(made.collective, sum_order="any"))


def in_fixed_order(made):
    return replace(made, collective=replace(made.collective, sum_order="aligned"))


def bits_of(program, inputs):
    return {output.tobytes() for output in interpret(program, inputs)}


@pytest.mark.parametrize("ranks", [3, 4, 5, 8])
def test_a_ring_adds_up_in_another_order(ranks):
    schedule = ring_all_reduce(ranks, 1)
    assert check(schedule) == []
    assert "name no addends" in check(in_fixed_order(schedule))[0]
    program = lower(schedule)
    assert judge(program) == []
    assert OTHER_ORDER in judge(in_fixed_order(program))[0]


@settings(max_examples=drawn(150), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(3, 9), st.integers(1, 2), st.randoms(use_true_random=False))
def test_two_ranks_changed_places_in_a_schedule(ranks, chunks, draw):
    """The other judge, which knows no order, accepts each mutant; this one only those whose bits stay."""
    network = family(f"fully_connected:{ranks}", [1e-6], [1e9])
    shape = replace(collective("all_reduce", ranks, chunks), sum_order="aligned")
    schedule = aligned.synthesize(network, shape, 1000, seed=draw.randrange(100))
    place = list(range(ranks))
    one, other = draw.sample(range(ranks), 2)
    place[one], place[other] = other, one
    table = np.zeros((ranks, ranks), int)
    table[network.src, network.dst] = np.arange(network.links)
    moved = np.array(place)
    swapped = table[moved[network.src[schedule.link]], moved[network.dst[schedule.link]]]
    mutant = replace(schedule, link=ints(swapped))
    assert check(in_any_order(mutant)) == []
    tree = set(nodes(0, ranks))
    right = all(_ranks(bits) in tree for bits in carried(mutant))
    assert (check(mutant) == []) == right
    if right:
        inputs = drawn_inputs(ranks, 64 * chunks, "float32")
        assert bits_of(lower(mutant), inputs) == {fixed_sum(inputs).tobytes()}


def carried(schedule):
    """The contributions that each send carries, as bits, followed by hand."""
    held, messages = {}, []
    src, dst = schedule.network.src[schedule.link].tolist(), schedule.network.dst[schedule.link].tolist()
    for row, chunk in enumerate(schedule.chunk.tolist()):
        parts = schedule.addend[schedule.addend_start[row] : schedule.addend_start[row + 1]].tolist()
        whole = held.get((src[row], chunk), 1 << src[row])
        message = whole if not parts else 0
        for part in parts:
            message |= messages[part] if part >= 0 else 1 << src[row]
        messages.append(message)
        own = 0 if schedule.op[row] == 0 else held.get((dst[row], chunk), 1 << dst[row])
        held[dst[row], chunk] = own | message
    return messages


def _ranks(bits):
    return frozenset(rank for rank in range(bits.bit_length()) if bits >> rank & 1)


@pytest.mark.parametrize("spec", ["switch:8", "fully_connected:6", "switch:5"])
def test_no_mutant_of_a_program_with_other_bits_is_accepted(spec):
    """Two operands change places. The inputs have so many magnitudes that another order gives other bits."""
    program = reproducible_program(family(spec, [1e-6], [1e9]), "all_reduce", 64, method="exchange")
    assert judge(program) == []
    inputs = drawn_inputs(program.ranks, 64 * program.collective.chunks, "float32")
    right = {fixed_sum(inputs).tobytes()}
    assert bits_of(program, inputs) == right
    draw, refused_for_order = random.Random(1), 0
    adding = np.flatnonzero(np.isin(program.op, [OPS.index("re"), OPS.index("cpy")])).tolist()
    for _ in range(drawn(150)):
        mutant = _two_swapped(program, adding, draw)
        if not judge(mutant):
            assert bits_of(mutant, inputs) == right
        elif not judge(in_any_order(mutant)):
            refused_for_order += 1
            assert OTHER_ORDER in judge(mutant)[0]
            assert bits_of(mutant, inputs) != right
    assert refused_for_order > 0


def _two_swapped(program, adding, draw):
    """The sources of two local steps of one threadblock change places."""
    while True:
        one, other = draw.sample(adding, 2)
        if program.tb_of[one] == program.tb_of[other]:
            break
    columns = {}
    for name in ("src_buffer", "src_slot"):
        column = np.array(getattr(program, name))
        column[[one, other]] = column[[other, one]]
        columns[name] = column
    return replace(program, **columns)


@settings(max_examples=drawn(30), suppress_health_check=[HealthCheck.too_slow])
@given(networks(7), st.integers(1, 2))
def test_what_a_send_carries_is_below_one_node(network, chunks):
    shape = replace(collective("all_reduce", network.ranks, chunks), sum_order="aligned")
    schedule = aligned.synthesize(network, shape, 1000)
    tree = set(nodes(0, network.ranks))
    assert all(_ranks(bits) in tree for bits in carried(schedule))
    assert len(contributions(schedule)) == schedule.sends


def test_an_order_needs_sums():
    wrong = replace(collective("all_gather", 4), sum_order="aligned")
    assert wrong.problems() == ["sum_order: expected any beside kind all_gather, found aligned"]
