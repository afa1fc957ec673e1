"""A periodic schedule over time: its first periods, until the pipeline is full."""

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
    """Return a picture of the use of links, ports and ranks in the first periods, with eager sends."""
    if not len(made.chunk):
        return []
    shown = math.ceil(made.latency_s / made.period_s) + _FULL_PERIODS
    shown = max(1, min(shown, made.periods, _MOST_SENDS // len(made.chunk)))
    return [
        replace(one, title=f"{one.title}: {shown} of {made.periods} periods")
        for one in schedule.pictures(made.expanded(shown), width)
    ]
