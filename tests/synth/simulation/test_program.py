"""The simulator of programs against times that can be worked out by hand, and against that of schedules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sample_schedules import complete, random_schedule

from probes.base.errors import UsageError
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.lang import chunk, program
from synth.methods import direct
from synth.network import Link, build
from synth.networks.families import family
from synth.simulation.fifo_order import links_of
from synth.simulation.program import Costs, _chain, links_used, simulate_program
from synth.simulation.schedule import replay

FREE = Costs(step_s=0.0)


def line(ports=()):
    return build("line", ["h"] * 3, [Link(0, 1, 2e-6, 1e-9, ports), Link(1, 2, 2e-6, 1e-9, ports)])


@program("broadcast", 3, chunks=lambda chunks: chunks)
def pass_on(chunks=1):
    for index in range(chunks):
        own = chunk("input", 0, index)
        own.assign("output", 0, index)
        own.assign("output", 1, index).assign("output", 2, index)


@pytest.mark.parametrize(
    ("chunks", "costs", "network", "expected_us"),
    [
        (1, FREE, line(), 2 * (1 + 2)),
        # Three chunks follow each other, each 1 us behind the one before.
        (3, Costs(0.0, fifo=3), line(), 2 * (1 + 2) + 2),
        # With two places the third waits until the first was passed on, at 4 us.
        (3, FREE, line(), 4 + 2 * (1 + 2)),
        # A port that both links share lets one message pass at a time.
        (1, FREE, line(("nic",)), 2 * (1 + 2)),
        # Each instruction adds its own: the last receive, and those that the second hop waits for.
        (1, Costs(step_s=1e-6), line(), 2 * (1 + 2) + 1),
        # Threadblocks half as fast as the link send every 2 us, and take 2 us for the last receive.
        (2, Costs(0.0, 0.5e9), line(), 2 + 2 * (1 + 2) + 2),
    ],
)
def test_times_worked_out_by_hand(chunks, costs, network, expected_us):
    timing = simulate_program(pass_on(chunks=chunks), network, 1000, costs)
    assert timing.time_s == pytest.approx(expected_us * 1e-6)


def test_a_message_between_hosts_holds_its_nic_beside_its_bytes():
    apart = build("apart", ["a", "b", "b"], [Link(0, 1, 2e-6, 1e-9, ("nic",)), Link(1, 2, 2e-6, 1e-9)])
    timing = simulate_program(pass_on(chunks=2), apart, 1000, Costs(0.0, message_s=3e-6))
    # The first hop takes 4 us a message, one after the other; the second, within a host, 1 us.
    assert timing.time_s == pytest.approx((2 * (1 + 3) + 2 + 1 + 2) * 1e-6)


def test_slices_are_passed_on_while_the_rest_arrives():
    # A quarter of the message, 1 us long, is over the first hop at 0.25 + 2 us.
    timing = simulate_program(pass_on(), line(), 1000, Costs(0.0, slices=4))
    assert timing.time_s == pytest.approx((0.25 + 2 + 1 + 2) * 1e-6)
    # A slow first hop holds up the second, whose last slice follows.
    slow = build("slow", ["h"] * 3, [Link(0, 1, 2e-6, 4e-9), Link(1, 2, 2e-6, 1e-9)])
    timing = simulate_program(pass_on(), slow, 1000, Costs(0.0, slices=4))
    assert timing.time_s == pytest.approx((4 + 2 + 1 / 4 + 2) * 1e-6)


def test_fewer_fifo_slots_never_make_it_faster():
    compiled = pass_on(chunks=8)
    deep, shallow = (simulate_program(compiled, line(), 1000, Costs(0.0, fifo=n)).time_s for n in (8, 1))
    assert deep < shallow


def test_a_deadlock_never_ends():
    @program("all_gather", 2, chunks=2)
    def both_first():
        for rank in (0, 1):
            for index in (0, 1):
                own = chunk("input", rank, index)
                own.assign("output", rank, 2 * rank + index, sendtb=0)
                own.assign("output", 1 - rank, 2 * rank + index, sendtb=0, recvtb=0)

    compiled = both_first()
    pair = build("pair", ["h"] * 2, [Link(0, 1, 0, 1e-9), Link(1, 0, 0, 1e-9)])
    assert np.isfinite(simulate_program(compiled, pair, 1000, Costs(fifo=2)).time_s)


def test_a_missing_link_is_named():
    with pytest.raises(UsageError, match="from rank 1 to 2: short has no such link"):
        simulate_program(pass_on(), build("short", ["h"] * 3, [Link(0, 1, 0, 1e-9)]), 1)
    with pytest.raises(UsageError, match="has 2 ranks"):
        simulate_program(pass_on(), complete(2), 1)


@pytest.mark.parametrize(
    ("costs", "bandwidth", "alpha", "says"),
    [
        (FREE, 1e6, 1e-9, "transfers, most on link 0 -> 1"),
        (FREE, 1e12, 1e-3, "latency of the links"),
        (Costs(1.0), 1e12, 0, "the overhead of instructions"),
        (Costs(0.0, 1e3), 1e12, 0, "the rate of one threadblock"),
    ],
)
def test_what_binds_is_said(costs, bandwidth, alpha, says):
    network = build("line", ["h"] * 3, [Link(0, 1, alpha, 1 / bandwidth), Link(1, 2, alpha, 1 / bandwidth)])
    timing = simulate_program(pass_on(), network, 1000, costs)
    assert timing.binding == says
    assert sum(timing.shares.values()) == pytest.approx(timing.time_s)


@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 5), seed=st.integers(0, 1 << 30))
def test_a_schedule_and_its_program_agree(kind, ranks, seed):
    """With free instructions and deep FIFOs the order alone can differ, and never beats the busiest link."""
    schedule = random_schedule(kind, ranks, 2, seed)
    timing = simulate_program(lower(schedule), schedule.network, schedule.chunk_bytes, Costs(0.0, fifo=64))
    network = schedule.network
    busiest = np.bincount(schedule.link, minlength=network.links).max(initial=0)
    least_s = busiest * network.hold_s(schedule.chunk_bytes)[0] + (network.alpha_s[0] if busiest else 0.0)
    assert least_s * (1 - 1e-9) <= timing.time_s <= 2 * replay(schedule).time_s + 1e-12
    assert sum(timing.shares.values()) == pytest.approx(timing.time_s)


def test_ports_serve_the_earliest_turn_first():
    """Direct exchange over one port a rank: without turns, two senders meet at the same receiver."""
    network = family("switch:5", [1e-6], [1e9])
    schedule = direct.synthesize(network, collective("all_to_all", 5, 1), 1 << 20)
    compiled = lower(schedule)
    with_turns, without = (
        simulate_program(given, network, 1 << 20, Costs(0.0, fifo=8)).time_s
        for given in (compiled, replace(compiled, turn=compiled.turn[:0]))
    )
    assert with_turns == pytest.approx(replay(schedule).time_s, rel=0.01)
    assert without > 1.1 * with_turns


@given(kind=st.sampled_from(KINDS), ranks=st.integers(2, 5), seed=st.integers(0, 1 << 30))
def test_turns_rise_within_a_threadblock(kind, ranks, seed):
    compiled = lower(random_schedule(kind, ranks, 2, seed))
    assert len(compiled.turn) == compiled.steps
    same = compiled.tb_of[1:] == compiled.tb_of[:-1]
    assert (np.diff(compiled.turn)[same] >= 0).all()


def test_a_share_that_is_nothing_is_not_below_nothing():
    """The cost of a threadblock is the difference of two sums of the same parts."""
    one, nobody = np.zeros(1, dtype=np.int32), np.full(1, -1, dtype=np.int32)
    nothing = np.zeros(1)
    shares = _chain(np.ones(1), one, nobody, np.array([0.1 + 0.2]), nothing, nothing, np.array([0.3]), 0.0)
    assert shares["threadblock"] == 0.0


def test_channels_take_parallel_links_in_turn():
    links = [Link(0, 1, 1e-6, 1e-9), Link(0, 1, 1e-6, 1e-9), Link(0, 1, 1e-6, 4e-9), Link(1, 0, 1e-6, 1e-9)]
    network = build("two and a slow one", ["a", "a"], links)

    @program("broadcast", ranks=2, chunks=3, in_place=True)
    def apart():
        for index in range(3):
            chunk("input", 0, index).assign("output", 1, index, ch=index)

    made = apart()
    used = links_used(made, network, 1 << 20)[links_of(made).sends]
    # Three channels on two links that are alike; the slow one carries nothing.
    assert sorted(np.bincount(used, minlength=4).tolist()) == [0, 0, 1, 2]
    assert set(network.beta_s_per_byte[used].tolist()) == {1e-9}
