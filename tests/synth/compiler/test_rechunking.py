"""Rechunking: the same operations on ranges of chunks, for each number of chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from exec.runtimes import try_in_runtime
from synth.check import judge
from synth.collective import collective
from synth.compiler import lower
from synth.compiler.lowering import chunk_dag_of
from synth.methods import doubling, greedy, ring
from synth.msccl import read_xml, write_xml
from synth.networks import family
from synth.schedules import Schedule
from synth.scheduling import block_exchange

RING = family("ring:5", [1e-6], [1e9])
CLIQUE = family("fully_connected:6", [1e-6], [1e9])
SCHEDULES = {
    "greedy": greedy.synthesize(RING, collective("all_reduce", 5, 5), 1 << 10),
    "ring": ring.synthesize(RING, collective("all_reduce", 5, 10), 1 << 10),
    "halving and doubling": doubling.halving_doubling(CLIQUE, collective("all_reduce", 6, 12), 1 << 10),
    "sums kept in scratch": block_exchange.synthesize(CLIQUE, collective("all_reduce", 6, 3), 1 << 10),
    "broadcast": greedy.synthesize(RING, collective("broadcast", 5, 7, root=2), 1 << 10),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@given(more=st.integers(0, 40), instances=st.integers(1, 2), most_chunks=st.sampled_from([1, 4]))
def test_any_larger_number_of_chunks_does_the_same(
    schedule: Schedule, more: int, instances: int, most_chunks: int
) -> None:
    least = schedule.collective.chunks * instances
    options = {"instances": instances, "most_chunks": most_chunks, "fuse": most_chunks == 1}
    plain = lower(schedule, **options)
    program = lower(schedule, grid=least + more, **options)
    assert program.collective.chunks == least + more
    assert judge(program) == []
    assert program.in_place == plain.in_place
    longest = -(-(least + more) // least)
    assert program.count.max() <= longest * plain.count.max()


def test_each_chunk_keeps_its_share_of_the_buffer() -> None:
    schedule = SCHEDULES["greedy"]
    program = lower(schedule, grid=16)
    assert sorted(set(program.count[program.op > 0].tolist())) == [3, 4]
    assert sorted({int(slot) for slot in program.dst_slot if slot >= 0}) == [0, 3, 6, 9, 12]


def test_a_file_on_a_finer_grid_runs_right() -> None:
    read = read_xml(write_xml(lower(SCHEDULES["sums kept in scratch"], grid=32)), "exchange.xml")
    assert try_in_runtime(read).wrong == 0


def test_scratch_is_as_long_as_the_chunks_that_it_holds() -> None:
    dag = chunk_dag_of(SCHEDULES["sums kept in scratch"])
    program = lower(SCHEDULES["sums kept in scratch"], grid=48)
    assert max(dag.scratch_chunks) > 0
    assert program.scratch_chunks == tuple(16 * size for size in dag.scratch_chunks)
