"""A finer grid of chunks, so that a buffer whose size is no multiple of the chunks of a program can be used.

24 ranks mostly share a buffer out in multiples of 24 chunks, and no power of two is a multiple of 24. On a
grid of 512 chunks, each of 24 old chunks is a range of 21 or 22 new ones, which moves as a whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import Indices, UsageError, offsets
from synth.compiler.chunk_dag import ChunkDag
from synth.program import SCRATCH

__all__ = ["rechunked"]


def rechunked(dag: ChunkDag, chunks: int) -> ChunkDag:
    """Return the DAG with its buffers cut into ``chunks`` chunks, of which each old one is a range.

    With n for m chunks, old chunk i begins at n · i / m, rounded down. Slot i of input and output must be
    chunk i on all ranks. Raises UsageError if a scratch slot holds chunks that differ in length.
    O(operations + scratch slots).
    """
    first = np.arange(dag.collective.chunks + 1) * chunks // dag.collective.chunks
    chunk = _chunks(dag)
    scratch = [
        offsets(np.diff(first)[held].astype(np.int64))
        for held in _held_in_scratch(dag, chunk, np.diff(first))
    ]
    start = np.concatenate([[0], np.cumsum([len(one) for one in scratch])])[:-1]
    places = np.concatenate([*scratch, np.zeros(1, dtype=np.int64)]).astype(np.int64)

    def moved(side: str, rank: Indices) -> Indices:
        slot = getattr(dag, f"{side}_slot")
        in_scratch = getattr(dag, f"{side}_buffer") == SCRATCH
        return np.where(
            in_scratch,
            places[np.where(in_scratch, start[rank] + slot, 0)],
            first[np.where(in_scratch, 0, slot)],
        )

    return replace(
        dag,
        collective=replace(dag.collective, chunks=chunks),
        scratch_chunks=tuple(int(one[-1]) for one in scratch),
        src_slot=moved("src", dag.src_rank),
        dst_slot=moved("dst", dag.dst_rank),
        with_slot=moved("with", dag.dst_rank),
        count=first[chunk + dag.count] - first[chunk],
    )


def _chunks(dag: ChunkDag) -> Indices:
    """Return the first chunk of each operation; operands in scratch hold what was written there before."""
    found = np.where(
        dag.src_buffer != SCRATCH,
        dag.src_slot,
        np.where(
            dag.dst_buffer != SCRATCH, dag.dst_slot, np.where(dag.with_buffer != SCRATCH, dag.with_slot, -1)
        ),
    )
    held: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero((dag.src_buffer == SCRATCH) | (dag.dst_buffer == SCRATCH)).tolist():
        if found[row] < 0:
            found[row] = held[int(dag.src_rank[row]), int(dag.src_slot[row])]
        if dag.dst_buffer[row] == SCRATCH:
            for number in range(int(dag.count[row])):
                held[int(dag.dst_rank[row]), int(dag.dst_slot[row]) + number] = int(found[row]) + number
    return found


def _held_in_scratch(dag: ChunkDag, chunk: Indices, lengths: Indices) -> list[Indices]:
    """Return for each rank a chunk that each scratch slot holds; all that it ever holds have one length."""
    held = [np.full(size, -1, dtype=np.int64) for size in dag.scratch_chunks]
    for row in np.flatnonzero(dag.dst_buffer == SCRATCH).tolist():
        rank, slot, count = int(dag.dst_rank[row]), int(dag.dst_slot[row]), int(dag.count[row])
        new = np.arange(chunk[row], chunk[row] + count)
        old = held[rank][slot : slot + count]
        if (lengths[np.where(old < 0, new, old)] != lengths[new]).any():
            raise UsageError(
                f"rank {rank} keeps chunks of different lengths in scratch slots {slot} and after"
            )
        held[rank][slot : slot + count] = new
    return [np.maximum(one, 0) for one in held]
