"""Horizontal bar charts, stacked or not, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ccctl.render.svg.chart import steps
from ccctl.render.svg.drawing import (
    FONT,
    Drawing,
    above,
    box,
    fitted,
    legend,
    stroke,
    text,
    text_width,
)

__all__ = ["Bar", "Piece", "bars", "layers"]

_ROW, _GAP, _HIGH, _PIXELS_A_TICK, _TOP = 20, 8, 15, 70, 6


@dataclass(frozen=True)
class Piece:
    """A part of a bar: its name in the legend, its length and its colour."""

    name: str
    value: float
    colour: str


@dataclass(frozen=True)
class Bar:
    """A row: its label, its start, its pieces in order, and the text after it.

    ``first`` begins a group of rows. An ``alarm`` row is highlighted.
    """

    label: str
    pieces: tuple[Piece, ...]
    said: str
    begin: float = 0.0
    first: bool = False
    alarm: bool = False


def bars(
    title: str,
    about: str,
    rows: Sequence[Bar],
    axis: str,
    name: Callable[[float], str],
    width: int,
    more: Iterable[str] = (),
) -> Drawing:
    """Return the rows over one axis titled ``axis``; ``more`` are lines below the legend."""
    parts, y = layers(rows, axis, name, width)
    pieces = {piece.name: piece.colour for row in rows for piece in row.pieces}
    signs = [(box(8, 0, 20, 12, colour=colour), said) for said, colour in pieces.items()]
    drawn, height = legend([*signs, *(("", said) for said in more)], 8, width, y)
    return Drawing(title, about, width, y + height + 8, (*parts, *drawn))


def layers(
    rows: Sequence[Bar], axis: str, name: Callable[[float], str], width: int
) -> tuple[list[str], float]:
    """Return (parts, their lower end in pixels) of the rows and their axis."""
    left = min(12 + max(text_width(row.label) for row in rows), width * 0.46)
    right = min(12 + max(text_width(row.said) for row in rows), width * 0.3)
    wide = width - left - right
    # A negative value extends to the left of its start.
    ends = [(row.begin, row.begin + sum(piece.value for piece in row.pieces)) for row in rows]
    ticks = steps(max(max(pair) for pair in ends), max(2, int(wide // _PIXELS_A_TICK)))
    scale = wide / ticks[-1]
    bottom = _TOP + _ROW * len(rows) + _GAP * sum(row.first for row in rows[1:])
    parts = []
    for value in ticks:
        x = left + value * scale
        parts.append(stroke(f"M{x:.1f} {_TOP}V{bottom + 2:.1f}", "grid", width=1))
        parts.append(text(name(value) if value else "0", x, bottom + 16, anchor="middle"))
    parts.append(text(axis, left + wide / 2, bottom + 36, anchor="middle", kind="axis"))
    y = float(_TOP)
    for number, row in enumerate(rows):
        y += _GAP if row.first and number else 0
        colour = "alarm" if row.alarm else "ink"
        said = fitted(row.label, left - 10)
        parts.append(text(said, left - 6, y + FONT, anchor="end", colour=colour))
        at = row.begin
        for piece in row.pieces:
            x, long = left + min(at, at + piece.value) * scale, abs(piece.value) * scale
            words = f"{row.label}: {piece.name}, {name(piece.value)}"
            parts.append(box(x, y + 1, long, _HIGH, colour=piece.colour, title=words))
            if len(row.pieces) > 1 and text_width(piece.name) < long - 4:
                place = x + long / 2
                parts.append(text(piece.name, place, y + FONT, anchor="middle", colour=above(piece.colour)))
                parts.append(stroke(f"M{x:.1f} {y + 1:.1f}v{_HIGH}", "paper", width=1))
            at += piece.value
        end = left + max(row.begin, at) * scale
        said = fitted(row.said, max(right - 8, width - end - 8))
        parts.append(text(said, end + 5, y + FONT, colour=colour))
        y += _ROW
    return parts, bottom + 46
