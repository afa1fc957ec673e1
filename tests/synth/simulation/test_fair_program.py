"""Fair rates against times that can be worked out by hand, and against what no sharing can beat."""

import numpy as np
import pytest
from assembler import Assembler
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks
from sample_schedules import random_schedule

from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.lang import chunk, program
from synth.methods import greedy
from synth.network import Link, build
from synth.program import OPS
from synth.simulation.fair_program import fair_time_s
from synth.simulation.program import Costs

FREE = Costs(step_s=0.0)


@program("broadcast", 3)
def to_both():
    own = chunk("input", 0, 0)
    own.assign("output", 0, 0)
    own.assign("output", 1, 0)
    own.assign("output", 2, 0)


@program("broadcast", 3, chunks=lambda chunks: chunks)
def pass_on(chunks=1):
    for index in range(chunks):
        own = chunk("input", 0, index)
        own.assign("output", 0, index)
        own.assign("output", 1, index).assign("output", 2, index)


def fork(*rates, port=()):
    return build("fork", ["h"] * 3, [Link(0, to, 1e-6, 1 / rate, port) for to, rate in enumerate(rates, 1)])


@pytest.mark.parametrize(
    ("network", "expected_us"),
    [
        # Alone each flow has its link; the slower one is last.
        (fork(1e9, 0.5e9), 2 + 1),
        # Two flows of one port get half of it each.
        (fork(1e9, 1e9, port=("nic",)), 2 + 1),
        # The slow one takes 0.25 of the port, the fast one the rest: the slow one is last.
        (fork(1e9, 0.25e9, port=("nic",)), 4 + 1),
        # The fast link is held to what the slow one leaves; when the slow one is over nothing is left.
        (fork(1e9, 0.6e9, port=("nic",)), 2 + 1),
    ],
)
def test_rates_worked_out_by_hand(network, expected_us):
    assert fair_time_s(to_both(), network, 1000, FREE) == pytest.approx(expected_us * 1e-6)


def test_messages_of_a_pair_follow_each_other_and_slots_run_out():
    network = build("line", ["h"] * 3, [Link(0, 1, 2e-6, 1e-9), Link(1, 2, 2e-6, 1e-9)])
    assert fair_time_s(pass_on(chunks=3), network, 1000, Costs(0.0, fifo=3)) == pytest.approx(8e-6)
    # With one place the next leaves when the last was taken, three microseconds after it left.
    assert fair_time_s(pass_on(chunks=3), network, 1000, Costs(0.0, fifo=1)) == pytest.approx(12e-6)


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_step_that_waits_for_another_threadblock_starts_when_that_step_is_over(waiting):
    """Whichever of the two threadblocks is looked at first."""
    assembler = Assembler(collective("all_gather", 2, 1))
    blocks = [assembler.threadblock(0, channel=channel) for channel in (0, 1)]
    copy = OPS.index("cpy")
    first = assembler.step(blocks[1 - waiting], copy, (0, 0), (2, 0))
    assembler.step(blocks[waiting], copy, (2, 0), (1, 0), after=[first])
    pair = build("pair", ["h"] * 2, [Link(0, 1, 0, 1e-9)])
    assert fair_time_s(assembler.program("two", (1, 0)), pair, 1000, Costs(1e-6)) == pytest.approx(2e-6)


@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 5), seed=st.integers(0, 1 << 30))
def test_no_link_carries_more_than_it_can(kind, ranks, seed):
    schedule = random_schedule(kind, ranks, 2, seed)
    network = schedule.network
    time_s = fair_time_s(lower(schedule), network, schedule.chunk_bytes, Costs(0.0, fifo=64))
    loads = np.bincount(schedule.link, minlength=network.links) * schedule.chunk_bytes
    assert (loads * network.beta_s_per_byte).max(initial=0.0) * (1 - 1e-9) <= time_s < np.inf


@settings(max_examples=drawn(200))
@given(
    network=networks(),
    kind=st.sampled_from(("all_gather", "all_reduce", "broadcast")),
    chunks=st.integers(1, 5),
    chunk_bytes=st.sampled_from([1, 3, 1000, (1 << 20) + 7, 1 << 30]),
    step_s=st.sampled_from([0.0, 1e-9, 1e-5, 0.1]),
)
def test_on_any_network_everything_ends(network, kind, chunks, chunk_bytes, step_s):
    """Also where times differ by so much that rounding leaves parts of messages."""
    schedule = greedy.synthesize(network, collective(kind, network.ranks, chunks), chunk_bytes)
    compiled = lower(schedule)
    time_s = fair_time_s(compiled, network, chunk_bytes, Costs(step_s, fifo=4))
    assert 0 < time_s < np.inf


def test_rounding_keeps_no_message_under_way():
    """Seven flows of one port, whose shares add up to a little more or less than all of it."""
    rates = [3.3e9 + 7 * number for number in range(7)]
    links = [Link(0, to, 1e-6, 1 / rate, ("nic",)) for to, rate in enumerate(rates, 1)]
    network = build("fan", ["h"] * 8, links)
    for chunk_bytes in (1, 3, 1001, 12345679):
        schedule = greedy.synthesize(network, collective("broadcast", 8, 3), chunk_bytes)
        time_s = fair_time_s(lower(schedule), network, chunk_bytes, Costs(0.1))
        assert 7 * chunk_bytes / rates[-1] < time_s < np.inf
