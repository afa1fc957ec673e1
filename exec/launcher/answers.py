"""The command's answers to ranks without MPI: their all-gathers, and which rank hands over the result.

No rank waits for a lost one, so a run goes on when ranks die at any moment.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping

from exec.launcher.protocol import Exchanged, JobForRanks, Release
from exec.launcher.ranks import RankState

__all__ = ["AllGathers", "Responder"]


class AllGathers:
    """The all-gathers of a run: each is complete when all participating ranks have contributed."""

    def __init__(self, ranks: int) -> None:
        self._given: list[collections.deque[bytes]] = [collections.deque() for _ in range(ranks)]

    def give(self, rank: int, content: bytes) -> None:
        self._given[rank].append(content)

    def whole(self, absent: Collection[int]) -> Iterator[tuple[bytes, ...]]:
        """Yield the contributions of all ranks to each newly completed all-gather.

        ``absent`` ranks contribute nothing more: b"" once their earlier contributions are used up.
        """
        while any(self._given) and all(given or rank in absent for rank, given in enumerate(self._given)):
            yield tuple(given.popleft() if given else b"" for given in self._given)


class Responder:
    """Decision on which answers go to which ranks, from their messages so far."""

    def __init__(self, job: JobForRanks) -> None:
        self.exchanges = AllGathers(job.at_start)
        self._job = job
        self.giver: RankState | None = None
        """The rank that was asked for the result."""
        self._released = False

    def due(self, ranks: Mapping[int, RankState]) -> list[tuple[RankState, Exchanged | Release]]:
        """Return the answers that are due now, in the order in which to send them."""
        at_work = [rank for rank in ranks.values() if rank.at_work]
        # A rank that was started later has missed some all-gathers, so it takes part in none.
        first = [rank for rank in at_work if not rank.start]
        absent = ranks.keys() - {rank.number for rank in first}
        found: list[tuple[RankState, Exchanged | Release]] = []
        for contents in self.exchanges.whole(absent):
            found += [(rank, Exchanged(contents)) for rank in first]
        left = [ranks[number] for number in sorted(ranks) if not ranks[number].lost]
        if len(ranks) >= self._job.at_start and all(rank.returned for rank in left):
            found += self._releases(left)
        return found

    def _releases(self, left: list[RankState]) -> list[tuple[RankState, Exchanged | Release]]:
        """Ask the lowest remaining rank with a value to hand it over; then release all."""
        if self._released:
            return []
        if self.giver is None or self.giver.lost:
            givers = left if self._job.survive else left[:1]
            self.giver = next((rank for rank in givers if rank.has_value), None)
            if self.giver is not None:
                return [(self.giver, Release(hand_over=True))]
        if self.giver is not None and not self.giver.finished:
            return []
        self._released = True
        return [(rank, Release(hand_over=False)) for rank in left if rank is not self.giver]
