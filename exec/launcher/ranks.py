"""The command's knowledge of its ranks: which are present, what each does, and who waits for whom."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from exec.launcher.protocol import Heartbeat
from exec.sockets import Channel

__all__ = ["MOST_NAMED", "RankState", "culprit", "who_waits"]

MOST_NAMED = 8


@dataclass(eq=False)
class RankState:
    """The state of one rank."""

    number: int
    host: str
    pid: int
    connection: Channel
    heard_s: float
    start: int = 0
    """How often the rank was started before."""
    status: Heartbeat = field(default_factory=Heartbeat)
    segments: tuple[str, ...] = ()
    up: bool = False
    """Its wires are."""
    returned: bool = False
    has_value: bool = False
    finished: bool = False
    unreached: OSError | None = None
    """Why it could not be told something: the connection says it once."""
    lost: str = ""
    """How it was lost, in a run that survives that."""

    @property
    def at_work(self) -> bool:
        """Whether it is present and still runs its task."""
        return not (self.finished or self.lost or self.returned)

    @property
    def connected(self) -> bool:
        """Whether it may still send messages."""
        return not (self.finished or self.lost)

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
    """Return one line for each awaited thing, with the ranks that wait for it."""
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
    said = [f"rank {rank.number} was at: {rank.status.doing}" for rank in idle if rank.status.doing]
    return lines + said[:MOST_NAMED]
