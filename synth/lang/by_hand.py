"""Checks of threadblocks that the author assigns (GC3 Sec. 5.4) against the limits of a threadblock."""

from __future__ import annotations

import numpy as np

from probes.base import DataError, Indices
from synth.compiler import ChunkDag

__all__ = ["require_threadblocks"]

# The highest number of a threadblock or channel that an author may assign, well above what programs use.
_MOST = 255


def require_threadblocks(dag: ChunkDag) -> None:
    """Raise DataError, naming the statements, if the assigned threadblocks or channels break a rule.

    Either all statements assign threadblocks or none does. A threadblock sends to one rank and receives from
    one, on one channel. A channel between two ranks belongs to one threadblock on each side.
    """
    for argument, column in (("sendtb", dag.send_tb), ("recvtb", dag.recv_tb), ("ch", dag.channel)):
        for row in np.flatnonzero((column < -1) | (column > _MOST))[:1]:
            _refuse(dag, [row], f"{argument}: expected 0 to {_MOST}, found {column[row]}")
    if not dag.by_hand:
        return
    remote = dag.src_rank != dag.dst_rank
    lacking = remote & ((dag.send_tb < 0) | (dag.recv_tb < 0)) | (
        ~remote & (np.maximum(dag.send_tb, dag.recv_tb) < 0)
    )
    for row in np.flatnonzero(lacking)[:1]:
        _refuse(dag, [row], "has no threadblock, though other statements assign theirs: all must, or none")
    channel = np.maximum(dag.channel, 0)
    row = np.flatnonzero(remote)
    ends = (
        ("sends to", dag.src_rank, dag.send_tb, dag.dst_rank),
        ("receives from", dag.dst_rank, dag.recv_tb, dag.src_rank),
    )
    for verb, rank, tb, peer in ends:
        block = np.stack([rank[row], tb[row]], axis=1)
        _same(dag, row, block, peer[row], f"threadblock {{1}} of rank {{0}} {verb} rank {{a}} and rank {{b}}")
        link = np.stack([rank[row], peer[row], channel[row]], axis=1)
        words = f"rank {{0}} {verb} rank {{1}} on channel {{2}} in threadblocks {{a}} and {{b}}"
        _same(dag, row, link, tb[row], words)
    both = np.concatenate([row, row])
    block = np.concatenate([np.stack([rank[row], tb[row]], axis=1) for _, rank, tb, _ in ends])
    words = "threadblock {1} of rank {0} uses channels {a} and {b}"
    _same(dag, both, block, channel[both], words)


def _same(dag: ChunkDag, rows: Indices, keys: Indices, values: Indices, words: str) -> None:
    """Raise DataError unless rows with the same key have the same value."""
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    wrong = np.flatnonzero(values != values[first][group])
    if len(wrong):
        other = first[group[wrong[0]]]
        message = words.format(*keys[wrong[0]], a=values[other], b=values[wrong[0]])
        _refuse(dag, [rows[wrong[0]], rows[other]], message)


def _refuse(dag: ChunkDag, rows: list[int], problem: str) -> None:
    lines = [int(dag.line[row]) for row in rows]
    also = f" (the other statement is in line {lines[1]})" if len(lines) > 1 and lines[1] != lines[0] else ""
    raise DataError(f"{dag.source}:{lines[0]}", [problem + also])
