"""For every chunk a set of ranks, in little memory: chunks with the same set share one group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Indices, Ints, Mask, ints

__all__ = ["RankSets", "each", "every", "joined", "of_sets"]


@dataclass(frozen=True, eq=False)
class RankSets:
    """The set of chunk c is ``rank[start[group[c]] : start[group[c] + 1]]``, in rising order."""

    group: Ints
    start: Ints
    rank: Ints

    def only(self) -> Ints:
        """For each chunk the one rank of its set, or -1 where the set has none or several."""
        size = np.diff(self.start)
        first = np.full(len(size), -1, dtype=np.int32)
        first[size == 1] = self.rank[self.start[:-1][size == 1]]
        return first[self.group]

    def of(self, chunk: int) -> Ints:
        """Return the ranks of one chunk."""
        group = self.group[chunk]
        return self.rank[self.start[group] : self.start[group + 1]]

    def has(self, rank: int) -> Mask:
        """For each chunk whether ``rank`` is in its set."""
        return self.any_in(np.arange(rank + 1) == rank)

    def any_in(self, inside: Mask) -> Mask:
        """For each chunk whether its set meets ``inside``; ranks beyond its end are outside."""
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        meets = np.zeros(len(self.start) - 1, dtype=bool)
        known = self.rank < len(inside)
        meets[owner[known][inside[self.rank[known]]]] = True
        return meets[self.group]

    def contains(self, rank: Indices, chunk: Indices, ranks: int) -> Mask:
        """For each pair whether the rank is in the chunk's set."""
        table = np.zeros((len(self.start) - 1, ranks), dtype=bool)
        table[np.repeat(np.arange(len(table)), np.diff(self.start)), self.rank] = True
        return np.asarray(table[self.group[chunk], rank])

    def sizes(self) -> Indices:
        """For each chunk how many ranks its set has."""
        return np.diff(self.start)[self.group]

    def per_rank(self, ranks: int) -> Indices:
        """For each rank in how many chunks' sets it is."""
        chunks = np.bincount(self.group, minlength=len(self.start) - 1)
        weight = np.repeat(chunks, np.diff(self.start))
        return np.bincount(self.rank, weights=weight, minlength=ranks).astype(np.int64)

    def mask(self, ranks: int) -> Mask:
        """Return (ranks, chunks): who is in which set; a byte each."""
        table = np.zeros((ranks, len(self.start) - 1), dtype=bool)
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        table[self.rank, owner] = True
        return np.take(table, self.group, axis=1)


def each(rank_of: Indices, ranks: int) -> RankSets:
    """Return one rank a chunk."""
    return RankSets(ints(rank_of), ints(np.arange(ranks + 1)), ints(np.arange(ranks)))


def every(members: Indices, chunks: int) -> RankSets:
    """Return the same ranks for every chunk."""
    return RankSets(ints(np.zeros(chunks)), ints([0, len(members)]), ints(members))


def of_sets(sets: Sequence[Iterable[int]]) -> RankSets:
    """Return one set a chunk, given in full; equal ones share a group."""
    number: dict[tuple[int, ...], int] = {}
    group = [number.setdefault(tuple(sorted(set(ranks))), len(number)) for ranks in sets]
    start = np.cumsum([0, *map(len, number)])
    return RankSets(ints(group), ints(start), ints([rank for ranks in number for rank in ranks]))


def joined(parts: Sequence[RankSets]) -> RankSets:
    """Return the chunks of all parts, numbered through."""
    groups = np.cumsum([0, *(len(part.start) - 1 for part in parts)])
    ranks = np.cumsum([0, *(len(part.rank) for part in parts)])
    return RankSets(
        ints(np.concatenate([part.group + first for part, first in zip(parts, groups, strict=False)])),
        ints(np.concatenate([[0], *(part.start[1:] + at for part, at in zip(parts, ranks, strict=False))])),
        ints(np.concatenate([part.rank for part in parts])),
    )
