"""The proof of a schedule before it leaves the portfolio."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from synth.check import check
from synth.schedules import Bound, Outcome, PeriodicSchedule, Schedule, SymmetricSchedule
from synth.simulation import simulated

__all__ = ["proven_with"]

Made = TypeVar("Made", Schedule, PeriodicSchedule, SymmetricSchedule)


def proven_with(made: Made, proven: tuple[Bound, ...]) -> Made:
    """Return the schedule, checked and timed, with these bounds.

    Raises RuntimeError if the checker refuses it, which is a bug.
    """
    timing = simulated(made)
    if findings := check(made, timing):
        raise RuntimeError(f"{made.method} made a wrong schedule: {findings[0]}")
    outcome = Outcome(timing.time_s, proven, gap=made.outcome.gap if made.outcome else None)
    status = "optimal" if outcome.percent_of_optimal > 100 * (1 - 1e-9) else "feasible"
    return replace(made, outcome=replace(outcome, status=status))
