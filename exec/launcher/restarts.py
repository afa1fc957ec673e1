"""Schedule of restarts of lost ranks: with growing delays, up to a limit.

A state machine without clocks or processes. Each try has a number, the rank's ``start``, by which a late
answer from an abandoned try is recognised.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Restarts"]

# The pause before a restart doubles with each try, from a second to a minute.
_FIRST_S, _MOST_S = 1.0, 60.0
# Longest time until a restarted rank reports.
_HEARD_S = 60.0


@dataclass
class _Tries:
    start: int = 0
    answered: int = 0
    due_s: float | None = None
    until_s: float | None = None


class Restarts:
    """Restarts of each lost rank until ``most`` of them have led to a report; a spare gets one more.

    Spares are absent at the start, and count as lost once the others are at work. Restarts without a report
    do not count, so a rank on a host that does not answer is tried for as long as the run lasts.
    """

    def __init__(self, most: int, spares: Collection[int] = ()) -> None:
        self._most, self._spares = most, frozenset(spares)
        self._tries: dict[int, _Tries] = {}

    def lost(self, rank: int, now_s: float) -> None:
        """Note that a rank was lost, or could not be started again."""
        most = self._most + (rank in self._spares)
        if not most:
            return
        tries = self._tries.setdefault(rank, _Tries())
        tries.until_s = None
        if tries.answered < most:
            tries.due_s = now_s + min(_MOST_S, _FIRST_S * 2.0**tries.start)

    def due(self, now_s: float) -> list[tuple[int, int]]:
        """Return the ranks to start now, each with the number of this start."""
        found = []
        for rank, tries in self._tries.items():
            if tries.due_s is not None and now_s >= tries.due_s:
                tries.start, tries.due_s, tries.until_s = tries.start + 1, None, now_s + _HEARD_S
                found.append((rank, tries.start))
        return found

    def awaits(self, rank: int, start: int) -> bool:
        """Return whether this start of ``rank`` is the one expected to report next."""
        tries = self._tries.get(rank)
        return tries is not None and tries.until_s is not None and tries.start == start

    def answered(self, rank: int) -> None:
        self._tries[rank].answered += 1
        self._tries[rank].until_s = None

    @property
    def awaited(self) -> list[int]:
        """The ranks that were restarted and have not reported yet."""
        return [rank for rank, tries in self._tries.items() if tries.until_s is not None]

    def overdue(self, now_s: float) -> list[int]:
        """Return the restarted ranks that have taken too long to report."""
        return [rank for rank in self.awaited if now_s >= (self._tries[rank].until_s or 0.0)]
