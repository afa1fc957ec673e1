"""The checker of schedules of any kind: it calls the judge of the schedule's kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from synth.check.periodic import check_periodic
from synth.check.schedule import check, check_selection
from synth.check.symmetric import check_symmetric
from synth.schedules import AnySchedule, Timing

__all__ = ["check_any"]

_JUDGES: dict[str, Callable[[Any, Timing | None], list[str]]] = {
    "schedule": check,
    "periodic": lambda made, timing: check_periodic(made),
    "symmetric": check_symmetric,
    "selection": lambda made, timing: check_selection(made),
}


def check_any(made: AnySchedule, timing: Timing | None = None) -> list[str]:
    """Return findings on a schedule, each with its place; an empty list proves it.

    ``timing`` holds the claimed times of a table, or of the quotient of a symmetric schedule. A periodic
    schedule states its own times, and a selection states none.
    """
    return _JUDGES[made.kind](made, timing)
