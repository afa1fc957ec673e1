"""The alpha and beta of one link, fitted to its samples and bounded by the time of whole transfers.

Delayed messages arrive in a burst, and the gaps within a burst are shorter than the link's pace. The time of
a whole train since its request can only be too long. So the best whole transfer bounds beta from above, and
a much faster fit is rejected.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.sampling.packet_trains import HURRY, Trains, is_buffered, is_slow
from probes.statistics import LinkFit, fit, fit_paces

__all__ = ["best_message", "best_whole", "better", "looks_slow", "middle_whole", "pace"]

# If a byte costs this many times more at one size than at another, messages have a fixed cost.
_OVERHEAD = 1.25
# A fit of large messages is rejected only below this share of the best whole transfer: the fit uses the best
# times, whereas a whole train includes every disturbance.
_LARGE_HURRY = 0.5
# A fit under concurrent load that is this many times faster than the fit without load came from a burst.
_BURST = 1.5
# A whole train of small messages may look this much too fast, because a shaped link lets a burst through.
_AHEAD = 1.06


def pace(found: Trains) -> LinkFit:
    """Return the beta of a link; the best whole transfer, marked unsound, if no fit is credible."""
    if not found.seconds:
        return _whole(found)
    fitted = _fit(found)
    best_s = best_whole(found)
    if best_s is None:
        return fitted
    small = all(map(is_buffered, found.comparable()))
    if fitted.beta_s_per_byte < (HURRY if small else _LARGE_HURRY) * best_s:
        return _whole(found)
    return _no_slower(fitted, best_s * (_AHEAD if small else 1.0))


def looks_slow(found: Trains) -> bool:
    """Return whether even the best whole transfer was as slow as on a slow link."""
    best_s = best_whole(found)
    return best_s is not None and is_slow(best_s)


def better(together: LinkFit, alone: LinkFit) -> LinkFit:
    """Return the faster fit, but ``alone`` if ``together`` is so much faster that it came from bursts."""
    if alone.sound and together.beta_s_per_byte * _BURST < alone.beta_s_per_byte:
        return alone
    return min((together, alone), key=lambda one: (not one.sound, one.beta_s_per_byte))


def best_whole(found: Trains) -> float | None:
    """Return seconds per byte of the fastest whole train, an upper bound of beta; None if there is none."""
    return min(found.whole_s_per_byte, default=None)


def best_message(found: Trains) -> float | None:
    """Return seconds per byte of the fastest message; None if no train was credible."""
    seconds = found.comparable()
    return min((min(values) / size for size, values in seconds.items() if values), default=None)


def middle_whole(found: Trains) -> float | None:
    """Return the median seconds per byte of whole trains; None if there is none."""
    return float(np.median(found.whole_s_per_byte)) if found.whole_s_per_byte else None


def _fit(found: Trains) -> LinkFit:
    """Fit a line if the pace depends on the message size, else the pace alone."""
    seconds = found.comparable()
    if not all(map(is_buffered, seconds)):
        return fit(seconds)
    paces = {size: [value / size for value in values] for size, values in seconds.items()}
    middles = [float(np.median(values)) for values in paces.values()]
    if max(middles) > _OVERHEAD * min(middles):
        return fit(seconds)
    return fit_paces([value for values in paces.values() for value in values])


def _whole(found: Trains) -> LinkFit:
    best_s = min(found.whole_s_per_byte)
    return replace(_no_slower(fit_paces(found.whole_s_per_byte), best_s), sound=False)


def _no_slower(fitted: LinkFit, best_s: float) -> LinkFit:
    beta = min(fitted.beta_s_per_byte, best_s)
    return replace(
        fitted,
        beta_s_per_byte=beta,
        beta_low_s_per_byte=min(fitted.beta_low_s_per_byte, beta),
        beta_high_s_per_byte=max(min(fitted.beta_high_s_per_byte, best_s), beta),
    )
