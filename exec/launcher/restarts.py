"""When a lost rank is started again: later each time, and not more often than was asked for.

A state machine without clocks or processes. Each try has a number of its own, the start of the rank, so that
one that was given up and is heard of later is known as such.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Restarts"]

_FIRST_S, _MOST_S = 1.0, 60.0
# How long a rank that is started again may take until it is heard of.
_HEARD_S = 60.0


@dataclass
class _Tries:
    """What was tried for one rank."""

    start: int = 0
    answered: int = 0
    due_s: float | None = None
    until_s: float | None = None


class Restarts:
    """Each rank is started again until it was heard of ``most`` times after that, a spare once more.

    Spares are not there at the start, and count as lost once the others are at work.
    A host that does not answer is tried for as long as the run lasts, at most once a minute.
    """

    def __init__(self, most: int, spares: Collection[int] = ()) -> None:
        self._most, self._spares = most, frozenset(spares)
        self._tries: dict[int, _Tries] = {}

    def lost(self, rank: int, now_s: float) -> None:
        """A rank was lost, or could not be started again."""
        most = self._most + (rank in self._spares)
        if not most:
            return
        tries = self._tries.setdefault(rank, _Tries())
        tries.until_s = None
        if tries.answered < most:
            tries.due_s = now_s + min(_MOST_S, _FIRST_S * 2.0**tries.start)

    def due(self, now_s: float) -> list[tuple[int, int]]:
        """The ranks to start now, and the number of this start of each."""
        found = []
        for rank, tries in self._tries.items():
            if tries.due_s is not None and now_s >= tries.due_s:
                tries.start, tries.due_s, tries.until_s = tries.start + 1, None, now_s + _HEARD_S
                found.append((rank, tries.start))
        return found

    def awaits(self, rank: int, start: int) -> bool:
        """Whether this start of ``rank`` is the one that is to be heard of next."""
        tries = self._tries.get(rank)
        return tries is not None and tries.until_s is not None and tries.start == start

    def answered(self, rank: int) -> None:
        """A rank that was started again has been heard of."""
        self._tries[rank].answered += 1
        self._tries[rank].until_s = None

    @property
    def awaited(self) -> list[int]:
        """The ranks that were started again and not heard of yet."""
        return [rank for rank, tries in self._tries.items() if tries.until_s is not None]

    def overdue(self, now_s: float) -> list[int]:
        """The ranks that were started again, and not heard of for too long."""
        return [rank for rank in self.awaited if now_s >= (self._tries[rank].until_s or 0.0)]
