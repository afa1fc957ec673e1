"""The import path of each kind of schedule, by the kind that a file states; imported on first use."""

from __future__ import annotations

__all__ = ["SCHEDULE_KINDS"]

SCHEDULE_KINDS = {
    "schedule": "synth.schedules.schedule:Schedule",
    "periodic": "synth.schedules.periodic:PeriodicSchedule",
    "symmetric": "synth.schedules.symmetric:SymmetricSchedule",
    "selection": "synth.schedules.selection:Selection",
}
