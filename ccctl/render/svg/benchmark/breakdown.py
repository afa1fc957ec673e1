"""The breakdown of a run as bar charts: from the bound to the measured time, by kind of part, and by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl.render import about, seconds
from ccctl.render.svg import COLOURS, Bar, Drawing, Piece, bars

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Forecast, Row

__all__ = ["pictures"]

_MOST_RANKS = 32
_PREDICTED, _MEASURED, _LESS = COLOURS[5], COLOURS[0], COLOURS[2]
_RANKS = {
    "late": COLOURS[1],
    "waiting": "#c9ccd1",
    "copying": COLOURS[0],
    "adding": COLOURS[2],
    "no core": COLOURS[3],
    "other": COLOURS[4],
}


def pictures(row: Row, width: int) -> list[Drawing]:
    """Return the steps to the measured time, the critical path and the ranks, if a row has a breakdown."""
    found = row.breakdown
    if found is None:
        return []
    what = f"{row.collective} of {about(row.size_bytes)} by {row.program}"
    drawn = []
    if found.forecast is not None:
        drawn.append(_waterfall(found.forecast, found, what, width))
    if found.parts:
        drawn.append(_kinds(found, what, width))
    if found.ranks:
        drawn.append(_ranks(found, what, width))
    return drawn


def _waterfall(told: Forecast, found: Breakdown, what: str, width: int) -> Drawing:
    """Return bars that each begin at the end of the previous one; the last is the measured time."""
    rows = [Bar("proven bound", (Piece("proven bound", told.bound_s, COLOURS[6]),), seconds(told.bound_s))]
    at_s = told.bound_s
    for name, until_s in (
        ("schedule", told.schedule_s),
        ("steps", told.schedule_s + told.steps_s),
        ("sharing of ports", told.time_s - told.memory_s),
        ("memory", told.time_s),
        ("not predicted", found.time_s),
    ):
        more_s = until_s - at_s
        if more_s:
            colour = _MEASURED if name == "not predicted" else _PREDICTED
            kind = "measured beyond the prediction" if name == "not predicted" else "predicted to come to it"
            piece = Piece(kind, more_s, colour) if more_s > 0 else Piece("less than before", more_s, _LESS)
            rows.append(Bar(name, (piece,), f"{_signed(more_s)}", at_s))
        at_s = until_s
    rows.append(
        Bar("measured", (Piece("measured", found.time_s, "#1f3a5f"),), seconds(found.time_s), first=True)
    )
    return bars(
        f"{what}: from the bound to the measured time",
        f"On {told.network}: what comes to the proven bound, one after the other, until the measured time.",
        rows,
        "time",
        seconds,
        width,
        [
            f"bound: {told.bound}",
            f"run {found.iteration + 1}, the nearest to the median, {found.placement}",
        ],
    )


def _kinds(found: Breakdown, what: str, width: int) -> Drawing:
    """Return a predicted and a measured bar for each kind of part of the critical path."""
    from ccctl.render.text.benchmark import kinds_of, largest_difference

    rows = []
    for name, predicted_s, measured_s, _ in kinds_of(found):
        if not predicted_s and not measured_s:
            continue
        if found.forecast is not None:
            said = "not predicted" if predicted_s is None else seconds(predicted_s)
            piece = Piece("predicted", predicted_s or 0.0, _PREDICTED)
            rows.append(Bar(f"{name}, predicted", (piece,), said, first=True))
        piece = Piece("measured", measured_s, _MEASURED)
        rows.append(Bar(f"{name}, measured", (piece,), seconds(measured_s), first=found.forecast is None))
    difference = largest_difference(found, _signed)
    more = [difference] if difference else []
    if found.clock_error_s:
        more.append(f"clocks of the hosts may be {seconds(found.clock_error_s)} apart")
    return bars(
        f"{what}: critical path, predicted and measured",
        "What the slowest rank waited for last, back to its start, by kind.",
        rows,
        "time on the critical path",
        seconds,
        width,
        more,
    )


def _ranks(found: Breakdown, what: str, width: int) -> Drawing:
    """Return a bar for each rank: its activities since the first rank began."""
    chosen = found.ranks
    if len(chosen) > _MOST_RANKS:
        slowest = {one.rank for one in sorted(chosen, key=lambda one: -one.time_s)[:_MOST_RANKS]}
        chosen = tuple(one for one in chosen if one.rank in slowest)
    rows = []
    for own in chosen:
        times = (own.late_s, own.waiting_s, own.copying_s, own.adding_s, own.core_s, own.other_s)
        pieces = tuple(
            Piece(name, time_s, colour)
            for (name, colour), time_s in zip(_RANKS.items(), times, strict=True)
            if time_s > 0
        )
        slow = own.rank == found.slowest_rank
        label = f"rank {own.rank}, slowest" if slow else f"rank {own.rank}"
        rows.append(Bar(label, pieces, seconds(own.time_s), alarm=slow))
    left_out = len(found.ranks) - len(chosen)
    return bars(
        f"{what}: what each rank did",
        "From when the first rank began until each was through; pieces in the order of the legend.",
        rows,
        "time",
        seconds,
        width,
        [f"and {left_out} ranks that took less"] if left_out else [],
    )


def _signed(time_s: float) -> str:
    return f"{'+' if time_s >= 0 else '−'}{seconds(abs(time_s))}"
