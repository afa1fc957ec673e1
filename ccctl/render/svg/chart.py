"""Charts over two logarithmic axes, as SVG written by hand: no library, the same bytes each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from probes.xml_text import as_content

__all__ = ["COLOURS", "Chart", "Line", "document"]

# Okabe and Ito's colours, told apart by people who see fewer of them too; black is kept for text.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d31")
_INK, _GRID, _FONT = "#222222", "#dddddd", "font-family='sans-serif' font-size='12'"
_LEAST, _MOST = 1e-30, 1e30
# Right of the last tick half of its value must fit: 326.7K.
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 28, 34, 46


@dataclass(frozen=True)
class Line:
    """One series: its points (x, y), both above 0, in the order of x."""

    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A panel of lines; ``x_name`` and ``y_name`` write a tick's value."""

    title: str
    x_title: str
    lines: tuple[Line, ...]
    x_name: Callable[[float], str]
    y_name: Callable[[float], str]
    x_base: int = 2


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis: from value to position."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.first + share * (self.last - self.first)


def document(title: str, charts: Sequence[Chart], width: int = 560, height: int = 380) -> str:
    """An SVG with the charts beside each other, and below them what each colour means."""
    names = list(dict.fromkeys((line.name, line.colour, line.dashed) for c in charts for line in c.lines))
    legend_rows = -(-len(names) // 4)
    whole = width * len(charts), height + 40 + 20 * legend_rows
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{whole[0]}' height='{whole[1]}' "
        f"viewBox='0 0 {whole[0]} {whole[1]}' role='img'>",
        f"<title>{as_content(title)}</title>",
        f"<rect width='{whole[0]}' height='{whole[1]}' fill='#ffffff'/>",
        _text(title, whole[0] / 2, 20, anchor="middle", size=14),
    ]
    for number, chart in enumerate(charts):
        parts += [f"<g transform='translate({number * width},24)'>", *_chart(chart, width, height), "</g>"]
    for number, (name, colour, dashed) in enumerate(names):
        x, y = 40 + (number % 4) * (whole[0] - 60) / 4, height + 42 + 20 * (number // 4)
        parts += [_stroke(f"M{x:.1f} {y - 4:.1f}h28", colour, dashed), _text(name, x + 34, y)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(chart: Chart, width: int, height: int) -> list[str]:
    lines = [replace(line, points=tuple(filter(_drawable, line.points))) for line in chart.lines]
    lines = [line for line in lines if line.points]
    points = [point for line in lines for point in line.points]
    if not points:
        return [_text(f"{chart.title}: nothing above 0", width / 2, height / 2, anchor="middle")]
    x = _axis([x for x, _ in points], chart.x_base, _LEFT, width - _RIGHT)
    y = _axis([y for _, y in points], 10, height - _BOTTOM, _TOP)
    parts = [_text(chart.title, (_LEFT + width - _RIGHT) / 2, _TOP - 10, anchor="middle")]
    bottom = height - _BOTTOM
    for value in _ticks(x, chart.x_base):
        at = x.at(value)
        parts.append(_stroke(f"M{at:.1f} {_TOP}V{bottom}", _GRID, width=1))
        parts.append(_text(chart.x_name(value), at, bottom + 16, anchor="middle"))
    for value in _ticks(y, 10):
        at = y.at(value)
        parts.append(_stroke(f"M{_LEFT} {at:.1f}H{width - _RIGHT}", _GRID, width=1))
        parts.append(_text(chart.y_name(value), _LEFT - 6, at + 4, anchor="end"))
    parts.append(_text(chart.x_title, (_LEFT + width - _RIGHT) / 2, bottom + 36, anchor="middle"))
    for line in lines:
        places = [(x.at(size), y.at(value)) for size, value in line.points]
        parts.append(_stroke("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places), line.colour, line.dashed))
        if not line.dashed:
            parts += [f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3' fill='{line.colour}'/>" for a, b in places]
    return parts


def _drawable(point: tuple[float, float]) -> bool:
    """Whether a point has a place on logarithmic axes, and leaves the others theirs."""
    return all(_LEAST <= value <= _MOST for value in point)


def _axis(values: Sequence[float], base: int, first: float, last: float) -> _Axis:
    """An axis from the power of ``base`` below the least value to that above the largest."""
    low = base ** math.floor(math.log(min(values), base) + 1e-9)
    high = base ** math.ceil(math.log(max(values), base) - 1e-9)
    return _Axis(low, high if high > low else low * base, first, last)


def _ticks(axis: _Axis, base: int) -> list[float]:
    """Powers of ``base``, so many apart that at most nine fit."""
    count = round(math.log(axis.high / axis.low, base))
    step = max(1, -(-count // 8))
    return [axis.low * float(base) ** power for power in range(0, count + 1, step)]


def _text(words: str, x: float, y: float, *, anchor: str = "start", size: int = 12) -> str:
    font = _FONT.replace("'12'", f"'{size}'")
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{_INK}'"
    return f"<text {place} {font}>{as_content(words)}</text>"


def _stroke(path: str, colour: str, dashed: bool = False, width: int = 2) -> str:
    dash = " stroke-dasharray='6 4'" if dashed else ""
    return f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='{width}'{dash}/>"
