"""The kinds of schedules by the words under which they are written; none is loaded before it is used."""

from __future__ import annotations

__all__ = ["SCHEDULE_KINDS"]

SCHEDULE_KINDS = {
    "schedule": "synth.schedules.schedule:Schedule",
    "periodic": "synth.schedules.periodic:PeriodicSchedule",
    "symmetric": "synth.schedules.symmetric:SymmetricSchedule",
    "selection": "synth.schedules.selection:Selection",
}
