"""Programs with more threadblocks than MSCCL can await keep their meaning when these are renumbered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probes.base import ints
from synth.check import judge
from synth.compiler import lower, numbering
from synth.networks import family
from synth.program import Program
from synth.simulation import simulate_program
from synth.stages import synthesize

CHUNK_BYTES = 4096


@pytest.fixture
def program() -> Program:
    network = family("fully_connected:6", [1e-6], [1e9])
    found = synthesize(network, "all_reduce", chunk_bytes=CHUNK_BYTES, chunks=12, method="direct")
    return lower(found.listed)


def test_few_threadblocks_keep_their_numbers(program: Program) -> None:
    assert numbering.awaited_first(program) is program


def test_awaited_threadblocks_come_first(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "_MOST_AWAITED", 1)
    # Start from the other end, so that some awaited threadblock is behind one that is not.
    found = numbering.awaited_first(_backwards(program))
    awaited = np.zeros(found.threadblocks, dtype=bool)
    awaited[found.wait_tb[found.wait_tb >= 0]] = True
    for rank in range(found.ranks):
        mine = awaited[found.tb_rank == rank]
        assert not (np.diff(mine.astype(int)) > 0).any(), "an awaited threadblock follows a free one"
    assert awaited.any()


def test_renumbered_programs_do_the_same(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "_MOST_AWAITED", 1)
    before = _backwards(program)
    found = numbering.awaited_first(before)
    assert found.problems() == []
    assert judge(found) == []
    network = family("fully_connected:6", [1e-6], [1e9])
    assert np.isclose(
        simulate_program(found, network, CHUNK_BYTES).time_s,
        simulate_program(before, network, CHUNK_BYTES).time_s,
    )
    # Every threadblock is still there, with all its steps.
    assert sorted(_threadblocks(found)) == sorted(_threadblocks(before))


def _threadblocks(program: Program) -> list[tuple[object, ...]]:
    found = []
    for at in range(program.threadblocks):
        rows = slice(program.tb_start[at], program.tb_start[at + 1])
        names = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_step")
        steps = tuple(tuple(getattr(program, name)[rows].tolist()) for name in names)
        ends = (program.tb_rank[at], program.tb_send[at], program.tb_recv[at], program.tb_channel[at])
        found.append((*map(int, ends), steps))
    return found


def _backwards(program: Program) -> Program:
    """Return the program with the threadblocks of each rank in the opposite order."""
    order = np.lexsort((-np.arange(program.threadblocks), program.tb_rank))
    number = np.argsort(order)
    lengths = np.diff(program.tb_start)[order]
    rows = np.concatenate([np.arange(program.tb_start[at], program.tb_start[at + 1]) for at in order])
    steps = {
        name: getattr(program, name)[rows]
        for name in ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_step", "turn")
        if len(getattr(program, name))
    }
    waits = program.wait_tb[rows]
    return replace(
        program,
        **steps,
        **{name: getattr(program, name)[order] for name in ("tb_rank", "tb_send", "tb_recv", "tb_channel")},
        line=ints([]),
        tb_start=ints(np.concatenate([[0], np.cumsum(lengths)])),
        wait_tb=ints(np.where(waits >= 0, number[np.maximum(waits, 0)], -1)),
    )
