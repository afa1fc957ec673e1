"""Where the chunks of a collective lie in the buffers of its ranks."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from probes.columns import Ints
from synth.collective import Collective
from synth.rank_sets import RankSets

__all__ = ["Slots"]


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


def _numbered(group: Ints) -> list[int]:
    """For each chunk its place among the chunks of the same group."""
    order = np.argsort(group, kind="stable")
    keys = group[order]
    starts = np.searchsorted(keys, keys)
    slot = np.empty(len(group), dtype=np.int64)
    slot[order] = np.arange(len(group)) - starts
    numbers: list[int] = slot.tolist()
    return numbers
