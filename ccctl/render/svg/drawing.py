"""The elements of every picture as SVG: text, boxes and strokes, for light and dark backgrounds.

A picture is drawn for a given width, with one font size, so that it stays legible on a narrow screen. It
names colours by their meaning; its style sheet defines them for light and for dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from probes.base import as_content, shortened

__all__ = [
    "COLOURS",
    "FONT",
    "STYLE",
    "Drawing",
    "above",
    "box",
    "document",
    "element",
    "fitted",
    "legend",
    "mark",
    "stroke",
    "text",
    "text_width",
]

# Okabe and Ito's colours, which colour-blind readers can distinguish; black is kept for text.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d31")
FONT = 12
# Pixels after which overlapping lines take turns.
_PIECE = 8
# The most characters of a legend entry.
_MOST_WORDS = 300
# Average width of a letter over its height, in DejaVu Sans, the widest of the usual fonts.
_LETTER = 0.62
# Marks of series: circle, square, triangle, diamond, inverted triangle, cross.
_SHAPES = (
    "",
    "m-3-3h6v6h-6Z",
    "m0-4.5l4 7.5h-8Z",
    "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z",
    "m0 4.5l4-7.5h-8Z",
    "m-1.2-4.2h2.4v3h3v2.4h-3v3h-2.4v-3h-3v-2.4h3Z",
)
# (on light, on dark)
_MEANINGS = {
    "ink": ("#222222", "#e8eaed"),
    "faint": ("#5f6368", "#a5abb3"),
    "grid": ("#dddddd", "#3c4249"),
    "paper": ("#ffffff", "#16181c"),
    "soft": ("#f0f1f3", "#262a30"),
    "alarm": ("#b3261e", "#ff8a80"),
}


def _rules(dark: bool) -> str:
    return "".join(
        f".f-{name}{{fill:{pair[dark]}}}.s-{name}{{stroke:{pair[dark]}}}" for name, pair in _MEANINGS.items()
    )


# Elements may carry their own colour for a dark background.
_DARK = ".dark{fill:var(--dark)}"
STYLE = _rules(False) + "@media screen and (prefers-color-scheme:dark){" + _rules(True) + _DARK + "}"


@dataclass(frozen=True)
class Drawing:
    """One picture: its title, a sentence about it, its size in pixels, and its parts as SVG."""

    title: str
    about: str
    width: int
    height: float
    parts: tuple[str, ...]


def element(drawing: Drawing, top: float | None = None) -> str:
    """Return the picture as an ``svg`` element; ``top`` places it below others in one document."""
    place = (
        f"viewBox='0 0 {drawing.width} {drawing.height:.0f}' role='img' "
        f"width='{drawing.width}' height='{drawing.height:.0f}'"
    )
    place += "" if top is None else f" y='{top:.0f}'"
    head = f"<title>{as_content(drawing.title)}</title><desc>{as_content(drawing.about)}</desc>"
    return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {place}>{head}", *drawing.parts, "</svg>"])


def document(drawings: Sequence[Drawing]) -> str:
    """Return one SVG document with the titled pictures below each other."""
    width, y = max(drawing.width for drawing in drawings), 8.0
    inner = []
    for drawing in drawings:
        size = 14 if text_width(drawing.title, 14) <= width - 16 else 12
        inner += [
            text(fitted(drawing.title, width - 16, size), 8, y + 16, size=size),
            element(drawing, y + 26),
        ]
        y += drawing.height + 42
    title = "; ".join(drawing.title for drawing in drawings)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{y:.0f}' "
            f"viewBox='0 0 {width} {y:.0f}' role='img'>",
            f"<title>{as_content(title)}</title><style>{STYLE}</style>",
            f"<rect width='{width}' height='{y:.0f}' class='f-paper'/>",
            *inner,
            "</svg>\n",
        ]
    )


def text_width(words: str, size: int = FONT) -> float:
    """Return the most pixels that the words take in usual fonts."""
    return _LETTER * size * len(words)


def fitted(words: str, width: float, size: int = FONT) -> str:
    """Return the words, cut at the end to fit into ``width`` pixels."""
    most = max(1, int(width / (_LETTER * size)))
    return words if len(words) <= most else words[: most - 1] + "…"


def text(
    words: str,
    x: float,
    y: float,
    *,
    anchor: str = "start",
    size: int = FONT,
    colour: str = "ink",
    kind: str = "",
    turned: bool = False,
    dark: str = "",
) -> str:
    """Return a line of text; ``kind`` is "axis" for an axis title, "legend" for a legend entry.

    ``dark`` is another colour for a dark background.
    """
    names = f"{f'f-{colour}' if colour in _MEANINGS else ''} {kind}{' dark' if dark else ''}".strip()
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'" + (f" class='{names}'" if names else "")
    place += "" if colour in _MEANINGS else f" fill='{colour}'"
    place += f" style='--dark:{dark}'" if dark else ""
    turn = f" transform='rotate(-90 {x:.1f} {y:.1f})'" if turned else ""
    return f"<text {place}{turn} font-family='sans-serif' font-size='{size}'>{as_content(words)}</text>"


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    colour: str,
    edge: str = "",
    title: str = "",
    dark: str = "",
) -> str:
    """Return a rectangle; ``colour`` and ``edge`` (the border) are colours or their meanings.

    ``dark`` is another colour for a dark background.
    """
    filled = f"class='f-{colour}{f' s-{edge}' if edge else ''}'"
    if colour not in _MEANINGS:
        names = " ".join(filter(None, (f"s-{edge}" if edge else "", "dark" if dark else "")))
        filled = f"fill='{colour}'" + (f" class='{names}'" if names else "")
        filled += f" style='--dark:{dark}'" if dark else ""
    border = " stroke-width='2'" if edge else ""
    place = f"x='{x:.1f}' y='{y:.1f}' width='{max(0.0, width):.1f}' height='{height:.1f}'"
    inner = f"><title>{as_content(title)}</title></rect>" if title else "/>"
    return f"<rect {place} {filled}{border}{inner}"


def stroke(
    path: str, colour: str, *, dashed: bool = False, width: float = 2, turn: tuple[int, int] = (0, 1)
) -> str:
    """Return a line without fill.

    ``turn`` (number, count) lets overlapping lines show in turns, piece by piece.
    """
    number, of = turn
    dash = " stroke-dasharray='6 4'" if dashed else ""
    if number:
        dash = f" stroke-dasharray='{_PIECE} {_PIECE * (of - 1)}' stroke-dashoffset='{-_PIECE * number}'"
    paint = f"class='s-{colour}'" if colour in _MEANINGS else f"stroke='{colour}'"
    return f"<path d='{path}' fill='none' {paint} stroke-width='{width:g}'{dash}/>"


def above(colour: str) -> str:
    """Return the legible text colour on a box of ``colour``, which is #rrggbb."""
    return max(("#ffffff", "#111111"), key=lambda letters: _contrast(letters, colour))


def _contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    darker, brighter = sorted((_luminance(one), _luminance(other)))
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def mark(number: int, x: float, y: float, colour: str) -> str:
    """Return the mark of a series' point; shapes differ, to distinguish series without colours."""
    shape = number % len(_SHAPES)
    if not shape:
        return f"<circle class='mark' cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'/>"
    return f"<path class='mark' d='M{x:.1f} {y:.1f}{_SHAPES[shape]}' fill='{colour}'/>"


def legend(
    entries: Iterable[tuple[str, str]], left: float, width: float, top: float
) -> tuple[list[str], float]:
    """Return (parts, height) of a legend, in as many rows as the width requires.

    An entry is (a sign at 0,0 of 28 x 12 pixels, its meaning); a long meaning takes several lines.
    """
    parts, x, y = [], left, top
    most = max(8, int((width - left - 40) / (_LETTER * FONT)))
    for sign, words in entries:
        lines = wrap(shortened(words, _MOST_WORDS), most) or [""]
        needed = 34 + max(map(text_width, lines)) + 14
        if x > left and x + needed > width:
            x, y = left, y + 20
        parts.append(f"<g transform='translate({x:.1f},{y:.1f})'>{sign}</g>")
        for number, line in enumerate(lines):
            parts.append(text(line, x + 34, y + 10 + 15 * number, kind="legend"))
        x += needed
        if len(lines) > 1:
            x, y = left, y + 15 * (len(lines) - 1) + 20
    return parts, (y - top + 20 * (x > left)) if parts else 0.0
