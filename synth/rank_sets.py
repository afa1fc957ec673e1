"""Sets of ranks, one for each chunk; chunks with the same set share one group to save memory."""

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
        """Return the only rank of each chunk's set, or -1 if the set has none or several."""
        size = np.diff(self.start)
        first = np.full(len(size), -1, dtype=np.int32)
        first[size == 1] = self.rank[self.start[:-1][size == 1]]
        return first[self.group]

    def of(self, chunk: int) -> Ints:
        group = self.group[chunk]
        return self.rank[self.start[group] : self.start[group + 1]]

    def has(self, rank: int) -> Mask:
        """Return, for each chunk, whether ``rank`` is in its set."""
        return self.any_in(np.arange(rank + 1) == rank)

    def any_in(self, inside: Mask) -> Mask:
        """Return, for each chunk, whether its set has a rank in ``inside``, a mask by rank.

        Ranks beyond the end of the mask are not in it.
        """
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        meets = np.zeros(len(self.start) - 1, dtype=bool)
        known = self.rank < len(inside)
        meets[owner[known][inside[self.rank[known]]]] = True
        return meets[self.group]

    def contains(self, rank: Indices, chunk: Indices, ranks: int) -> Mask:
        """Return, for each pair (rank, chunk), whether the rank is in the chunk's set."""
        table = np.zeros((len(self.start) - 1, ranks), dtype=bool)
        table[np.repeat(np.arange(len(table)), np.diff(self.start)), self.rank] = True
        return np.asarray(table[self.group[chunk], rank])

    def sizes(self) -> Indices:
        """Return the number of ranks in each chunk's set."""
        # np.diff takes twice as long or more, and searches ask this thousands of times.
        return (self.start[1:] - self.start[:-1])[self.group]

    def per_rank(self, ranks: int) -> Indices:
        """Return, for each rank, the number of chunks whose set has it."""
        chunks = np.bincount(self.group, minlength=len(self.start) - 1)
        weight = np.repeat(chunks, np.diff(self.start))
        return np.bincount(self.rank, weights=weight, minlength=ranks).astype(np.int64)

    def mask(self, ranks: int) -> Mask:
        """Return a mask (ranks, chunks): whether a rank is in a chunk's set; one byte each."""
        table = np.zeros((ranks, len(self.start) - 1), dtype=bool)
        owner = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        table[self.rank, owner] = True
        return np.take(table, self.group, axis=1)


def each(rank_of: Indices, ranks: int) -> RankSets:
    """Return sets of one rank: chunk c has ``rank_of[c]``."""
    return RankSets(ints(rank_of), ints(np.arange(ranks + 1)), ints(np.arange(ranks)))


def every(members: Indices, chunks: int) -> RankSets:
    """Return the set ``members`` for every chunk."""
    return RankSets(ints(np.zeros(chunks)), ints([0, len(members)]), ints(members))


def of_sets(sets: Sequence[Iterable[int]]) -> RankSets:
    """Return the sets of all chunks, one for each of ``sets``; equal sets share a group."""
    number: dict[tuple[int, ...], int] = {}
    group = [number.setdefault(tuple(sorted(set(ranks))), len(number)) for ranks in sets]
    start = np.cumsum([0, *map(len, number)])
    return RankSets(ints(group), ints(start), ints([rank for ranks in number for rank in ranks]))


def joined(parts: Sequence[RankSets]) -> RankSets:
    """Return the chunks of all parts, numbered consecutively."""
    groups = np.cumsum([0, *(len(part.start) - 1 for part in parts)])
    ranks = np.cumsum([0, *(len(part.rank) for part in parts)])
    return RankSets(
        ints(np.concatenate([part.group + first for part, first in zip(parts, groups, strict=False)])),
        ints(np.concatenate([[0], *(part.start[1:] + at for part, at in zip(parts, ranks, strict=False))])),
        ints(np.concatenate([part.rank for part in parts])),
    )
