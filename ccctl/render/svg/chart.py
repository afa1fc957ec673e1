"""Charts of lines over two axes, logarithmic or linear, as deterministic SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ccctl.render.svg.axes import Axis, Scale
from ccctl.render.svg.drawing import Drawing, Entry, figure, fitted, mark, stroke, text, text_width

__all__ = ["Chart", "Series", "charts", "series"]

# Points outside are left out, because an axis that reaches them would squeeze all others.
_LEAST, _MOST = 1e-30, 1e30
# The margins of the axes, and a chart's height, in pixels. Half of the last tick's label, such as 326.7K,
# must fit into the right margin.
_RIGHT, _TOP, _BOTTOM, _HEIGHT = 28, 30, 46, 320
# Two charts are drawn side by side if the width in pixels is at least this.
_TWO = 700
_X_PIXELS, _Y_PIXELS = 62, 34
# Points closer than ``_UPON`` pixels hide each other. Lines of at least ``_LONG`` points that all hide each
# other are drawn in turns.
_UPON, _LONG = 1.0, 8


@dataclass(frozen=True)
class Series:
    """One series: its points (x, y) in the order of x.

    A ``dashed`` series has no marks at its points. A series that is not ``joined`` has no line.
    """

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False
    joined: bool = True


def series(name: str, colour: str, x: Iterable[float], y: Iterable[float], **look: bool) -> Series:
    """Return the series of values ``y`` at ``x``; ``look`` says whether it is dashed or joined."""
    return Series(name, colour, tuple(zip(map(float, x), map(float, y), strict=True)), **look)


@dataclass(frozen=True)
class Chart:
    """A panel of lines; points that its axes cannot show are left out.

    ``moments`` are positions on the x axis, each with a short label above it.
    """

    x: Axis
    y: Axis
    lines: Sequence[Series]
    moments: tuple[tuple[float, str], ...] = ()

    def drawable(self) -> Chart:
        """Return the chart without points that its axes cannot show or that would squeeze the others."""
        lowest = [_LEAST if axis.base else 0.0 for axis in (self.x, self.y)]
        kept = []
        for line in self.lines:
            points = [
                point
                for point in line.points
                if all(low <= value <= _MOST for low, value in zip(lowest, point, strict=True))
            ]
            kept += [replace(line, points=tuple(points))] if points else []
        return replace(self, lines=kept)


def charts(
    title: str, about: str, panels: Iterable[Chart], width: int, entries: Iterable[Entry] = ()
) -> Drawing:
    """Return the panels side by side, or below each other if narrow, with a legend.

    ``entries`` are added to the legend.
    """
    shown = [panel.drawable() for panel in panels]
    across = 2 if width >= _TWO and len(shown) > 1 else 1
    each = width // across
    lines = {(line.name, line.dashed): line for panel in shown for line in panel.lines}
    solid = [line.name for line in lines.values() if not line.dashed]
    parts = []
    for number, panel in enumerate(shown):
        row, column = divmod(number, across)
        parts.append(f"<g transform='translate({column * each},{row * _HEIGHT})'>")
        parts += [*_chart(panel, each, solid), "</g>"]
    signs = [(_sign(line, solid), line.name) for line in lines.values()]
    return figure(title, about, width, parts, -(-len(shown) // across) * _HEIGHT + 4, [*signs, *entries])


def _sign(line: Series, solid: Sequence[str]) -> str:
    """Return the legend's sign for a line."""
    drawn = stroke("M0 6h26", line.colour, dashed=line.dashed) if line.joined else ""
    return drawn + ("" if line.dashed else mark(solid.index(line.name), 13, 6, line.colour))


def _chart(chart: Chart, width: int, solid: Sequence[str]) -> list[str]:
    points = [point for line in chart.lines for point in line.points]
    if not points:
        return [text(f"{chart.y.title}: nothing above 0", width / 2, _HEIGHT / 2, anchor="middle")]
    bottom = _HEIGHT - _BOTTOM
    y = chart.y.around([y for _, y in points], bottom, _TOP, _Y_PIXELS)
    left = 14 + max(text_width(chart.y.name(tick)) for tick in y.ticks)
    along = [*(x for x, _ in points), *(x for x, _ in chart.moments)]
    x = chart.x.around(along, left, width - _RIGHT, _X_PIXELS)
    parts = [text(fitted(chart.y.title, width - 16), 8, _TOP - 12 - 6 * bool(chart.moments), kind="axis")]
    for tick in y.ticks:
        parts.append(stroke(f"M{left:.1f} {y.at(tick):.1f}H{width - _RIGHT}", "grid", width=1))
        parts.append(text(chart.y.name(tick), left - 6, y.at(tick) + 4, anchor="end"))
    parts += [*chart.x.along(x, _TOP, bottom), *_moments(chart, x, bottom)]
    every = [[(x.at(a), y.at(b)) for a, b in line.points] for line in chart.lines]
    for line, places, (number, count) in zip(chart.lines, every, _turns(every), strict=True):
        # A single point becomes a short horizontal line, so that it shows even without a mark.
        ends = places if len(places) > 1 else [(a + shift, b) for a, b in places for shift in (-9, 9)]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in ends)
        if line.joined:
            parts.append(stroke(path, line.colour, dashed=line.dashed, turn=(number, count)))
        if not line.dashed:
            parts += [mark(solid.index(line.name), a, b, line.colour) for a, b in places[number::count]]
    return parts


def _turns(every: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[int, int]]:
    """Return for each series its place among the series that look like it, and the number of these."""
    alike = [[_alike(one, other) for other in every] for one in every]
    return [(sum(row[:at]), max(1, sum(row))) for at, row in enumerate(alike)]


def _alike(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> bool:
    """Return whether two long series have the same number of points, and each point hides its counterpart."""
    return len(one) == len(other) >= _LONG and all(
        abs(a - c) < _UPON and abs(b - d) < _UPON for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _moments(chart: Chart, x: Scale, bottom: float) -> list[str]:
    """Return a line for each moment; of overlapping labels only the first is kept."""
    parts, free = [], 0.0
    for value, word in sorted(chart.moments):
        at = x.at(value)
        parts.append(stroke(f"M{at:.1f} {_TOP}V{bottom}", "alarm", dashed=True, width=1))
        half = text_width(word) / 2 + 2
        if at - half >= free:
            # Leave room for the mark of a point at the top.
            parts.append(text(word, at, _TOP - 6, anchor="middle", colour="alarm"))
            free = at + half
    return parts
