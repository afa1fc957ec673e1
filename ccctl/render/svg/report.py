"""A report as pictures: bandwidth and time over size, and where the time of a run went.

The breakdown of a run shows the way from the bound to the measured time, the critical path by kind of part,
and what each rank did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

from ccctl.render import about, seconds
from ccctl.render.svg.axes import SIZE, TIME, Axis, short
from ccctl.render.svg.chart import Chart, Series, charts
from ccctl.render.svg.drawing import COLOURS, GREY, Drawing
from ccctl.render.svg.lanes import Lane, LaneChart, bar, lanes

if TYPE_CHECKING:
    from exec.benchmark import Breakdown, Forecast, Report, Row

__all__ = ["Bounds", "pictures"]

Bounds = Mapping[tuple[str, int], float]
_MOST_RANKS = 32
_PREDICTED, _MEASURED, _LESS, _TOTAL = COLOURS[5], COLOURS[0], COLOURS[2], "#1f3a5f"
# (what a rank does, its time in RankTimes, colour)
_RANKS = (
    ("late", "late_s", COLOURS[1]),
    ("waiting", "waiting_s", "#c9ccd1"),
    ("copying", "copying_s", COLOURS[0]),
    ("adding", "adding_s", COLOURS[2]),
    ("no core", "core_s", COLOURS[3]),
    ("other", "other_s", COLOURS[4]),
)


def pictures(report: Report, width: int, bounds_s: Bounds | None = None) -> Iterator[Drawing]:
    """Yield bandwidth and time over size, a picture for each collective, element type and operator.

    ``bounds_s`` are proven lower bounds on the times by collective and size, drawn dashed. If a size was
    measured twice, the last measurement is drawn. A size with wrong elements is marked. A report without
    measurements has no picture. Pictures of rows with a breakdown follow.
    """
    kinds: dict[tuple[str, str, str], list[Row]] = {}
    for row in report.rows:
        if row.shown is not None:
            kinds.setdefault((row.collective, row.dtype, row.redop), []).append(row)
    for rows in kinds.values():
        yield _curves(report, rows, width, bounds_s or {})
    for row in report.rows:
        if row.breakdown is not None:
            yield from _breakdown(row, row.breakdown, width)


def _curves(report: Report, rows: list[Row], width: int, bounds_s: Bounds) -> Drawing:
    first = rows[0]
    title = f"{first.collective} on {report.ranks} ranks, {first.dtype}"
    title += "" if first.redop == "none" else f" {first.redop}"
    title += ", interrupted" if report.interrupted else ""
    axes = (Axis("bus bandwidth (GB/s)", short, 10), Axis("time, median", seconds, 10))
    wrong = tuple((float(row.size_bytes), "wrong") for row in rows if _is_wrong(row) and row.size_bytes > 0)
    about = "Bus bandwidth and median time over size: measured, predicted, of other libraries, and the bound."
    lines = zip(axes, _lines(rows, bounds_s), strict=True)
    return charts(title, about, [Chart(SIZE, axis, drawn, wrong) for axis, drawn in lines], width)


def _is_wrong(row: Row) -> bool:
    """Return whether elements were wrong, in place or out of place."""
    return any(one is not None and one.wrong for one in (row.out_of_place, row.in_place))


def _lines(rows: list[Row], bounds_s: Bounds) -> tuple[list[Series], list[Series]]:
    """Return the lines of bandwidth and of time: programs, dashed predictions, peers, the dashed bound.

    The bandwidth at a point is the row's measured bus bandwidth, scaled to the point's time.
    """
    plotted: list[tuple[str, str, Row, float | None]] = []
    plotted += [("measured", row.program, row, row.shown.time_s) for row in rows if row.shown]
    plotted += [("predicted", row.program, row, row.predicted_s) for row in rows]
    plotted += [("peer", name, row, peer.time_s) for row in rows for name, peer in row.peers.items()]
    colours = dict(zip(dict.fromkeys(name for _, name, _, _ in plotted), cycle(COLOURS), strict=False))
    plotted += [
        ("bound", "proven bound", row, bounds_s.get((row.collective, row.size_bytes))) for row in rows
    ]
    curves: dict[tuple[str, str], dict[float, tuple[float, float]]] = {}
    for kind, name, row, time_s in plotted:
        if row.shown and time_s and time_s > 0:
            rate = row.shown.busbw_gbs * row.shown.time_s / time_s
            curves.setdefault((kind, name), {})[row.size_bytes] = (rate, time_s)
    drawn: tuple[list[Series], list[Series]] = ([], [])
    for (kind, name), found in curves.items():
        label = f"{name}, predicted" if kind == "predicted" else name
        for panel, lines in enumerate(drawn):
            points = tuple((size, pair[panel]) for size, pair in sorted(found.items()))
            lines.append(Series(label, colours.get(name, GREY), points, kind in ("predicted", "bound")))
    return drawn


def _breakdown(row: Row, found: Breakdown, width: int) -> Iterator[Drawing]:
    """Yield pictures of the way from bound to measured time, the critical path, and the ranks."""
    what = f"{row.collective} of {about(row.size_bytes)} by {row.program}"
    if found.forecast is not None:
        yield _waterfall(found.forecast, found, what, width)
    if found.parts:
        yield _kinds(found, what, width)
    if found.ranks:
        yield _ranks(found, what, width)


def _waterfall(forecast: Forecast, found: Breakdown, what: str, width: int) -> Drawing:
    """Return bars that each begin where the previous bar ends, then a bar of the measured time."""
    rows = [bar("proven bound", [("proven bound", forecast.bound_s, GREY)], seconds(forecast.bound_s))]
    at_s = forecast.bound_s
    for name, until_s in (
        ("schedule", forecast.schedule_s),
        ("steps", forecast.schedule_s + forecast.steps_s),
        ("sharing of ports", forecast.time_s - forecast.memory_s),
        ("memory", forecast.time_s),
        ("not predicted", found.time_s),
    ):
        kind, colour = "predicted to come to it", _PREDICTED
        if until_s < at_s:
            kind, colour = "less than before", _LESS
        elif name == "not predicted":
            kind, colour = "measured beyond the prediction", _MEASURED
        if until_s != at_s:
            rows.append(bar(name, [(kind, until_s - at_s, colour)], _signed(until_s - at_s), begin=at_s))
        at_s = until_s
    rows.append(bar("measured", [("measured", found.time_s, _TOTAL)], seconds(found.time_s), first=True))
    run = f"run {found.iteration + 1}"
    return lanes(
        f"{what}: from the bound to the measured time",
        f"On {forecast.network}: what comes to the proven bound, one after the other, until the measured "
        "time.",
        LaneChart(rows, TIME),
        width,
        [("", f"bound: {forecast.bound}"), ("", f"{run}, the nearest to the median, {found.placement}")],
    )


def _kinds(found: Breakdown, what: str, width: int) -> Drawing:
    """Return a predicted and a measured bar for each kind of part of the critical path."""
    from ccctl.render.text import kinds_of, largest_difference

    rows: list[Lane] = []
    foretold = found.forecast is not None
    for name, predicted_s, measured_s, _ in kinds_of(found):
        if not predicted_s and not measured_s:
            continue
        if foretold:
            expected = "not predicted" if predicted_s is None else seconds(predicted_s)
            piece = ("predicted", predicted_s or 0.0, _PREDICTED)
            rows.append(bar(f"{name}, predicted", [piece], expected, first=True))
        piece = ("measured", measured_s, _MEASURED)
        rows.append(bar(f"{name}, measured", [piece], seconds(measured_s), first=not foretold))
    clocks = found.clock_error_s
    apart = f"clocks of the hosts may be {seconds(clocks)} apart" if clocks else ""
    return lanes(
        f"{what}: critical path, predicted and measured",
        "What the slowest rank waited for last, back to its start, by kind.",
        LaneChart(rows, replace(TIME, title="time on the critical path")),
        width,
        [("", largest_difference(found, _signed)), ("", apart)],
    )


def _ranks(found: Breakdown, what: str, width: int) -> Drawing:
    """Return a bar for each of the 32 slowest ranks: its activities since the first rank began."""
    slowest = sorted(found.ranks, key=lambda own: -own.time_s)[:_MOST_RANKS]
    rows = []
    for own in sorted(slowest, key=found.ranks.index):
        times = [(name, getattr(own, time), colour) for name, time, colour in _RANKS]
        pieces = [piece for piece in times if piece[1] > 0]
        slow = own.rank == found.slowest_rank
        label = f"rank {own.rank}, slowest" if slow else f"rank {own.rank}"
        rows.append(bar(label, pieces, seconds(own.time_s), alarm=slow))
    more = len(found.ranks) - len(rows)
    return lanes(
        f"{what}: what each rank did",
        "From when the first rank began until each was through; pieces in the order of the legend.",
        LaneChart(rows, TIME),
        width,
        [("", f"and {more} ranks that took less")] if more else [],
    )


def _signed(time_s: float) -> str:
    return f"{'+' if time_s >= 0 else '−'}{seconds(abs(time_s))}"
