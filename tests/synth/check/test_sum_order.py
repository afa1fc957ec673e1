"""The judge proves the order of sums: schedules and programs that add up in another order are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from fixed_order import drawn_inputs, fixed_sum, nodes
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks
from sample_schedules import ring_all_reduce

from exec.program.interpreter import interpret
from probes.base.columns import ints
from synth.check.program import judge
from synth.check.schedule import check
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import aligned, greedy
from synth.networks.families import family
from synth.simulation.contribution_counts import contributions

OTHER_ORDER = "another order than that of the aligned tree"


def in_any(shape):
    return replace(shape, sum_order="any")


def in_any_order(made):
    return replace(made, collective=in_any(made.collective))


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


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(networks(8), st.integers(1, 2), st.integers(0, 99), st.booleans())
def test_a_program_is_accepted_only_if_it_gives_the_bits_of_the_order(network, chunks, seed, trees):
    """Right programs in some order claim the fixed one. The inputs tell any two orders apart."""
    shape = replace(collective("all_reduce", network.ranks, chunks), sum_order="aligned")
    made = greedy.synthesize(network, in_any(shape), 1000, seed=seed) if trees else None
    schedule = made or in_any_order(aligned.synthesize(network, shape, 1000, seed=seed))
    if check(schedule):
        return  # A rank gets a part, then a sum that contains it: right in the fixed order only.
    program = lower(schedule)
    assert judge(program) == []
    inputs = drawn_inputs(network.ranks, 64 * chunks, "float32")
    findings = judge(in_fixed_order(program))
    assert (findings == []) == (bits_of(program, inputs) == {fixed_sum(inputs).tobytes()})
    assert all(OTHER_ORDER in finding for finding in findings)


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
