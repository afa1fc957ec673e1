"""A report as a picture: bus bandwidth and time over size, ours and the peers', predictions dashed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import TYPE_CHECKING

from ccctl.errors import UsageError
from ccctl.render.svg.chart import COLOURS, Chart, Line, document
from ccctl.render.units import about, seconds

if TYPE_CHECKING:
    from exec.benchmark.report import Measurement, Report, Row

__all__ = ["plot"]

Points = dict[float, float]


def plot(report: Report) -> str:
    """The SVG of a report's first element type and operator; raises UsageError where it has no rows.

    Of a size that was measured again the last one is drawn.
    """
    rows = [row for row in report.rows if row.shown is not None]
    if not rows:
        raise UsageError("the report has no measured rows to draw")
    first = rows[0]
    rows = [row for row in rows if _kind(row) == _kind(first)]
    title = f"{first.collective} on {report.ranks} ranks, {first.dtype}"
    title += "" if first.redop == "none" else f" {first.redop}"
    title += ", interrupted" if report.interrupted else ""
    bandwidths = _lines(rows, lambda one, row: one.busbw_gbs, _predicted_gbs)
    times = _lines(rows, lambda one, row: one.time_s, lambda row: row.predicted_s)
    return document(
        title,
        [
            Chart("bus bandwidth (GB/s)", "size (bytes)", bandwidths, about, lambda value: f"{value:g}"),
            Chart("time, median", "size (bytes)", times, about, seconds),
        ],
    )


def _kind(row: Row) -> tuple[str, str, str]:
    return (row.collective, row.dtype, row.redop)


def _predicted_gbs(row: Row) -> float | None:
    """The bus bandwidth at the predicted time: a row's own bandwidth, scaled by its time."""
    shown = row.shown
    if shown is None or row.predicted_s is None or row.predicted_s <= 0:
        return None
    return shown.busbw_gbs * shown.time_s / row.predicted_s


def _lines(
    rows: Iterable[Row],
    value: Callable[[Measurement, Row], float],
    predicted: Callable[[Row], float | None],
) -> tuple[Line, ...]:
    """A line for each program, dashed for what was predicted of it, and for each peer."""
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


def _line(name: str, colour: str, found: Points, *, dashed: bool = False) -> Line:
    """The points that a logarithmic axis has a place for, by size."""
    points = tuple((size, value) for size, value in sorted(found.items()) if size > 0 and value > 0)
    return Line(name, colour, points, dashed)
