"""Change points: when the level of one link's series changes for good.

The level has changed when at least three quarters of the recent values lie on one side of the old level. Each
of them lies farther away than the sampling error of a median (from the median absolute deviation), and far
enough to matter. So a few bad values are never a change. Then the new level is learned; a return to the old
one is another change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

__all__ = ["MEDIAN_TO_MEAN", "Shift", "Steady", "robust_level", "shifts"]

# A level is learned from more values than are judged, so that it is the more certain one.
WINDOW, LEARN = 12, 40
# Smaller changes do not matter, however certain they are.
EFFECT = 0.10
# The least share of recent values beyond the level, so that a few bad values are no change.
_MOST = 0.75
# About one normal value in a billion lies more than six standard deviations above the mean.
_Z = 6.0
# Standard deviation over median absolute deviation of normal values: 1 / 0.6745.
_MAD_TO_SIGMA = 1.4826
# The standard error of a median over that of a mean: sqrt(pi / 2).
MEDIAN_TO_MEAN = 1.2533


@dataclass(frozen=True)
class Shift:
    """A change of level from ``before`` to ``now``, from value number ``at`` on, in the values' unit."""

    at: int
    before: float
    now: float

    @property
    def ratio(self) -> float:
        return self.now / self.before


class Steady:
    """The level of one series, followed value by value; each value is greater than 0.

    The first level is learned from the first ``learn`` values. If it is already known, pass it as ``level``,
    and the standard deviation of a value's logarithm as ``sigma``.
    """

    def __init__(
        self,
        *,
        window: int = WINDOW,
        learn: int = LEARN,
        effect: float = EFFECT,
        level: float | None = None,
        sigma: float = 0.0,
    ) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._window, self._learn = window, learn
        self._effect = float(np.log1p(effect))
        self._seen = 0
        self._learning: list[float] | None = []
        self._level: float | None = None
        self._allowed = 0.0
        if level is not None:
            self._settle(float(np.log(level)), sigma)

    @property
    def level(self) -> float | None:
        """The current level of the series; None until the first level is learned."""
        return None if self._level is None else float(np.exp(self._level))

    def add(self, value: float) -> Shift | None:
        """Add a value; return the shift that it completes, or None."""
        self._seen += 1
        self._recent.append(float(np.log(value)))
        if self._learning is not None:
            self._learning.append(self._recent[-1])
            if len(self._learning) >= self._learn:
                self._settle(*robust_level(self._learning))
        if self._level is None or len(self._recent) < self._window:
            return None
        return self._judged(self._level)

    def _judged(self, before: float) -> Shift | None:
        away = np.array(self._recent) - before
        beyond = np.abs(away) > self._allowed
        beyond &= np.sign(away) == np.sign(np.median(away))
        if beyond.mean() < _MOST:
            return None
        self._learning = (away[beyond] + before).tolist()
        # Until the new level is learned a provisional one holds, so that the end of a short change is seen at
        # once.
        self._level = float(np.median(self._learning))
        self._recent.clear()
        first = self._seen - len(away) + int(np.argmax(beyond))
        return Shift(first, float(np.exp(before)), float(np.exp(self._level)))

    def _settle(self, level: float, sigma: float) -> None:
        self._level, self._learning = level, None
        uncertain = MEDIAN_TO_MEAN * sigma * float(np.sqrt(1 / self._window + 1 / self._learn))
        self._allowed = max(self._effect, _Z * uncertain)


def robust_level(values: Iterable[float]) -> tuple[float, float]:
    """Return (median, standard deviation estimated by the median absolute deviation)."""
    numbers = np.array([*values])
    level = float(np.median(numbers))
    return level, _MAD_TO_SIGMA * float(np.median(np.abs(numbers - level)))


def shifts(values: Iterable[float]) -> list[Shift]:
    """Return every shift of a whole series, in O(values · window)."""
    steady = Steady()
    return [shift for shift in map(steady.add, values) if shift is not None]
