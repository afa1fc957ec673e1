"""Memory cells: one number for every slot of every rank, for the judge, the tracer and the compiler.

Cells are numbered rank by rank; within a rank, input comes first, then output, then scratch. In place,
``same`` maps the cell of an output slot to the cell of the input slot whose memory it shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices, offsets, spans
from synth.collective import Collective
from synth.program import INPUT, OUTPUT, Program
from synth.rank_sets import RankSets

__all__ = ["Cells", "Side", "cells_of", "memory_of", "side_of"]


@dataclass(frozen=True, eq=False)
class Side:
    """All input slots, or all output slots; ``sizes`` counts the slots of each rank.

    Row n is slot ``slot[n]`` of rank ``rank[n]`` and holds chunk ``chunk[n]``.
    """

    rank: Indices
    slot: Indices
    chunk: Indices
    sizes: Indices


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all buffers: ``first[rank, buffer]`` is the cell of slot 0, ``size`` counts the slots.

    Cell n uses the memory of cell ``same[n]``. ``outputs`` has no rows if the collective is unknown.
    """

    first: Indices
    size: Indices
    same: Indices
    inputs: Side
    outputs: Side

    @property
    def total(self) -> int:
        return len(self.same)

    def touched(self, rank: int, buffer: int, slot: int, count: int) -> list[int]:
        """Return the cells whose memory is used by ``count`` slots from ``slot`` on."""
        start = self.first[rank, buffer] + slot
        found: list[int] = self.same[start : start + count].tolist()
        return found

    def name(self, cell: int) -> str:
        """Return the name of a cell within its rank, such as ``i[3]``."""
        flat = self.first.ravel()
        at = int(np.searchsorted(flat, cell, side="right")) - 1
        return f"{'ios'[at % 3]}[{cell - flat[at]}]"


def side_of(sets: RankSets, ranks: int) -> Side:
    """Return the slots of all ranks; a rank's slots hold its chunks in rising order. O(slots)."""
    by_group = np.argsort(sets.group, kind="stable")
    per_group = np.bincount(sets.group, minlength=len(sets.start) - 1)
    first = offsets(per_group)
    owner = np.repeat(np.arange(len(sets.start) - 1), np.diff(sets.start))
    length = per_group[owner]
    rank = np.repeat(sets.rank, length)
    chunk = by_group[spans(first[:-1][owner], length)]
    order = np.lexsort((chunk, rank))
    rank, chunk = rank[order], chunk[order]
    sizes = np.bincount(rank, minlength=ranks)
    slot = spans(np.zeros_like(sizes), sizes)
    return Side(rank, slot, chunk, sizes)


def cells_of(program: Program, *, in_place: bool) -> Cells:
    """Return the cells of a program, in place or out of place."""
    if program.input_chunks:
        inputs, outputs = _numbered(program.input_chunks), _nothing(program.output_chunks)
        return _lay_out(inputs, outputs, program.scratch_chunks)
    return memory_of(program.collective, program.scratch_chunks, in_place=in_place)


def memory_of(collective: Collective, scratch_chunks: tuple[int, ...], *, in_place: bool) -> Cells:
    """Return the cells of a collective, in place or out of place; ``scratch_chunks`` is per rank."""
    inputs = side_of(collective.sources, collective.ranks)
    outputs = side_of(collective.targets, collective.ranks)
    cells = _lay_out(inputs, outputs, scratch_chunks)
    if in_place:
        _share(collective, cells.first, cells.same, inputs, outputs)
    return cells


def _lay_out(inputs: Side, outputs: Side, scratch_chunks: tuple[int, ...]) -> Cells:
    size = np.stack([inputs.sizes, outputs.sizes, np.array(scratch_chunks, dtype=np.int64)], axis=1)
    ends = offsets(size.ravel())
    return Cells(ends[:-1].reshape(-1, 3), size, np.arange(ends[-1]), inputs, outputs)


def _share(collective: Collective, first: Indices, same: Indices, inputs: Side, outputs: Side) -> None:
    if collective.in_place:
        chunks = collective.chunks
        key_in = inputs.rank * np.int64(chunks) + inputs.chunk
        key_out = outputs.rank * np.int64(chunks) + outputs.chunk
        at = np.minimum(np.searchsorted(key_in, key_out), len(key_in) - 1)
        shared = key_in[at] == key_out
        to, source = np.flatnonzero(shared), at[shared]
    else:
        # Output slot n of a rank shares the memory of its input slot n, whatever chunks they hold.
        to = np.flatnonzero(outputs.slot < inputs.sizes[outputs.rank])
        source = offsets(inputs.sizes)[outputs.rank[to]] + outputs.slot[to]
    same[first[outputs.rank[to], OUTPUT] + outputs.slot[to]] = (
        first[inputs.rank[source], INPUT] + inputs.slot[source]
    )


def _numbered(sizes: tuple[int, ...]) -> Side:
    """Return the inputs of an unknown collective: every slot holds a chunk of its own."""
    lengths = np.array(sizes, dtype=np.int64)
    rank = np.repeat(np.arange(len(lengths)), lengths)
    chunk = np.arange(len(rank))
    return Side(rank, spans(np.zeros_like(lengths), lengths), chunk, lengths)


def _nothing(sizes: tuple[int, ...]) -> Side:
    none = np.zeros(0, dtype=np.int64)
    return Side(none, none, none, np.array(sizes, dtype=np.int64))
