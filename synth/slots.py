"""Where the chunks of a collective lie in the buffers of its ranks, and what shares memory in place."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from probes.columns import Ints
from synth.collective import Collective
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["Memory", "Slots"]


class Slots:
    """The slot of every chunk: O(chunks) memory, whatever the number of ranks."""

    def __init__(self, collective: Collective) -> None:
        self.ranks = collective.ranks
        self._source, self._target = collective.source_of(), collective.target_of()
        self.source: list[int] = self._source.tolist()
        self.target: list[int] = self._target.tolist()
        self._input_slot = _numbered(self._source)
        self._output_slot = _numbered(self._target)

    def input_of(self, rank: int, chunk: int) -> int:
        """The slot of ``chunk`` in ``rank``'s input, or -1."""
        return self._input_slot[chunk] if self.source[chunk] in (-1, rank) else -1

    def output_of(self, rank: int, chunk: int) -> int:
        """The slot of ``chunk`` in ``rank``'s output, or -1."""
        return self._output_slot[chunk] if self.target[chunk] in (-1, rank) else -1

    def input_chunks(self, rank: int) -> Ints:
        """The chunks in ``rank``'s input, slot by slot."""
        return _chunks_of(self._source, rank)

    def output_chunks(self, rank: int) -> Ints:
        """The chunks in ``rank``'s output, slot by slot."""
        return _chunks_of(self._target, rank)

    @cached_property
    def input_sizes(self) -> list[int]:
        """For each rank how many slots its input has."""
        return _sizes(self._source, self.ranks)

    @cached_property
    def output_sizes(self) -> list[int]:
        """For each rank how many slots its output has."""
        return _sizes(self._target, self.ranks)


class Memory:
    """All slots of all ranks numbered through; in place, an output slot is the input slot it shares.

    ``first[rank][buffer]`` is the number of slot 0, ``same[number]`` the slot whose memory it is.
    """

    def __init__(self, program: Program, *, in_place: bool) -> None:
        self.slots = slots = Slots(program.collective)
        self.size = [
            (slots.input_sizes[rank], slots.output_sizes[rank], program.scratch_chunks[rank])
            for rank in range(program.ranks)
        ]
        ends = np.cumsum([0, *(length for sizes in self.size for length in sizes)]).tolist()
        self.first: list[tuple[int, ...]] = [
            tuple(ends[3 * rank : 3 * rank + 3]) for rank in range(program.ranks)
        ]
        self.total: int = ends[-1]
        self.same: list[int] = list(range(self.total))
        if in_place:
            self._alias()

    def _alias(self) -> None:
        for rank, first in enumerate(self.first):
            for slot, chunk in enumerate(self.slots.output_chunks(rank).tolist()):
                shared = self.slots.input_of(rank, chunk)
                if shared >= 0:
                    self.same[first[OUTPUT] + slot] = first[INPUT] + shared

    def touched(self, rank: int, buffer: int, slot: int, count: int) -> list[int]:
        """The memory of ``count`` slots from ``slot`` on."""
        start = self.first[rank][buffer] + slot
        return self.same[start : start + count]

    def holds(self, rank: int, buffer: int, slot: int, count: int) -> bool:
        """Whether the buffer has all of these slots."""
        return slot >= 0 and slot + count <= self.size[rank][buffer]

    def describe(self, rank: int, number: int) -> str:
        """A slot as ``i[3]``."""
        buffer = max(b for b in (INPUT, OUTPUT, SCRATCH) if self.first[rank][b] <= number)
        return f"{'ios'[buffer]}[{number - self.first[rank][buffer]}]"


def _numbered(rank_of: Ints) -> list[int]:
    """For each chunk its place among the chunks of the same rank (of all, where every rank has it)."""
    order = np.argsort(rank_of, kind="stable")
    keys = rank_of[order]
    starts = np.searchsorted(keys, keys)
    slot = np.empty(len(rank_of), dtype=np.int64)
    slot[order] = np.arange(len(rank_of)) - starts
    numbers: list[int] = slot.tolist()
    return numbers


def _chunks_of(rank_of: Ints, rank: int) -> Ints:
    return np.flatnonzero((rank_of == rank) | (rank_of < 0)).astype(np.int32)


def _sizes(rank_of: Ints, ranks: int) -> list[int]:
    sizes: list[int] = (np.bincount(rank_of[rank_of >= 0], minlength=ranks) + (rank_of < 0).sum()).tolist()
    return sizes
