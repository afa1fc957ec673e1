"""The time of a periodic schedule if each send starts as soon as it can, for any number of periods.

Order and waits repeat in each period. Once all sends start exactly ``period_s`` after those of the period
before, over as many periods as a wait spans, they do so ever after, and every further period adds
``period_s`` (linear systems over max and plus; Baccelli, Cohen, Olsder and Quadrat 1992).
"""

from __future__ import annotations

import math

import numpy as np

from synth.schedules import PeriodicSchedule
from synth.simulation.schedule import replay

__all__ = ["periodic_time_s"]

_MOST_SENDS = 6_000_000
_SLACK = 1e-9


def periodic_time_s(made: PeriodicSchedule) -> float:
    """When the last chunk arrives; where too many sends overlap to be replayed, by the timetable.

    O(sends of a period · periods that overlap), however many periods there are.
    """
    each, latency_s = len(made.chunk), made.latency_s
    periods = 3 * math.ceil(latency_s / made.period_s) + 4
    if min(periods, made.periods) * each > _MOST_SENDS:
        return made.time_s
    if made.periods <= periods:
        return min(made.time_s, replay(made.expanded()).time_s)
    timing = replay(made.expanded(periods))
    period, row = made.in_order(periods)
    start_s = np.empty((periods, each))
    start_s[period, row] = timing.start_s
    # Nothing waits for what the timetable has more than a period and the latency before, and what it has
    # before the first send that is left out is as in any greater number of periods.
    planned_s = np.arange(periods - 1)[:, None] * made.period_s + made.start_s
    last_s = (periods - 1) * made.period_s
    watched = (planned_s < last_s) & (planned_s >= last_s - made.period_s - latency_s)
    late_s = np.abs(np.diff(start_s, axis=0) - made.period_s)[watched]
    if (late_s > _SLACK * timing.time_s).any():
        return made.time_s
    return min(made.time_s, timing.time_s + (made.periods - periods) * made.period_s)
