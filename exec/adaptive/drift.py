"""Whether the times of runs have changed for good: the reason to measure links before it is their turn.

A run alone says little: others' work holds it up. The level of the runs is learned from the first few of
them; when several in a row lie on one side of it, further off than noise, they have left it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["Level"]

# How many runs a level is learned from at least, and at most.
_LEARNED, _REMEMBERED = 3, 9
# So many in a row are no chance: where one in twenty lies so far off on one side, three do once in 8000 runs.
_IN_A_ROW = 3
# How far off they must be: a factor, more where runs scatter more (so many of their standard deviations).
_LEAST, _DEVIATIONS = math.log(1.2), 2.5
# Runs that are learned while rates change scatter for that: what is so far off is news in any case.
_MOST = math.log(1.3)
# A standard deviation of normal noise is so many times the median of the absolute ones.
_NORMAL = 1.4826
# Predictions of other schedules are off by up to a third: only what is further from them is news.
_UNFORESEEN = math.log(1.5)


class Level:
    """What runs of one schedule take; ``expected_s`` is what they were predicted to take, if they were.

    What the first runs have taught stays, so that small steps away from it add up. Once the runs have left
    it (``take``), they have come to another (``left``): each change is reported once.
    """

    def __init__(self, expected_s: float | None = None) -> None:
        # One rank alone sends nothing, which takes no time.
        self._expected_s = expected_s or None
        self._at: deque[float] = deque(maxlen=_REMEMBERED)
        self._off: deque[float] = deque(maxlen=_IN_A_ROW)

    @property
    def usual_s(self) -> float | None:
        """The median of the runs at this level, in seconds; None before there are any."""
        return math.exp(statistics.median(self._at)) if self._at else None

    @property
    def expected_s(self) -> float | None:
        """What the next run should take: as usual, or as predicted where what is usual is far from that."""
        return self._expected_s if self._is_unforeseen() else self.usual_s

    def take(self, seconds: float) -> bool:
        """Whether the runs, of which this one is the last, are slower or faster for good."""
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
        """The level that the runs have come to."""
        found = Level()
        found._at.extend(self._off if len(self._off) == _IN_A_ROW else self._at)
        return found

    def changed(self, gain: float) -> Level:
        """The level of another schedule, predicted to be ``gain`` times as fast."""
        usual_s = self.usual_s
        return Level(None if usual_s is None or self._off else usual_s / gain)

    def _band(self) -> float:
        middle = statistics.median(self._at)
        deviation = _NORMAL * statistics.median(abs(log - middle) for log in self._at)
        return min(_MOST, max(_LEAST, _DEVIATIONS * deviation))

    def _is_unforeseen(self) -> bool:
        if self._expected_s is None or len(self._at) < _LEARNED:
            return False
        return abs(statistics.median(self._at) - math.log(self._expected_s)) > _UNFORESEEN
