"""Rechunking: cut the buffers of a program into more chunks, so that the chunks divide the buffer's size.

24 ranks mostly share a buffer out in multiples of 24 chunks, and no power of two is a multiple of 24. With
512 chunks, each of 24 old chunks is a range of 21 or 22 new ones, which moves as a whole.
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
    chunk, held = _chunks(dag, np.diff(first))
    # The new first slot of each scratch slot, and the end, of all ranks in a row.
    starts = [offsets(np.diff(first)[one]) for one in held]
    base = offsets([len(one) for one in starts])[:-1]
    places = np.concatenate(starts)

    def moved(side: str, rank: Indices) -> Indices:
        slot, in_scratch = getattr(dag, f"{side}_slot"), getattr(dag, f"{side}_buffer") == SCRATCH
        found = first[np.where(in_scratch, 0, slot)]
        found[in_scratch] = places[(base[rank] + slot)[in_scratch]]
        return found

    return replace(
        dag,
        collective=replace(dag.collective, chunks=chunks),
        scratch_chunks=tuple(int(one[-1]) for one in starts),
        src_slot=moved("src", dag.src_rank),
        dst_slot=moved("dst", dag.dst_rank),
        with_slot=moved("with", dag.dst_rank),
        count=first[chunk + dag.count] - first[chunk],
    )


def _chunks(dag: ChunkDag, lengths: Indices) -> tuple[Indices, list[Indices]]:
    """Return the first chunk of each operation, and for each rank a chunk of each of its scratch slots."""
    chunk = np.full(dag.operations, -1)
    for side in ("src", "dst", "with"):
        known = (getattr(dag, f"{side}_buffer") != SCRATCH) & (chunk < 0)
        chunk[known] = getattr(dag, f"{side}_slot")[known]
    held = [np.full(size, -1, dtype=np.int64) for size in dag.scratch_chunks]
    for row in np.flatnonzero((dag.src_buffer == SCRATCH) | (dag.dst_buffer == SCRATCH)).tolist():
        if chunk[row] < 0:
            chunk[row] = held[dag.src_rank[row]][dag.src_slot[row]]
        if dag.dst_buffer[row] != SCRATCH:
            continue
        rank, slot, count = int(dag.dst_rank[row]), int(dag.dst_slot[row]), int(dag.count[row])
        new, old = np.arange(chunk[row], chunk[row] + count), held[rank][slot : slot + count]
        if (lengths[np.where(old < 0, new, old)] != lengths[new]).any():
            raise UsageError(
                f"rank {rank} keeps chunks of different lengths in scratch slots {slot} and after"
            )
        held[rank][slot : slot + count] = new
    # A slot that nothing is written to may have any length.
    return chunk, [np.maximum(one, 0) for one in held]
