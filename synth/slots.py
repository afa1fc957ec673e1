"""Where the chunks of a collective lie in the buffers of its ranks, and what shares memory in place."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from probes.columns import Ints
from synth.collective import Collective
from synth.program import INPUT, OUTPUT, SCRATCH, Program
from synth.rank_sets import RankSets

__all__ = ["Memory", "Slots"]


class Slots:
    """The slot of every chunk, in the order of their numbers on each rank.

    O(chunks) memory where chunks of a buffer have one owner or all ranks for one, as in every collective
    of the table; else O(slots).
    """

    def __init__(self, collective: Collective) -> None:
        self.ranks = collective.ranks
        self._input = _Side(collective.sources, collective.ranks)
        self._output = _Side(collective.targets, collective.ranks)

    def input_of(self, rank: int, chunk: int) -> int:
        """The slot of ``chunk`` in ``rank``'s input, or -1."""
        return self._input.slot(rank, chunk)

    def output_of(self, rank: int, chunk: int) -> int:
        """The slot of ``chunk`` in ``rank``'s output, or -1."""
        return self._output.slot(rank, chunk)

    def input_chunks(self, rank: int) -> Ints:
        """The chunks in ``rank``'s input, slot by slot."""
        return np.flatnonzero(self._input.sets.has(rank)).astype(np.int32)

    def output_chunks(self, rank: int) -> Ints:
        """The chunks in ``rank``'s output, slot by slot."""
        return np.flatnonzero(self._output.sets.has(rank)).astype(np.int32)

    @cached_property
    def input_sizes(self) -> list[int]:
        """For each rank how many slots its input has."""
        sizes: list[int] = self._input.sets.per_rank(self.ranks).tolist()
        return sizes

    @cached_property
    def output_sizes(self) -> list[int]:
        """For each rank how many slots its output has."""
        sizes: list[int] = self._output.sets.per_rank(self.ranks).tolist()
        return sizes


class _Side:
    """The slots of all inputs, or of all outputs."""

    def __init__(self, sets: RankSets, ranks: int) -> None:
        self.sets = sets
        self._group: list[int] = sets.group.tolist()
        groups = len(sets.start) - 1
        self._members = [
            frozenset(sets.rank[sets.start[g] : sets.start[g + 1]].tolist()) for g in range(groups)
        ]
        used = np.flatnonzero(np.bincount(sets.group, minlength=groups))
        # Where no rank is in two groups, a chunk has the same slot on all ranks of its group.
        apart = sum(len(self._members[group]) for group in used) == len(
            frozenset().union(*(self._members[group] for group in used))
        )
        self._shared = _numbered(sets.group) if apart else None
        self._own = [] if apart else [_slot_of(sets, rank) for rank in range(ranks)]

    def slot(self, rank: int, chunk: int) -> int:
        if self._shared is None:
            return self._own[rank].get(chunk, -1)
        return self._shared[chunk] if rank in self._members[self._group[chunk]] else -1


def _slot_of(sets: RankSets, rank: int) -> dict[int, int]:
    return {chunk: slot for slot, chunk in enumerate(np.flatnonzero(sets.has(rank)).tolist())}


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


def _numbered(group: Ints) -> list[int]:
    """For each chunk its place among the chunks of the same group."""
    order = np.argsort(group, kind="stable")
    keys = group[order]
    starts = np.searchsorted(keys, keys)
    slot = np.empty(len(group), dtype=np.int64)
    slot[order] = np.arange(len(group)) - starts
    numbers: list[int] = slot.tolist()
    return numbers
