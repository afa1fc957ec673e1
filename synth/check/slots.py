"""The judge's numbering of slots: the chunk that each slot holds, and the slots that share memory.

The input of a rank holds the chunks of which it is a source, its output the chunks that it wants, both in
rising order. In place, input and output share memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probes.base import Indices, offsets, spans
from synth.program import BUFFERS, INPUT, OUTPUT, Program
from synth.rank_sets import RankSets

__all__ = ["Slots", "slots_of"]


class _Filled(NamedTuple):
    """All input or output slots: ``slot[n]`` of ``rank[n]`` holds ``chunk[n]``; rank r has ``sizes[r]``."""

    rank: Indices
    slot: Indices
    chunk: Indices
    sizes: Indices


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of all ranks in one numbering.

    Buffer b of rank r has ``size[r, b]`` slots, from ``first[r, b]`` on. ``same[n]`` is the first slot that
    shares memory with slot n. If the collective is unknown, ``outputs`` has only sizes, and no chunks.
    """

    first: Indices
    size: Indices
    same: Indices
    inputs: _Filled
    outputs: _Filled

    def name(self, number: int) -> str:
        """Return the name of a slot within its rank, such as ``i[3]``."""
        flat = self.first.ravel()
        at = int(np.searchsorted(flat, number, side="right")) - 1
        return f"{BUFFERS[at % len(BUFFERS)]}[{number - flat[at]}]"

    def rank(self, number: int) -> int:
        """Return the rank whose memory a slot lies in."""
        flat = self.first.ravel()
        return (int(np.searchsorted(flat, number, side="right")) - 1) // len(BUFFERS)


def slots_of(program: Program, *, in_place: bool) -> Slots:
    """Return the slots of a program, in place or out of place; O(slots · log slots)."""
    collective, scratch = program.collective, np.array(program.scratch_chunks, dtype=np.int64)
    if program.input_chunks:
        # The collective is unknown: each input slot counts as a chunk of its own.
        sizes = np.array(program.input_chunks, dtype=np.int64)
        rank = np.repeat(np.arange(len(sizes)), sizes)
        inputs, none = _filled(rank, np.arange(len(rank)), len(sizes)), np.zeros(0, dtype=np.int64)
        outputs = _Filled(none, none, none, np.array(program.output_chunks, dtype=np.int64))
    else:
        inputs, outputs = (
            _filled(*_members(sets), collective.ranks) for sets in (collective.sources, collective.targets)
        )
    size = np.stack([inputs.sizes, outputs.sizes, scratch], axis=1)
    ends = offsets(size.ravel())
    first, same = ends[:-1].reshape(size.shape), np.arange(ends[-1])
    if in_place and collective.in_place:
        output_key, input_key = (side.rank * collective.chunks + side.chunk for side in (outputs, inputs))
        _, to, at = np.intersect1d(output_key, input_key, assume_unique=True, return_indices=True)
        source = first[inputs.rank[at], INPUT] + inputs.slot[at]
        same[first[outputs.rank[to], OUTPUT] + outputs.slot[to]] = source
    elif in_place:
        # The buffers share memory slot by slot, whatever they hold.
        to = np.flatnonzero(outputs.slot < inputs.sizes[outputs.rank])
        owner, slot = outputs.rank[to], outputs.slot[to]
        same[first[owner, OUTPUT] + slot] = first[owner, INPUT] + slot
    return Slots(first, size, same, inputs, outputs)


def _members(sets: RankSets) -> tuple[Indices, Indices]:
    """Return (rank, chunk) of all pairs, by rank and then by chunk."""
    sizes = np.diff(sets.start)[sets.group]
    rank = sets.rank[spans(sets.start[:-1][sets.group], sizes)].astype(np.int64)
    by_rank = np.argsort(rank, kind="stable")
    return rank[by_rank], np.repeat(np.arange(len(sizes)), sizes)[by_rank]


def _filled(rank: Indices, chunk: Indices, ranks: int) -> _Filled:
    sizes = np.bincount(rank, minlength=ranks)
    return _Filled(rank, np.arange(len(rank)) - offsets(sizes)[rank], chunk, sizes)
