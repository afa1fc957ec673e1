"""Detection of lasting changes in run times, a reason to measure links out of turn.

A single run says little, as other work may hold it up. The level is learned from the first few runs. Runs
have left the level when several in a row lie on one side of it by more than noise.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

from probes.statistics import robust_level

__all__ = ["Level"]

# Least and most runs that a level is learned from.
_LEARNED, _REMEMBERED = 3, 9
# This many runs in a row on one side of the band are no accident: if one run in twenty lies there by chance,
# three in a row do so once in 8000 runs.
_IN_A_ROW = 3
# Least distance from the level that counts: this factor, or this many standard deviations if that is more.
_LEAST, _DEVIATIONS = math.log(1.2), 2.5
# Rates that change during learning widen the scatter; a distance beyond this always counts.
_MOST = math.log(1.3)
# Predictions of other schedules are off by up to a third; only a larger distance counts.
_UNFORESEEN = math.log(1.5)


class Level:
    """The usual time of runs of one schedule; ``expected_s`` is the predicted time, if any.

    The first runs set the level for good, so that small steps away from it add up. After `take` has returned
    True, go on with the level that `left` returns, so that each change is reported once.
    """

    def __init__(self, expected_s: float | None = None) -> None:
        # A predicted time of 0, as for a single rank, which sends nothing, counts as no prediction.
        self._expected_s = expected_s or None
        self._at: deque[float] = deque(maxlen=_REMEMBERED)
        self._off: deque[float] = deque(maxlen=_IN_A_ROW)

    @property
    def usual_s(self) -> float | None:
        """The median of the runs at this level, in seconds; None before there are any."""
        return math.exp(statistics.median(self._at)) if self._at else None

    @property
    def expected_s(self) -> float | None:
        """The usual time of runs, or the predicted time if the usual one is far from it."""
        return self._expected_s if self._is_unforeseen() else self.usual_s

    def take(self, seconds: float) -> bool:
        """Add a run, and return whether the runs have become slower or faster for good."""
        log = math.log(max(seconds, 1e-9))
        if len(self._at) < _LEARNED:
            self._at.append(log)
        elif abs(log - statistics.median(self._at)) <= self._band():
            self._off.clear()
            if len(self._at) < _REMEMBERED:
                self._at.append(log)
        else:
            middle = statistics.median(self._at)
            if self._off and (self._off[-1] > middle) != (log > middle):
                self._off.clear()
            self._off.append(log)
        return len(self._off) == _IN_A_ROW or self._is_unforeseen()

    def left(self) -> Level:
        """Return the level that the runs have moved to."""
        found = Level()
        found._at.extend(self._off if len(self._off) == _IN_A_ROW else self._at)
        return found

    def changed(self, gain: float) -> Level:
        """Return the level of another schedule that is predicted to be ``gain`` times as fast."""
        usual_s = self.usual_s
        return Level(None if usual_s is None or self._off else usual_s / gain)

    def _band(self) -> float:
        _, deviation = robust_level(self._at)
        return min(_MOST, max(_LEAST, _DEVIATIONS * deviation))

    def _is_unforeseen(self) -> bool:
        if self._expected_s is None or len(self._at) < _LEARNED:
            return False
        return abs(statistics.median(self._at) - math.log(self._expected_s)) > _UNFORESEEN
