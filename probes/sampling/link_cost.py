"""The alpha and beta of one link, fitted to its samples and bounded by the time of whole transfers.

Messages that were held back come in a burst afterwards, and gaps within the burst are no pace of the
link. The bytes of a train over all the time since it was asked for are: they can only be too slow. So
the best whole transfer is the slowest that a link may be, and a fit much faster than it is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.sampling.packet_trains import HURRY, Trains, is_buffered, is_slow
from probes.statistics import LinkFit, fit, fit_paces

__all__ = ["best_whole", "better", "looks_slow", "middle_whole", "pace"]

# By so much does a byte of a small message cost more than of a larger one where messages cost something.
_OVERHEAD = 1.25
# Large messages are fitted by their best, a whole train of them is held up by whatever else goes on.
_LARGE_HURRY = 0.5
_BURST = 1.5
# By so much may a whole train of small messages look too fast, as a shaped link lets a burst through at once.
_AHEAD = 1.06


def pace(found: Trains) -> LinkFit:
    """Beta of a link; the best whole transfer, marked as not sound, where nothing else is believed."""
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
    """Whether even its best whole transfer was that of a slow link."""
    best_s = best_whole(found)
    return best_s is not None and is_slow(best_s)


def better(together: LinkFit, alone: LinkFit) -> LinkFit:
    """The faster one; but what was so much faster in company than alone came in bursts and is no pace."""
    if alone.sound and together.beta_s_per_byte * _BURST < alone.beta_s_per_byte:
        return alone
    return min((together, alone), key=lambda one: (not one.sound, one.beta_s_per_byte))


def best_whole(found: Trains) -> float | None:
    """Seconds a byte of the fastest whole train: the link takes no longer. None where none was timed."""
    return min(found.whole_s_per_byte, default=None)


def middle_whole(found: Trains) -> float | None:
    """Seconds a byte of whole trains as they mostly were; None where none was timed."""
    return float(np.median(found.whole_s_per_byte)) if found.whole_s_per_byte else None


def _fit(found: Trains) -> LinkFit:
    """A line where sizes tell something; the pace alone where a message costs nothing but its bytes."""
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
