"""Autotuning between two ways to run a collective, on the calls that a job makes anyway.

The first calls of a class use both ways in turn. The time of a trial is that of its slowest rank. All ranks
compare the best trial of each way, so they reach the same decision: after the last trial, or earlier if one
way is slower by _HOPELESS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Protocol

__all__ = ["TRIALS", "Autotuner", "TunedGroup"]

# Trials of each way; the first warms up.
TRIALS = 3
# A way that is slower by this factor is not tried again.
_HOPELESS = 2.0
_WAYS = 2


class TunedGroup(Protocol):
    """The methods of a group of ranks that `Autotuner` uses."""

    def allgather(self, value: float) -> list[float]: ...

    def Barrier(self) -> None: ...  # noqa: N802 - MPI's name


class Autotuner:
    """The winners by class of call; ``decided`` maps a class to the number of the faster way, 0 or 1."""

    def __init__(self, ranks: TunedGroup) -> None:
        self._ranks = ranks
        self._times_s: dict[Hashable, list[float]] = {}
        self.decided: dict[Hashable, int] = {}

    def serve(self, key: Hashable, ways: tuple[Callable[[], None], Callable[[], None]]) -> None:
        """Run one call by the decided way; before the decision, by each way in turn; collective."""
        if key in self.decided:
            ways[self.decided[key]]()
            return
        times_s = self._times_s.setdefault(key, [])
        way = ways[len(times_s) % _WAYS]
        self._ranks.Barrier()
        started_s = time.perf_counter()
        way()
        times_s.append(max(self._ranks.allgather(time.perf_counter() - started_s)))
        rounds = len(times_s) / _WAYS
        if rounds < 2 or rounds % 1:
            return
        best_s = [min(times_s[_WAYS + way :: _WAYS]) for way in range(_WAYS)]
        if rounds == TRIALS or max(best_s) > _HOPELESS * min(best_s):
            self.decided[key] = best_s.index(min(best_s))
            del self._times_s[key]
