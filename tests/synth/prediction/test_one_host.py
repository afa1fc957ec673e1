"""Times on one host against sums that can be worked out by hand."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, strategies as st
from sample_schedules import ring_all_reduce

from probes.link_costs import HostMemory
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import direct, ring, tree
from synth.network import Link, build
from synth.prediction.one_host import host_timing

SWITCH_S = 3e-6
MIB = 1 << 20


def host(ranks, alpha_s=1e-6):
    links = [Link(*ends, alpha_s, 1e-9) for ends in permutations(range(ranks), 2)]
    return build("host", ["h"] * ranks, links)


def flat(cores=0, copy=1e-9, fetch=3e-9, written=5e-9):
    """Memory whose costs are the same at all sizes."""
    return HostMemory("h", (1 << 10, 1 << 30), (copy,) * 2, (copy,) * 2, (fetch,) * 2, (written,) * 2, cores)


def made(method, kind, ranks):
    return lower(method.synthesize(host(ranks), collective(kind, ranks, 1), MIB))


def test_of_a_broadcast_the_root_copies_while_the_others_fetch_what_nobody_has_written():
    program = made(tree, "broadcast", 2)
    found = host_timing(program, host(2), 256 << 10, flat(2))
    assert found.time_s == pytest.approx((256 << 10) * 3e-9 + 1e-6, abs=3e-6)
    assert found.spent["memory", 1] == pytest.approx((256 << 10) * 3e-9, rel=1e-6)


def test_what_was_just_written_costs_more_to_fetch():
    """A chain: the second rank fetches an input, the third what the second has just written."""
    program, size = made(ring, "broadcast", 3), 256 << 10
    found = host_timing(program, host(3), size, flat(3))
    # A rank that writes what others read next takes it out of their caches first.
    assert found.time_s == pytest.approx(size * (3e-9 + 2e-9 + 5e-9), rel=0.05)


def test_short_messages_go_through_slots_and_are_copied_twice():
    program = made(direct, "all_to_all", 2)
    size = 8 << 10
    found = host_timing(program, host(2), size, flat(2))
    # Own block and what is sent are copied; what comes costs a copy, and what it costs more to come.
    assert found.time_s == pytest.approx(size * (1e-9 + 1e-9 + 3e-9) + 1e-6, abs=2e-6)


def test_all_together_take_no_less_than_their_work_on_the_cores_that_there_are():
    program, size = made(direct, "all_gather", 4), 256 << 10
    work_s = 4 * (1e-9 + 3 * 3e-9) * size
    for cores in (1, 2, 4):
        time_s = host_timing(program, host(4), size, flat(cores)).time_s
        assert work_s / cores <= time_s <= 1.3 * work_s / cores + 20 * SWITCH_S


def test_each_further_tile_costs_what_the_last_ones_did():
    """A direct exchange has nothing to fill: its time is that of the bytes, however many tiles they are."""
    program = made(direct, "all_gather", 4)
    one_s, eight_s, many_s = (
        host_timing(program, host(4), size, flat(4)).time_s for size in (MIB // 2, 4 * MIB, 64 * MIB)
    )
    assert eight_s == pytest.approx(8 * one_s, rel=0.05)
    assert many_s == pytest.approx(128 * one_s, rel=0.05)


def test_a_chain_fills_once_and_then_delivers_a_tile_at_a_time():
    program, memory = made(ring, "broadcast", 4), flat(4, fetch=3e-9, written=3e-9)
    one_s, many_s = (host_timing(program, host(4), size, memory).time_s for size in (MIB // 2, 32 * MIB))
    assert one_s == pytest.approx(3 * 3e-9 * MIB / 2, rel=0.1)
    assert many_s == pytest.approx((64 + 2) * 3e-9 * MIB / 2, rel=0.1)


def test_buffers_beyond_the_caches_cost_half_a_copy_more_for_reading_and_for_writing():
    memory = HostMemory("h", (MIB, 64 * MIB), (1e-9, 5e-9), (1e-9,) * 2, (1e-9, 5e-9), (1e-9, 5e-9), 2)
    program = made(direct, "all_gather", 2)
    # An own block of 32 MiB and one that is fetched: input and output are 48 MiB on average of both ends.
    assert host_timing(program, host(2), 512, memory).time_s < 5e-6
    assert host_timing(program, host(2), 64 * MIB, memory).time_s == pytest.approx(
        2 * 64 * MIB * 5e-9, rel=0.03
    )


def test_where_ranks_may_not_read_each_others_memory_everything_goes_through_slots():
    program = made(direct, "all_gather", 2)
    memory = replace(flat(2), fetch_s_per_byte=(), written_fetch_s_per_byte=())
    size = 256 << 10
    # An own block, one into a slot, one out of it.
    assert host_timing(program, host(2), size, memory).time_s == pytest.approx(3e-9 * size, rel=0.02)


def test_a_deadlock_takes_for_ever():
    """Every step waits for itself."""
    program = made(direct, "all_to_all", 2)
    wait_tb, wait_step = program.wait_tb.copy(), program.wait_step.copy()
    wait_tb[:] = program.tb_of
    wait_step[:] = [step - program.tb_start[program.tb_of[step]] for step in range(program.steps)]
    broken = replace(program, wait_tb=wait_tb, wait_step=wait_step)
    assert host_timing(broken, host(2), MIB, flat(2)).time_s == float("inf")


@given(st.integers(1, 4), st.integers(0, 24))
def test_the_parts_are_the_time_and_more_cores_never_harm_a_ring(cores, doublings):
    program, size = lower(ring_all_reduce(4)), 1 << doublings
    found = host_timing(program, host(4), size, flat(cores))
    assert sum(found.spent.values()) == pytest.approx(found.time_s)
    assert found.time_s <= host_timing(program, host(4), size, flat(1)).time_s * 1.000001
