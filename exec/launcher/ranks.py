"""The command's view of its ranks: their phases, its answers to them, and who waits for whom."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from exec.launcher.protocol import Exchanged, Heartbeat, JobForRanks, Release
from exec.sockets import Channel

__all__ = ["MOST_NAMED", "AllGathers", "RankPhase", "RankState", "Responder", "culprit", "who_waits"]

# A run may have thousands of ranks, and the first lines show what they wait for.
MOST_NAMED = 8


class RankPhase(IntEnum):
    """The phases of a rank, in order; only a lost or failed rank skips some."""

    PRESENT = 0
    """The rank has said hello."""
    CONNECTED = 1
    """The rank's connections to the other ranks, or MPI, are up: it runs its task."""
    RETURNED = 2
    """The rank's function has returned, and the rank keeps the value."""
    FINISHED = 3
    """The rank sends nothing any more."""
    LOST = 4


@dataclass(eq=False)
class RankState:
    """The state of one rank, as the command knows it.

    ``start`` counts the rank's earlier starts. ``send_error`` keeps the error of a failed send, which the
    connection reports only once. ``lost`` says how the rank was lost, if the run goes on without it.
    """

    number: int
    host: str
    pid: int
    connection: Channel
    heard_s: float
    start: int = 0
    phase: RankPhase = RankPhase.PRESENT
    status: Heartbeat = field(default_factory=Heartbeat)
    segments: tuple[str, ...] = ()
    has_value: bool = False
    send_error: OSError | None = None
    lost: str = ""

    @property
    def at_work(self) -> bool:
        """Whether the rank is present and still runs its task."""
        return self.phase < RankPhase.RETURNED

    @property
    def connected(self) -> bool:
        """Whether the rank may still send messages."""
        return self.phase < RankPhase.FINISHED

    def lose(self, how: str) -> None:
        self.phase, self.lost = RankPhase.LOST, how

    def __str__(self) -> str:
        return f"rank {self.number} (host {self.host}, pid {self.pid})"


def culprit(ranks: Collection[RankState]) -> RankState | None:
    """Return the one rank common to all transfers under way; None if there is none or several."""
    by_number = {rank.number: rank for rank in ranks}
    transfers = {
        frozenset((rank.number, rank.status.peer))
        for rank in ranks
        if rank.at_work and rank.status.peer is not None and rank.status.peer >= 0
    }
    common = frozenset.intersection(*transfers) if transfers else frozenset()
    return by_number.get(next(iter(common))) if len(common) == 1 else None


def who_waits(ranks: Collection[RankState], but: RankState | None = None) -> list[str]:
    """Return a line for each awaited rank and step, then one for each rank that waits for none."""
    waiting: dict[tuple[int, str], list[int]] = {}
    for rank in ranks:
        if rank is not but and rank.at_work and rank.status.peer is not None:
            waiting.setdefault((rank.status.peer, rank.status.step), []).append(rank.number)
    lines = []
    for (peer, step), numbers in sorted(waiting.items())[:MOST_NAMED]:
        who = ", ".join(map(str, sorted(numbers)))
        verb = f"rank{'s' if len(numbers) > 1 else ''} {who} waited for"
        lines.append(f"{verb} {f'rank {peer}' if peer >= 0 else 'all ranks'}: {step}")
    idle = [rank for rank in ranks if rank is not but and rank.at_work and rank.status.peer is None]
    reports = [f"rank {rank.number} was at: {rank.status.doing}" for rank in idle if rank.status.doing]
    return lines + reports[:MOST_NAMED]


class AllGathers:
    """The all-gathers of a run: each is complete when all participating ranks have contributed."""

    def __init__(self, ranks: int) -> None:
        self._given: list[collections.deque[bytes]] = [collections.deque() for _ in range(ranks)]

    def give(self, rank: int, content: bytes) -> None:
        self._given[rank].append(content)

    def whole(self, absent: Collection[int]) -> Iterator[tuple[bytes, ...]]:
        """Yield the contributions of all ranks to each newly completed all-gather.

        An ``absent`` rank contributes nothing more: once its earlier contributions are used up, b"" stands
        for it.
        """
        while any(self._given) and all(given or rank in absent for rank, given in enumerate(self._given)):
            yield tuple(given.popleft() if given else b"" for given in self._given)


class Responder:
    """The command's answers to ranks without MPI: their all-gathers, and who hands over the result.

    No rank waits for a lost one, so a run goes on when ranks die at any moment.
    """

    def __init__(self, job: JobForRanks) -> None:
        self.exchanges = AllGathers(job.at_start)
        self._job = job
        # The rank that was asked for the result.
        self.giver: RankState | None = None
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
        if len(ranks) >= self._job.at_start and all(rank.phase >= RankPhase.RETURNED for rank in left):
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
        if self.giver is not None and self.giver.phase < RankPhase.FINISHED:
            return []
        self._released = True
        return [(rank, Release(hand_over=False)) for rank in left if rank is not self.giver]
