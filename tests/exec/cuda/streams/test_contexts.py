"""Transmission contexts on streams that run in any order which their events allow."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import COMPILER
from drawn_examples import drawn
from host_streams import HostStreams, buffers_of
from hypothesis import given, settings, strategies as st
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.encode import encoded
from exec.cuda.streams.contexts import Role, StreamContexts, role_of
from exec.cuda.streams.transports import PeerIn, PeerOut
from exec.launcher.run import World, run_ranks
from exec.program import dtype_of, expected_output
from exec.program.layout import Layout
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.lang.algorithm_file import compiled_algorithm
from synth.program import OUTPUT

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")
ROOT = Path(__file__).parents[4]


class Told:
    """Notices within one process: one end counts, the other looks."""

    def __init__(self, mine, others):
        self.mine, self.others = mine, others

    def tell(self):
        self.mine[0] += 1

    def seen(self):
        return self.others[0]


def ends_of(table, streams, memory):
    """The ends of every connection, all in this process."""
    outgoing, incoming = {}, {}
    for fifo, room in enumerate(table.room.tolist()):
        memory.append(np.zeros((room, table.place_bytes), np.uint8))
        places = [place.ctypes.data for place in memory[-1]]
        full, free = ([streams.event() for _ in places] for _ in range(2))
        put, taken = [0], [0]
        outgoing[fifo] = PeerOut(streams, places, full, free, Told(put, taken))
        incoming[fifo] = PeerIn(streams, places, full, free, Told(taken, put))
    return outgoing, incoming


def carried_out(table, dtype, redop, seed, most=200_000):
    """Run all ranks in turns with their streams; (outputs, lines of who waits where it got stuck)."""
    streams, memory = HostStreams(dtype, redop, seed), []
    choose = random.Random(seed)
    outgoing, incoming = ends_of(table, streams, memory)
    ranks = range(table.layout.program.ranks)
    every = [StreamContexts(table, rank, streams, outgoing, incoming) for rank in ranks]
    for _ in range(2):
        buffers = [buffers_of(table.layout, rank, dtype, redop) for rank in ranks]
        for contexts, own in zip(every, buffers, strict=True):
            contexts.start([each.ctypes.data for each in own])
        done, tries = [False] * len(every), 0
        while not all(done):
            rank = choose.choice(ranks)
            _, done[rank] = every[rank].advance()
            streams.pump(choose.randrange(4))
            tries += 1
            if tries == most:
                return [], [line for contexts in every for line in contexts.waiting()]
        streams.synchronize()
    return [own[OUTPUT] for own in buffers], []


def wrong(program, count, dtype="float32", redop="sum", seed=0, tile_bytes=256):
    layout = Layout(program, count)
    table = encoded(layout, dtype_of(dtype).itemsize, tile_bytes=tile_bytes)
    outputs, stuck = carried_out(table, dtype, redop, seed)
    assert stuck == []
    return sum(
        int(np.count_nonzero(output != expected_output.expected(layout, rank, np.dtype(dtype), redop)))
        for rank, output in enumerate(outputs)
    )


@settings(max_examples=drawn(40))
@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 4),
    chunks=st.integers(1, 3),
    count=st.integers(1, 120),
    seed=st.integers(0, 1 << 30),
    redop=st.sampled_from(["sum", "max"]),
)
def test_random_programs_are_exact_in_any_order(kind, ranks, chunks, count, seed, redop):
    program = lower(random_schedule(kind, ranks, chunks, seed))
    assert wrong(program, count, "int32", redop, seed, tile_bytes=64) == 0


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_exact(example):
    program, _ = compiled_algorithm(str(example))
    assert wrong(program, 203, tile_bytes=1024) == 0


def test_a_missing_send_names_who_waits():
    program = lower(ring_all_reduce(3), fuse=False)
    table = encoded(Layout(program, 30), 4)
    steps = table.steps.copy()
    sends = np.flatnonzero(steps[:, 0] & 16)
    steps[sends[0], 0] = 0
    _, stuck = carried_out(replace(table, steps=steps), "float32", "sum", 0, most=3000)
    assert any("waits for a message from rank" in line for line in stuck)
    assert all(line.startswith("rank ") and " step " in line for line in stuck)


@pytest.mark.mpi
def test_messages_between_processes(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "helpers"))
    schedules = (ring_all_reduce(3), random_schedule("all_to_all", 3, 2, 5))
    requests = [(lower(schedule), 700, 256) for schedule in schedules]
    assert run_ranks("host_streams:contexts_task", requests, World(3)) == [0, 0]


def test_roles_say_what_a_rank_does():
    def roles(program):
        table = encoded(Layout(program, 12), 4)
        return [role_of(table, rank) for rank in range(program.ranks)]

    assert roles(lower(ring_all_reduce(3))) == [Role(True, True, True, True)] * 3
    # Nothing is reduced and nothing fused: copies are enough.
    program = lower(random_schedule("broadcast", 3, 1, 2), fuse=False)
    found = roles(program)
    assert found.pop(program.collective.root) == Role(True, False, False, True)
    assert all(role.receives and not role.kernel for role in found)
