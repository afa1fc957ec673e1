"""The passes in their order: chunk DAG, instances, instructions, fusion, sorting, threadblocks, waits."""

from __future__ import annotations

import numpy as np

from probes.base import Indices
from synth.compiler.chunk_dag import ChunkDag, replicated
from synth.compiler.fuse import fused, pairs
from synth.compiler.instruction_dag import InstructionDag, instructions_of
from synth.compiler.legality import require
from synth.compiler.numbering import awaited_first
from synth.compiler.rechunking import rechunked
from synth.compiler.sort import sorted_rows
from synth.compiler.switches import with_barriers
from synth.compiler.synchronize import emitted
from synth.compiler.threadblocks import MOST_CHANNELS, assigned, heads_of, lowest_channels
from synth.program import FIFO_DEPTH, Program, in_chunks
from synth.simulation import links_of, run

__all__ = ["compiled_program"]


def compiled_program(dag: ChunkDag, *, instances: int = 1, fuse: bool = True, grid: int = 0) -> Program:
    """Compile a chunk DAG into a program with ``instances`` parallel instances.

    With ``grid``, the program's buffers have that many chunks (`rechunked`).

    Fused instructions are split again if messages would overtake each other or waits form a cycle. The loop
    ends, because a program with nothing fused and each receive right after its send cannot deadlock even with
    one message per FIFO.
    """
    require("chunk dag", dag)
    dag = replicated(dag, instances)
    whole = with_barriers(instructions_of(rechunked(dag, grid) if grid else dag))
    require("instruction dag", whole)
    pair = pairs(whole) if fuse else np.full(whole.rows, -1, dtype=np.int64)
    adjacent = False
    while True:
        rows = fused(whole, pair)
        require("fused dag", rows)
        place = sorted_rows(rows, adjacent=adjacent)
        program, to_split = _placed(rows, place)
        if program is not None:
            require("program", program)
            return awaited_first(program)
        if adjacent:
            raise AssertionError("a program without fused instructions deadlocks")
        adjacent = not len(to_split)
        stays = np.ones(whole.rows, dtype=bool)
        stays[pair[pair >= 0]] = False
        pair[np.flatnonzero(stays)[to_split]] = -1
        if adjacent:
            pair[:] = -1


def _placed(rows: InstructionDag, place: Indices) -> tuple[Program | None, Indices]:
    """Return (the program, no rows), or (None, the fused rows to split).

    If all threadblocks of a cycle send first and fill their FIFOs, the blocked messages move to the next
    channel. Each chunk counts as a message, because runtimes cut steps of several large chunks.
    """
    lowest = lowest_channels(rows)
    while True:
        blocks, to_split = assigned(rows, place, lowest)
        if blocks is None:
            return None, to_split
        program, row_of = emitted(rows, place, blocks)
        cut, step_of = in_chunks(program)
        order, reached, _ = run(links_of(cut), FIFO_DEPTH)
        if len(order) == cut.steps:
            return program, to_split
        stuck = np.flatnonzero(reached < cut.tb_start[1:])
        blocked = row_of[step_of[reached[stuck]]]
        blocked = blocked[(blocked >= 0) & (rows.receiver[blocked] >= 0)]
        free = blocked[rows.channel[blocked] < 0]
        channel = blocks.channel[blocks.block[free]]
        if rows.dag.by_hand or not len(free) or channel.max() + rows.dag.instances >= MOST_CHANNELS:
            inside = np.isin(blocks.block, stuck) & (rows.sender >= 0) & (rows.receiver >= 0)
            return None, np.flatnonzero(inside)
        lowest[heads_of(rows)[free]] = channel + 1
