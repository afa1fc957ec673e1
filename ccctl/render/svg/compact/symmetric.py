"""No picture of a symmetric schedule: links are more than pixels, and those of an orbit all do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccctl.render.svg.drawing import Drawing
    from synth.symmetric_schedule import SymmetricSchedule

__all__ = ["pictures"]


def pictures(made: SymmetricSchedule, width: int) -> list[Drawing]:
    """None: ``ccctl show`` tells what there is in text."""
    return []
