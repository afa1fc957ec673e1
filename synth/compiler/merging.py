"""Merging: messages of contiguous chunks between the same ranks become one operation.

Each row gets a level, higher than the levels of all rows that it depends on. So rows of one level that do the
same to adjacent slots of the same two ranks can become one row of several chunks, and no cycle arises. Sums
get the lowest possible level, which counts steps from the leaves of their trees. Copies get the highest
possible level, which counts steps to the leaves. A merged message starts once all its chunks are there, and
arrives as a whole. So merging costs time where chunks were forwarded one by one, but saves an instruction, a
signal and a wait per chunk.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from probes.base import Indices
from synth.compiler.chunk_dag import REDUCE, ChunkDag
from synth.kernels import compiled

__all__ = ["merged"]


def merged(dag: ChunkDag, most: int) -> ChunkDag:
    """Return the DAG with adjacent rows of one level merged, into rows of at most ``most`` chunks.

    O(slots touched + rows · log rows).
    """
    level = _levels(dag)
    same = np.stack(
        [
            level,
            dag.src_rank,
            dag.dst_rank,
            dag.op,
            dag.src_buffer,
            dag.dst_buffer,
            dag.with_buffer,
            dag.channel,
            dag.dst_slot - dag.src_slot,
            np.where(dag.op == REDUCE, dag.dst_slot - dag.with_slot, 0),
        ]
    )
    order = np.lexsort((dag.src_slot, *same[::-1]))
    follows = (same[:, order[1:]] == same[:, order[:-1]]).all(axis=0)
    follows &= dag.src_slot[order[1:]] == dag.src_slot[order[:-1]] + dag.count[order[:-1]]
    run = np.cumsum(np.concatenate([[True], ~follows])) - 1
    first = np.searchsorted(run, np.arange(run[-1] + 1)) if len(run) else run
    # A long run is cut into rows of at most ``most`` chunks; each row of a run has one chunk.
    piece = (np.arange(len(run)) - first[run]) // most
    heads = np.flatnonzero(np.concatenate([[True], (np.diff(run) > 0) | (np.diff(piece) != 0)]))
    group = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(order))))
    columns = {
        one.name: getattr(dag, one.name)[order[heads]] for one in fields(dag) if _is_column(dag, one.name)
    }
    columns["count"] = np.bincount(group, weights=dag.count[order]).astype(np.int64)
    if len(dag.starts):
        # A merged message starts when its last chunk could start, and ends when its last chunk ends.
        columns["starts"] = np.maximum.reduceat(dag.starts[order], heads)
        columns["ends"] = np.maximum.reduceat(dag.ends[order], heads)
    made = replace(dag, **columns)
    times = made.starts if len(made.starts) else np.zeros(len(heads), dtype=np.int64)
    rows = np.lexsort((times, level[order[heads]]))
    return replace(made, **{name: getattr(made, name)[rows] for name in columns})


def _is_column(dag: ChunkDag, name: str) -> bool:
    column = getattr(dag, name)
    return isinstance(column, np.ndarray) and len(column) == dag.operations and name != "group"


def _levels(dag: ChunkDag) -> Indices:
    """Return the level of each row; if a sum depends on a copy, copies get their lowest levels, too."""
    needs = dag.dependences()
    depth, height = _depths(needs.start, needs.before)
    sums = dag.op == REDUCE
    if (sums[needs.after] & ~sums[needs.before]).any():
        return depth
    above = int(depth[sums].max(initial=-1)) + 1 + int(height.max(initial=0))
    return np.where(sums, depth, above - height)


@compiled
def _depths(start: Indices, before: Indices) -> tuple[Indices, Indices]:
    """Return the lengths of the longest chains of dependences that end, and that begin, at each row.

    Each row must come after the rows that it depends on.
    """
    depth = np.zeros(len(start) - 1, dtype=np.int64)
    height = np.zeros(len(start) - 1, dtype=np.int64)
    for row in range(len(depth)):
        for at in range(start[row], start[row + 1]):
            depth[row] = max(depth[row], depth[before[at]] + 1)
    for row in range(len(depth) - 1, -1, -1):
        for at in range(start[row], start[row + 1]):
            height[before[at]] = max(height[before[at]], height[row] + 1)
    return depth, height
