"""Charts of lines over two axes, logarithmic or linear, as deterministic SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ccctl.render import seconds
from ccctl.render.svg.drawing import COLOURS, Drawing, fitted, legend, mark, stroke, text, text_width

__all__ = ["COLOURS", "Chart", "Series", "charts", "steps", "time_axis"]

_LEAST, _MOST = 1e-30, 1e30
# Half of the last tick's label, such as 326.7K, must fit to its right.
_RIGHT, _TOP, _BOTTOM, _HEIGHT = 28, 30, 46, 320
# Two charts are drawn side by side if the width in pixels is at least this.
_TWO = 700
_PIXELS_A_TICK, _PIXELS_A_TIME = 62, 90
_HALF_PIXELS = 34
# Points closer than this hide each other; lines with at least this many such points take turns.
_UPON, _LONG = 1.0, 8


@dataclass(frozen=True)
class Series:
    """One series: its points (x, y) in the order of x, above 0 if the axis is logarithmic.

    A ``dashed`` series has no marks at its points. A series that is not ``joined`` has no line.
    """

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Chart:
    """A panel of lines; ``x_name`` and ``y_name`` format tick values; a base of 0 is a linear axis.

    ``moments`` are positions on the x axis, each with a short label above it. With ``counted``, x is a count
    and has ticks at integers only. A linear y axis begins at 0, or near the least value with ``y_fits``.
    """

    title: str
    x_title: str
    lines: tuple[Series, ...]
    x_name: Callable[[float], str]
    y_name: Callable[[float], str]
    x_base: int = 2
    y_base: int = 10
    moments: tuple[tuple[float, str], ...] = ()
    counted: bool = False
    y_fits: bool = False


@dataclass(frozen=True)
class _Axis:
    """A map from values to positions, logarithmic if it has a base."""

    base: int
    ticks: tuple[float, ...]
    first: float
    last: float

    def at(self, value: float) -> float:
        scale = math.log if self.base else float
        low, high = scale(self.ticks[0]), scale(self.ticks[-1])
        return self.first + (scale(value) - low) / (high - low) * (self.last - self.first)


def charts(title: str, about: str, panels: Sequence[Chart], width: int, notes: Sequence[str] = ()) -> Drawing:
    """Return the panels side by side, or below each other if narrow, with a legend.

    ``notes`` are printed below.
    """
    across = 2 if width >= _TWO and len(panels) > 1 else 1
    each = width // across
    parts = []
    solid = dict.fromkeys(line.name for one in panels for line in one.lines if not line.dashed)
    shape = {name: number for number, name in enumerate(solid)}
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        moved = f"translate({column * each},{row * _HEIGHT})"
        parts += [f"<g transform='{moved}'>", *_chart(panel, each, shape), "</g>"]
    top = -(-len(panels) // across) * _HEIGHT
    lines = {(line.name, line.dashed): line for one in panels for line in one.lines}
    signs = [(_sign(line, shape), line.name) for line in lines.values()]
    drawn, height = legend([*signs, *(("", note) for note in notes)], 8, width, top + 4)
    return Drawing(title, about, width, top + height + 8, (*parts, *drawn))


def _sign(line: Series, shape: Mapping[str, int]) -> str:
    """Return the legend's sign for a line."""
    drawn = stroke("M0 6h28", line.colour, dashed=line.dashed) if line.joined else ""
    return drawn + ("" if line.dashed else mark(shape[line.name], 14, 6, line.colour))


def _chart(chart: Chart, width: int, shape: Mapping[str, int]) -> list[str]:
    lines = [
        replace(line, points=tuple(point for point in line.points if _drawable(point, chart)))
        for line in chart.lines
    ]
    lines = [line for line in lines if line.points]
    points = [point for line in lines for point in line.points]
    if not points:
        return [text(f"{chart.title}: nothing above 0", width / 2, _HEIGHT / 2, anchor="middle")]
    bottom = _HEIGHT - _BOTTOM
    y = _axis([y for _, y in points], chart.y_base, bottom, _TOP, _HALF_PIXELS, fits=chart.y_fits)
    left = 14 + max(text_width(chart.y_name(value)) for value in y.ticks)
    along = [*(x for x, _ in points), *(x for x, _ in chart.moments)]
    x = _axis(along, chart.x_base, left, width - _RIGHT, _PIXELS_A_TICK, 1.0 if chart.counted else 0.0)
    parts = [text(fitted(chart.title, width - 16), 8, _TOP - 12 - 6 * bool(chart.moments), kind="axis")]
    for value in x.ticks:
        parts.append(stroke(f"M{x.at(value):.1f} {_TOP}V{bottom}", "grid", width=1))
        parts.append(text(chart.x_name(value), x.at(value), bottom + 16, anchor="middle"))
    for value in y.ticks:
        parts.append(stroke(f"M{left:.1f} {y.at(value):.1f}H{width - _RIGHT}", "grid", width=1))
        parts.append(text(chart.y_name(value), left - 6, y.at(value) + 4, anchor="end"))
    middle = (left + width - _RIGHT) / 2
    parts.append(text(chart.x_title, middle, bottom + 36, anchor="middle", kind="axis"))
    parts += _moments(chart, x, bottom)
    every = [[(x.at(size), y.at(value)) for size, value in line.points] for line in lines]
    for line, places, (number, of) in zip(lines, every, _turns(every), strict=True):
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        if line.joined:
            parts.append(stroke(path, line.colour, dashed=line.dashed, turn=(number, of)))
        if not line.dashed:
            parts += [mark(shape[line.name], a, b, line.colour) for a, b in places[number::of]]
    return parts


def _turns(every: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[int, int]]:
    """Return (number, count) for each series: its place among the series that overlap with it."""
    bunches: list[list[int]] = []
    for at, places in enumerate(every):
        for bunch in bunches:
            if _alike(every[bunch[0]], places):
                bunch.append(at)
                break
        else:
            bunches.append([at])
    found = {at: (number, len(bunch)) for bunch in bunches for number, at in enumerate(bunch)}
    return [found[at] for at in range(len(every))]


def _alike(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> bool:
    """Return whether two long series look the same wherever both are drawn."""
    return len(one) == len(other) >= _LONG and all(
        abs(a - c) < _UPON and abs(b - d) < _UPON for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _moments(chart: Chart, x: _Axis, bottom: float) -> list[str]:
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


def _drawable(point: tuple[float, float], chart: Chart) -> bool:
    """Return whether a point can be drawn on the axes without squeezing the others."""
    return all(
        (_LEAST if base else 0.0) <= value <= _MOST
        for value, base in zip(point, (chart.x_base, chart.y_base), strict=True)
    )


def _axis(
    values: Sequence[float],
    base: int,
    first: float,
    last: float,
    apart: float,
    least: float = 0.0,
    *,
    fits: bool = False,
) -> _Axis:
    """Return an axis between round values around ``values``, with ticks ``apart`` pixels.

    Ticks of a linear axis are also at least ``least`` apart, and begin at 0 unless the axis ``fits``.
    """
    most = max(2, int(abs(last - first) / apart))
    if base:
        ticks = _powers(min(values), max(values), base, most)
    else:
        ticks = steps(max(values), most, least, min(values) if fits else 0.0)
    return _Axis(base, ticks, first, last)


def _powers(least: float, largest: float, base: int, most: int) -> tuple[float, ...]:
    """Return powers of ``base``; for base 10 with few ticks, also 2 and 5 times each power."""
    low = math.floor(math.log(least, base) + 1e-9)
    high = math.ceil(math.log(largest, base) - 1e-9)
    if base == 10:
        fine = [part * 10.0**power for power in range(low, high + 1) for part in (1, 2, 5)]
        first = max(at for at, value in enumerate(fine) if value <= least * (1 + 1e-9) or not at)
        last = min(
            (at for at, value in enumerate(fine) if value >= largest * (1 - 1e-9)), default=len(fine) - 1
        )
        last = max(last, first + 1)
        if last - first < most:
            return tuple(fine[first : last + 1])
    high = max(high, low + 1)
    step = max(1, -(-(high - low) // most))
    return tuple(float(base) ** power for power in range(low, high + step, step))


def time_axis(time_s: float, left: float, top: float, wide: float) -> Iterator[str]:
    """Yield an axis from 0 to ``time_s``, ``wide`` pixels long and 42 high, with ticks at round times."""
    yield stroke(f"M{left:.1f} {top + 2:.1f}h{wide:.1f}", "faint", width=1)
    for value in steps(time_s, max(2, int(wide // _PIXELS_A_TIME))):
        if value <= time_s * (1 + 1e-9):
            x = left + wide * value / time_s
            yield stroke(f"M{x:.1f} {top + 2:.1f}v5", "faint", width=1)
            yield text(seconds(value) if value else "0", x, top + 20, anchor="middle")
    yield text("time", left + wide / 2, top + 38, anchor="middle", kind="axis")


def steps(largest: float, most: int, least: float = 0.0, smallest: float = 0.0) -> tuple[float, ...]:
    """Return about ``most`` multiples of 1, 2 or 5 times a power of ten.

    They range from at most ``smallest`` to at least ``largest``, at least ``least`` apart.
    """
    rough = max((largest - smallest) / most, least, 1e-6 * smallest, 1e-30)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(part * unit for part in (1, 2, 5, 10) if part * unit >= rough * (1 - 1e-9))
    first = math.floor(smallest / step + 1e-9)
    last = max(first + 1, math.ceil(largest / step - 1e-9))
    return tuple(step * number for number in range(first, last + 1))
