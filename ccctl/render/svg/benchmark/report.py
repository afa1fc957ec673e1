"""A report as pictures: bus bandwidth and time over size, predictions dashed, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING

from ccctl.render import about, seconds
from ccctl.render.svg import COLOURS, Chart, Drawing, Series, charts
from ccctl.render.svg.benchmark import breakdown

if TYPE_CHECKING:
    from exec.benchmark import Measurement, Report, Row

__all__ = ["Bounds", "pictures"]

BOUND = "#7f7f7f"
Bounds = Mapping[tuple[str, int], float]
Points = dict[float, float]


def pictures(report: Report, width: int, bounds_s: Bounds | None = None) -> list[Drawing]:
    """Return bandwidth and time over size, a picture for each collective, element type and operator.

    ``bounds_s`` are proven lower bounds on the times by collective and size, drawn dashed. If a size was
    measured twice, the last measurement is drawn. A size with wrong elements is marked. A report without
    measurements has no picture. Pictures of rows with a breakdown follow.
    """
    kinds: dict[tuple[str, str, str], list[Row]] = {}
    for row in report.rows:
        if row.shown is not None:
            kinds.setdefault((row.collective, row.dtype, row.redop), []).append(row)
    drawn = [_picture(report, rows, width, bounds_s or {}) for rows in kinds.values()]
    return [*drawn, *(one for row in report.rows for one in breakdown.pictures(row, width))]


def _picture(report: Report, rows: list[Row], width: int, bounds_s: Bounds) -> Drawing:
    first = rows[0]
    title = f"{first.collective} on {report.ranks} ranks, {first.dtype}"
    title += "" if first.redop == "none" else f" {first.redop}"
    title += ", interrupted" if report.interrupted else ""
    bandwidths = _lines(rows, lambda one, row: one.busbw_gbs, _predicted_gbs)
    times = _lines(rows, lambda one, row: one.time_s, lambda row: row.predicted_s)
    bandwidths += _bound(
        {row.size_bytes: _at_gbs(row, bounds_s.get((row.collective, row.size_bytes))) for row in rows}
    )
    times += _bound({row.size_bytes: bounds_s.get((row.collective, row.size_bytes)) for row in rows})
    wrong = tuple((float(row.size_bytes), "wrong") for row in rows if _is_wrong(row) and row.size_bytes > 0)
    return charts(
        title,
        "Bus bandwidth and median time over size: measured, predicted, of other libraries, and the bound.",
        [
            Chart(
                "bus bandwidth (GB/s)",
                "size (bytes)",
                bandwidths,
                about,
                lambda value: f"{value:g}",
                moments=wrong,
            ),
            Chart("time, median", "size (bytes)", times, about, seconds, moments=wrong),
        ],
        width,
    )


def _is_wrong(row: Row) -> bool:
    """Return whether elements were wrong, in place or out of place."""
    return any(one is not None and one.wrong for one in (row.out_of_place, row.in_place))


def _bound(found: Mapping[int, float | None]) -> tuple[Series, ...]:
    points = {float(size): value for size, value in found.items() if value}
    line = _line("proven bound", BOUND, points, dashed=True)
    return (line,) if line.points else ()


def _predicted_gbs(row: Row) -> float | None:
    return _at_gbs(row, row.predicted_s)


def _at_gbs(row: Row, time_s: float | None) -> float | None:
    """Return the bus bandwidth that the row would have with the time ``time_s``."""
    shown = row.shown
    if shown is None or time_s is None or time_s <= 0:
        return None
    return shown.busbw_gbs * shown.time_s / time_s


def _lines(
    rows: Iterable[Row],
    value: Callable[[Measurement, Row], float],
    predicted: Callable[[Row], float | None],
) -> tuple[Series, ...]:
    """Return a line for each program, a dashed one for its prediction, and a line for each peer."""
    measured: dict[str, Points] = {}
    expected: dict[str, Points] = {}
    peers: dict[str, Points] = {}
    for row in rows:
        if row.shown is not None:
            measured.setdefault(row.program, {})[row.size_bytes] = value(row.shown, row)
        if (foretold := predicted(row)) is not None:
            expected.setdefault(row.program, {})[row.size_bytes] = foretold
        for name, peer in row.peers.items():
            peers.setdefault(name, {})[row.size_bytes] = value(peer, row)
    colours = dict(zip([*measured, *peers], cycle(COLOURS), strict=False))
    lines = [_line(name, colours[name], found) for name, found in measured.items()]
    lines += [
        _line(f"{name}, predicted", colours[name], found, dashed=True) for name, found in expected.items()
    ]
    lines += [_line(name, colours[name], found) for name, found in peers.items()]
    return tuple(line for line in lines if line.points)


def _line(name: str, colour: str, found: Points, *, dashed: bool = False) -> Series:
    """Return the points by size, without those that a logarithmic axis cannot show."""
    points = tuple((size, value) for size, value in sorted(found.items()) if size > 0 and value > 0)
    return Series(name, colour, points, dashed)
