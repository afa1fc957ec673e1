"""A search for the fusion buffer as charts: the time of each size tried, and the best one so far."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ccctl.render import about, seconds
from ccctl.render.svg import COLOURS, Chart, Drawing, Series, charts
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import Tuning

__all__ = ["pictures"]


def pictures(tuning: Tuning, width: int) -> list[Drawing]:
    """Return time over buffer size, and over the number of trials; nothing without a trial."""
    if not tuning.trials:
        return []
    size, taken = tuning.buffer_bytes.tolist(), tuning.seconds.tolist()
    best_bytes, best_s = tuning.best
    so_far = list(accumulate(taken, min))
    first = taken.index(best_s)
    trials = Series("a trial", COLOURS[0], tuple(zip(map(float, size), taken, strict=True)), joined=False)
    best = f"the best: {about(best_bytes)}, {seconds(best_s)}"
    ordered = tuple((float(number), one) for number, one in enumerate(taken, start=1))
    # A linear axis for a small range, a logarithmic one for a large range.
    base = 10 if max(taken) > 20 * best_s else 0
    return [
        charts(
            f"{tuning.subject}: {tuning.strategy}, {plural(tuning.trials, 'trial')}",
            "The seconds of an iteration over the buffer, and trial by trial with the best so far.",
            [
                Chart(
                    "time of an iteration",
                    "buffer (bytes)",
                    (trials, Series(best, COLOURS[1], ((float(best_bytes), best_s),), joined=False)),
                    about,
                    lambda y: seconds(y) if y else "0",
                    2,
                    base,
                ),
                Chart(
                    "time of an iteration",
                    "trial",
                    (
                        Series("a trial", COLOURS[0], ordered, joined=False),
                        Series(
                            "the best so far",
                            COLOURS[2],
                            tuple((float(number), one) for number, one in enumerate(so_far, start=1)),
                            dashed=True,
                        ),
                        Series(best, COLOURS[1], ((first + 1.0, best_s),), joined=False),
                    ),
                    lambda x: f"{x:g}",
                    lambda y: seconds(y) if y else "0",
                    0,
                    base,
                    counted=True,
                ),
            ],
            width,
        )
    ]
