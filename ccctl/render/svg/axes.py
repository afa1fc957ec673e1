"""Axes: how values become positions, and which round values have ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ccctl.render import about, seconds
from ccctl.render.svg.drawing import stroke, text

__all__ = ["SIZE", "TIME", "Axis", "Scale", "short"]

# Pixels between two ticks, by `text_width` of their names and a gap: a time such as "12.5 ms" takes 55, a
# number of two digits 16.
_PIXELS_A_TICK, _PIXELS_A_COUNT = 62, 24
# Values are rounded floats: a value this close to a tick, relative to a step, is at the tick.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Scale:
    """A map from values to positions between ``first`` and ``last``, logarithmic if it has a base."""

    base: int
    ticks: tuple[float, ...]
    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the position of a value in pixels."""
        scale = math.log if self.base else float
        low, high = scale(self.low), scale(self.high)
        return self.first + (scale(value) - low) / (high - low) * (self.last - self.first)


@dataclass(frozen=True)
class Axis:
    """The title of an axis and the text of its ticks; logarithmic if it has a base.

    A ``counted`` axis has ticks at integers only. A linear axis begins at 0, or near the least value if it
    ``fits``.
    """

    title: str
    name: Callable[[float], str]
    base: int = 0
    counted: bool = False
    fits: bool = False

    def around(self, values: Sequence[float], first: float, last: float, apart: float) -> Scale:
        """Return a scale that spans ``values`` between round ends.

        The scale runs from position ``first`` to ``last``, with ticks about ``apart`` pixels apart.
        """
        most = max(2, int(abs(last - first) / apart))
        if self.base:
            ticks = _powers(min(values), max(values), self.base, most)
        else:
            smallest = min(values) if self.fits else 0.0
            ticks = _steps(max(values), most, 1.0 if self.counted else 0.0, smallest)
        return Scale(self.base, ticks, ticks[0], ticks[-1], first, last)

    def until(self, value: float, first: float, last: float) -> Scale:
        """Return a linear scale from 0 to ``value``, with ticks at round values."""
        most = max(2, int((last - first) / (_PIXELS_A_COUNT if self.counted else _PIXELS_A_TICK)))
        ticks = _steps(value - self.counted, most, 1.0 if self.counted else 0.0)
        inside = tuple(tick for tick in ticks if tick <= (value - self.counted) * (1 + _ROUNDING))
        return Scale(0, inside, 0.0, value, first, last)

    def along(self, x: Scale, top: float, bottom: float) -> list[str]:
        """Return this axis below ``bottom``, 42 pixels high, with a line up to ``top`` at each tick."""
        parts = []
        # Names of ticks, 12 pixels high, stand 4 pixels below the axis; the title stands 18 below their foot.
        for tick in x.ticks:
            parts.append(stroke(f"M{x.at(tick):.1f} {top:.1f}V{bottom:.1f}", "grid", width=1))
            parts.append(text(self.name(tick), x.at(tick), bottom + 16, anchor="middle"))
        middle = (x.first + x.last) / 2
        return [*parts, text(self.title, middle, bottom + 34, anchor="middle", kind="axis")]


def short(value: float) -> str:
    """Return a number in as few digits as it needs."""
    return f"{value:g}"


def _time(value_s: float) -> str:
    return seconds(value_s) if value_s else "0"


TIME = Axis("time", _time)
SIZE = Axis("size (bytes)", about, 2)


def _powers(least: float, largest: float, base: int, most: int) -> tuple[float, ...]:
    """Return powers of ``base``; for base 10 with few ticks, also 2 and 5 times each power."""
    low = math.floor(math.log(least, base) + _ROUNDING)
    high = math.ceil(math.log(largest, base) - _ROUNDING)
    if base == 10:
        fine = [part * 10.0**power for power in range(low, high + 1) for part in (1, 2, 5)]
        first = max(at for at, value in enumerate(fine) if value <= least * (1 + _ROUNDING) or not at)
        ends = (at for at, value in enumerate(fine) if value >= largest * (1 - _ROUNDING))
        last = max(next(ends, len(fine) - 1), first + 1)
        if last - first < most:
            return tuple(fine[first : last + 1])
    high = max(high, low + 1)
    step = max(1, -(-(high - low) // most))
    return tuple(float(base) ** power for power in range(low, high + step, step))


def _steps(largest: float, most: int, least: float = 0.0, smallest: float = 0.0) -> tuple[float, ...]:
    """Return about ``most`` ticks that enclose the values from ``smallest`` to ``largest``.

    Ticks are multiples of a step: 1, 2 or 5 times a power of ten. The step is not below ``least``.
    """
    # Six digits, as `short` writes, must tell ticks apart. If all values are nearly 0, any step will do.
    rough = max((largest - smallest) / most, least, 1e-6 * smallest)
    rough = rough if rough > 1e-30 else 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(part * unit for part in (1, 2, 5, 10) if part * unit >= rough * (1 - _ROUNDING))
    first = math.floor(smallest / step + _ROUNDING)
    last = max(first + 1, math.ceil(largest / step - _ROUNDING))
    return tuple(step * number for number in range(first, last + 1))
