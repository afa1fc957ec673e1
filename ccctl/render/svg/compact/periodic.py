"""A periodic schedule in time: its first periods as a plain schedule's, until the pipeline is full."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ccctl.render.svg import schedule

if TYPE_CHECKING:
    from ccctl.render.svg import Drawing
    from synth.schedules import PeriodicSchedule

__all__ = ["pictures"]

_MOST_SENDS = 1_000_000
_FULL_PERIODS = 3


def pictures(made: PeriodicSchedule, width: int) -> list[Drawing]:
    """Return how busy links, ports and ranks are while the first periods go by, each send as soon as
    it can.
    """
    if not len(made.chunk):
        return []
    shown = math.ceil(made.latency_s / made.period_s) + _FULL_PERIODS
    shown = max(1, min(shown, made.periods, _MOST_SENDS // len(made.chunk)))
    return [
        replace(one, title=f"{one.title}: {shown} of {made.periods} periods")
        for one in schedule.pictures(made.expanded(shown), width)
    ]
