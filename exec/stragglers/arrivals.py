"""Arrivals: when each worker was ready for the collective of each iteration, recorded or drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Floats, UsageError, floats

__all__ = ["Arrivals", "bimodal", "exponential", "of_lags"]


@dataclass(frozen=True, eq=False)
class Arrivals:
    """``ready_s[i, r]``: when rank r was ready in iteration i, in seconds after the first rank."""

    ready_s: Floats

    @property
    def iterations(self) -> int:
        return len(self.ready_s)

    @property
    def ranks(self) -> int:
        return int(self.ready_s.shape[1])

    @property
    def last_s(self) -> Floats:
        """The time of the last rank's readiness, by iteration."""
        return floats(self.ready_s.max(axis=1))

    @staticmethod
    def of(moments_s: Floats) -> Arrivals:
        """Return the arrivals at these moments of any clock, one row per iteration.

        Raises UsageError for a number that is not finite, for fewer than two ranks, or without rows.
        """
        if moments_s.ndim != 2 or moments_s.shape[0] < 1 or moments_s.shape[1] < 2:
            raise UsageError(
                f": expected iterations by ranks, at least 1 by 2, found shape {moments_s.shape}",
                argument="moments_s",
            )
        if not np.isfinite(moments_s).all():
            raise UsageError(": expected finite seconds", argument="moments_s")
        return Arrivals(floats(moments_s - moments_s.min(axis=1, keepdims=True)))


def of_lags(lag_s: Floats, ranks: int) -> Arrivals:
    """Return arrivals with the last rank ``lag_s[i]`` late in iteration i, and all others ready at once."""
    return _with_stragglers(floats(lag_s[:, np.newaxis]), ranks)


def bimodal(
    slow_s: float, probability: float, *, ranks: int, iterations: int, stragglers: int, seed: int
) -> Arrivals:
    """Draw arrivals where each of the last ``stragglers`` ranks is ``slow_s`` late with this probability."""
    late = np.random.default_rng(seed).random((iterations, _valid(stragglers, ranks))) < probability
    return _with_stragglers(floats(late * slow_s), ranks)


def exponential(mean_s: float, *, ranks: int, iterations: int, stragglers: int, seed: int) -> Arrivals:
    """Draw arrivals where each of the last ``stragglers`` ranks is late by ``mean_s`` on average.

    The times are exponentially distributed.
    """
    late_s = np.random.default_rng(seed).exponential(mean_s, (iterations, _valid(stragglers, ranks)))
    return _with_stragglers(late_s, ranks)


def _valid(stragglers: int, ranks: int) -> int:
    if not 1 <= stragglers <= ranks:
        raise UsageError(f": expected 1 to {ranks}, all ranks, found {stragglers}", argument="stragglers")
    return stragglers


def _with_stragglers(late_s: Floats, ranks: int) -> Arrivals:
    moments_s = np.zeros((len(late_s), ranks))
    moments_s[:, ranks - late_s.shape[1] :] = late_s
    return Arrivals.of(moments_s)
