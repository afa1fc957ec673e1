"""Synchronization: each instruction waits for its dependences in other threadblocks.

A step carries one wait, so its other waits go to nops before it. A wait is left out if an earlier wait, of
this threadblock or of the awaited threadblock, already implies it (GC3 Sec. 5.2).
"""

from __future__ import annotations

import numpy as np

from probes.base import Indices, bytes_of, ints, offsets
from synth.compiler.instruction_dag import InstructionDag
from synth.compiler.threadblocks import Blocks
from synth.kernels import compiled
from synth.program import Program

__all__ = ["emitted"]


def emitted(dag: InstructionDag, place: Indices, blocks: Blocks) -> tuple[Program, Indices]:
    """Return (program, DAG row of each step or -1 for a nop).

    O(rows + waits · threadblocks of a rank); a nop is an added step that only waits.
    """
    order = np.argsort(place, kind="stable")
    by_rank = order[np.argsort(dag.rank[order], kind="stable")]
    needs = dag.needs
    foreign = blocks.block[needs.after] != blocks.block[needs.before]
    awaited = np.zeros(dag.rows, dtype=bool)
    awaited[needs.before[foreign]] = True
    first = np.searchsorted(blocks.rank, np.arange(dag.dag.collective.ranks + 1))
    row, block, wait = _emit(
        by_rank, dag.rank, needs.start, needs.before, blocks.block, place, awaited, first, len(foreign)
    )
    # Rows of each threadblock in order; nops are -1.
    order = np.argsort(block, kind="stable")
    row, block, wait = row[order], block[order], wait[order]
    start = offsets(np.bincount(block, minlength=len(blocks.rank)))
    step_of = np.full(dag.rows + 1, -1, dtype=np.int64)
    real = np.flatnonzero(row >= 0)
    step_of[row[real]] = real - start[block[real]]
    waits = wait >= 0

    def column(values: Indices, nothing: int) -> Indices:
        return np.where(row >= 0, values[row], nothing)

    program = Program(
        name=dag.dag.name,
        collective=dag.dag.collective,
        protocol=dag.dag.protocol,
        scratch_chunks=dag.dag.scratch_chunks,
        tb_rank=ints(blocks.rank),
        tb_send=ints(blocks.send),
        tb_recv=ints(blocks.recv),
        tb_channel=ints(blocks.channel),
        tb_start=ints(start),
        op=bytes_of(column(dag.op, 0)),
        src_buffer=bytes_of(column(dag.src_buffer, 0)),
        src_slot=ints(column(dag.src_slot, -1)),
        dst_buffer=bytes_of(column(dag.dst_buffer, 0)),
        dst_slot=ints(column(dag.dst_slot, -1)),
        count=ints(column(dag.count, 1)),
        wait_tb=ints(np.where(waits, blocks.block[wait], -1)),
        wait_step=ints(np.where(waits, step_of[wait], -1)),
        out_of_place=dag.dag.out_of_place,
        in_place=dag.dag.in_place,
        source=dag.dag.source,
        line=ints(column(dag.line, 0)) if dag.dag.source else ints([]),
        turn=ints(_turns(row, place)) if len(dag.when) else ints([]),
        group=ints(dag.dag.group),
    )
    return program, row


def _turns(row: Indices, place: Indices) -> Indices:
    """Return each step's place in the instruction order; a nop has the place of the next real step."""
    real = np.flatnonzero(row >= 0)
    served = real[np.searchsorted(real, np.arange(len(row)))] if len(real) else real
    turns: Indices = place[row[served]]
    return turns


@compiled
def _emit(
    order: Indices,
    rank: Indices,
    start: Indices,
    before: Indices,
    block: Indices,
    place: Indices,
    awaited: Indices,
    first: Indices,
    edges: int,
) -> tuple[Indices, Indices, Indices]:
    rows = len(order)
    out_row = np.empty(rows + edges, dtype=np.int64)
    out_block = np.empty(rows + edges, dtype=np.int64)
    out_wait = np.empty(rows + edges, dtype=np.int64)
    size = 0
    snapshot = np.full(rows, -1, dtype=np.int64)
    low = 0
    while low < rows:
        here = rank[order[low]]
        base, blocks = first[here], first[here + 1] - first[here]
        high, wanted = low, 0
        while high < rows and rank[order[high]] == here:
            if awaited[order[high]]:
                snapshot[order[high]] = wanted
                wanted += 1
            high += 1
        known = np.full((blocks, blocks), -1, dtype=np.int64)
        seen = np.empty((wanted, blocks), dtype=np.int64)
        for at in range(low, high):
            row = order[at]
            mine = block[row] - base
            last = -1
            while True:
                # The latest dependence is awaited first, because its wait may imply the other waits.
                chosen = -1
                for edge in range(start[row], start[row + 1]):
                    other = before[edge]
                    open_ = block[other] != block[row] and known[mine, block[other] - base] < place[other]
                    if open_ and (chosen < 0 or place[other] > place[chosen]):
                        chosen = other
                if chosen < 0:
                    break
                for k in range(blocks):
                    if seen[snapshot[chosen], k] > known[mine, k]:
                        known[mine, k] = seen[snapshot[chosen], k]
                if last >= 0:
                    out_row[size], out_block[size], out_wait[size] = -1, block[row], last
                    size += 1
                last = chosen
            out_row[size], out_block[size], out_wait[size] = row, block[row], last
            size += 1
            if awaited[row]:
                for k in range(blocks):
                    seen[snapshot[row], k] = known[mine, k]
                seen[snapshot[row], mine] = place[row]
        low = high
    return out_row[:size], out_block[:size], out_wait[:size]
