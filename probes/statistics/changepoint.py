"""Change points: when the level of one link's series changes for good.

The level has changed when at least three quarters of the recent values lie beyond a limit on one side of the
old level. So a few bad values are never a change. The limit is six standard errors of the difference of two
medians (by the median absolute deviation), or the smallest change that matters if that is larger. Then the
new level is learned; a return to the old one is another change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from probes.base import Floats

__all__ = ["MAD_TO_SIGMA", "MEDIAN_TO_MEAN", "Steady", "robust_level"]

# Least share of recent values beyond the level.
_MOST = 0.75
# About one normal value in a billion lies more than six standard deviations above the mean.
_Z = 6.0
# Standard deviation over median absolute deviation of normal values: 1 / 0.6745.
MAD_TO_SIGMA = 1.4826
# The standard error of a median divided by the standard error of a mean: sqrt(pi / 2).
MEDIAN_TO_MEAN = 1.2533


class Steady:
    """The level of one series, followed value by value; each value is greater than 0.

    ``level`` is the known level, and ``sigma`` the standard deviation of a value's logarithm. The last
    ``window`` values are judged. A new level is learned from ``learn`` values, which should be more than
    ``window``. Changes by a smaller share than ``effect`` do not matter, however certain they are.
    """

    def __init__(self, *, window: int, learn: int, effect: float, level: float, sigma: float) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._window, self._learn = window, learn
        self._effect = float(np.log1p(effect))
        self._learning: list[float] | None = None
        self._level: float
        self._allowed: float
        self._settle(float(np.log(level)), sigma)

    @property
    def level(self) -> float:
        """The current level of the series."""
        return float(np.exp(self._level))

    def add(self, value: float) -> bool:
        """Add a value; return whether it completes a change of the level."""
        self._recent.append(float(np.log(value)))
        if self._learning is not None:
            self._learning.append(self._recent[-1])
            if len(self._learning) >= self._learn:
                self._settle(*robust_level(self._learning))
        if len(self._recent) < self._window:
            return False
        away = np.array(self._recent) - self._level
        beyond = np.abs(away) > self._allowed
        beyond &= np.sign(away) == np.sign(np.median(away))
        if beyond.mean() < _MOST:
            return False
        self._learning = (away[beyond] + self._level).tolist()
        # A provisional level holds until the new level is learned, so that the end of a short change is seen
        # at once.
        self._level = float(np.median(self._learning))
        self._recent.clear()
        return True

    def _settle(self, level: float, sigma: float) -> None:
        self._level, self._learning = level, None
        uncertain = MEDIAN_TO_MEAN * sigma * float(np.sqrt(1 / self._window + 1 / self._learn))
        self._allowed = max(self._effect, _Z * uncertain)


def robust_level(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Return (median, standard deviation estimated by the median absolute deviation)."""
    numbers = np.asarray(values)
    level = float(np.median(numbers))
    return level, MAD_TO_SIGMA * float(np.median(np.abs(numbers - level)))
