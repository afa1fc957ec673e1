"""The chunks that each step and each message of a program carries.

A run can leave out some chunks: it then skips the steps and messages that carry only those.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from exec.program.move import Move
from probes.base import Indices, Mask
from synth.program import INPUT, READS_SRC, WRITES_DST, Program

__all__ = ["Carried", "Contents", "contents_of"]


@dataclass(frozen=True, eq=False)
class Carried:
    """The chunks of ``count`` steps (or messages): step ``owner[n]`` carries ``chunk[n]``."""

    count: int
    owner: Indices
    chunk: Indices

    def within(self, chunks: Mask) -> Mask:
        """Return for each step or message whether all its chunks are in the mask ``chunks``."""
        others = np.bincount(self.owner, ~chunks[self.chunk], minlength=self.count)
        return np.asarray(others == 0)


@dataclass(frozen=True, eq=False)
class Contents:
    """The chunks of each step, by its row in the program, and of the messages of each connection."""

    steps: Carried
    messages: dict[int, Carried]


def contents_of(program: Program, moves: list[Move]) -> Contents:
    """Follow each chunk from its input slots through the program; O(slots that the steps touch)."""
    collective = program.collective
    chunk_at: dict[tuple[int, int, int], int] = {}
    for rank in range(program.ranks):
        for slot, chunk in enumerate(np.flatnonzero(collective.sources.has(rank)).tolist()):
            chunk_at[rank, INPUT, slot] = chunk
    columns = (program.src_buffer, program.src_slot, program.dst_buffer, program.dst_slot, program.count)
    src_buffer, src_slot, dst_buffer, dst_slot, count = (column.tolist() for column in columns)
    ops = program.op.tolist()
    under_way: defaultdict[int, deque[list[int]]] = defaultdict(deque)
    sent: defaultdict[int, list[list[int]]] = defaultdict(list)
    steps: list[list[int]] = [[] for _ in ops]
    for move in moves:
        step, rank = move.step, move.rank
        slots = range(count[step])
        carried: list[int] = []
        if move.from_ >= 0:
            carried = under_way[move.from_].popleft()
        elif READS_SRC[ops[step]]:
            carried = [chunk_at[rank, src_buffer[step], src_slot[step] + at] for at in slots]
        if WRITES_DST[ops[step]]:
            for at, chunk in zip(slots, carried, strict=True):
                chunk_at[rank, dst_buffer[step], dst_slot[step] + at] = chunk
        if move.to >= 0:
            under_way[move.to].append(carried)
            sent[move.to].append(carried)
        steps[step] = carried
    return Contents(_columns(steps), {connection: _columns(each) for connection, each in sent.items()})


def _columns(rows: list[list[int]]) -> Carried:
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return Carried(len(rows), owner, np.array([chunk for row in rows for chunk in row], dtype=np.int64))
