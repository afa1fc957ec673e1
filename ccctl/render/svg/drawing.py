"""The elements of every picture as SVG: text, boxes and strokes, for light and dark backgrounds.

A picture is drawn for a given width, with fixed font sizes, so that it stays legible on a narrow screen. It
names colours by their meaning; its style sheet defines them for light and for dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from probes.base import as_content, shortened

__all__ = ["ALARM", "COLOURS", "GREY", "STYLE", "Drawing", "Entry", "above", "box", "document", "element"]
__all__ += ["figure", "fitted", "mark", "palette", "stroke", "swatch", "text", "text_width"]

# Okabe and Ito's colours, which colour-blind readers can distinguish; black is kept for text.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d31")
GREY = COLOURS[6]
# Sizes of letters in pixels, by the kind of text.
_FONT, _SIZES = 12, {"title": 14, "small": 11}
# Pixels after which overlapping lines take turns.
_PIECE = 8
# The most characters of a legend entry.
_MOST_WORDS = 300
# Widths of letters over their height, in DejaVu Sans, the widest of the usual fonts.
_THIN, _USUAL, _WIDE = 0.41, 0.68, 1.0
_THIN_LETTERS, _WIDE_LETTERS = frozenset("fijlrtI .,:;'!|()[]-/·"), frozenset("mwMW%@→←×+=<>…▲")
# Light and dark text on a coloured box, and the luminance of the box at which both have equal contrast.
_LIGHT, _DARK_INK, _EQUAL_CONTRAST = "#ffffff", "#111111", 0.19
# Marks of series: circle, square, triangle, diamond, inverted triangle, cross.
_SHAPES = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z",
    "m-3-3h6v6h-6Z",
    "m0-4.5l4 7.5h-8Z",
    "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5Z",
    "m0 4.5l4-7.5h-8Z",
    "m-1.2-4.2h2.4v3h3v2.4h-3v3h-2.4v-3h-3v-2.4h3Z",
)
# The colour of each meaning: (on a light background, on a dark one).
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

# An entry of a legend: a sign at 0,0 of 28 x 12 pixels, or "", and its meaning.
Entry = tuple[str, str]


@dataclass(frozen=True)
class Drawing:
    """One picture: its title, a sentence about it, its size in pixels, and its parts as SVG."""

    title: str
    about: str
    width: int
    height: float
    parts: tuple[str, ...]


def figure(
    title: str, about: str, width: int, parts: Iterable[str], bottom: float, entries: Iterable[Entry]
) -> Drawing:
    """Return the picture of ``parts``, which end at ``bottom``, with a legend of ``entries`` below.

    An entry without a meaning is left out.
    """
    legend, height = _legend(entries, width, bottom)
    return Drawing(title, about, width, bottom + height + 8, (*parts, *legend))


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
        kind = "title" if text_width(drawing.title, "title") <= width - 16 else ""
        inner += [
            text(fitted(drawing.title, width - 16, kind), 8, y + 16, kind=kind),
            element(drawing, y + 26),
        ]
        y += drawing.height + 42
    ground = box(0, 0, width, y, colour="paper")
    title = "; ".join(drawing.title for drawing in drawings)
    return element(Drawing(title, "", width, y, (f"<style>{STYLE}</style>", ground, *inner))) + "\n"


def text_width(words: str, kind: str = "") -> float:
    """Return the most pixels that the words take in usual fonts."""
    return _SIZES.get(kind, _FONT) * sum(map(_letter_width, words))


def _letter_width(letter: str) -> float:
    # Letters of Chinese, Japanese and Korean, from U+2E80 on, are as wide as they are high.
    wide = letter in _WIDE_LETTERS or letter >= "\u2e80"
    return _WIDE if wide else _THIN if letter in _THIN_LETTERS else _USUAL


def fitted(words: str, width: float, kind: str = "") -> str:
    """Return the words, cut at the end to fit into ``width`` pixels."""
    if text_width(words, kind) <= width:
        return words
    room, end = width - text_width("…", kind), 0
    while (room := room - text_width(words[end], kind)) >= 0:
        end += 1
    return words[:end] + "…"


def _tag(
    name: str, place: Mapping[str, object], inner: str = "", *, fill: str, line: str = "", kind: str = ""
) -> str:
    """Return an element of the class ``kind``; ``fill`` and ``line``, its border, are colours.

    A colour is a key of ``_MEANINGS``, or #rrggbb with or without opacity. ``fill`` may add a slash and an
    #rrggbb for dark backgrounds.
    """
    fill, _, dark = fill.partition("/")
    classes, attributes = [kind, "dark" if dark else ""], dict(place)
    for colour, attribute in ((fill, "fill"), (line, "stroke")):
        if colour in _MEANINGS:
            classes.append(f"{attribute[0]}-{colour}")
        else:
            attributes[attribute] = colour
    attributes |= {"class": " ".join(filter(None, classes)), "style": dark and f"--dark:{dark}"}
    written = "".join(
        f" {key}='{f'{value:.1f}' if isinstance(value, float) else value}'"
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def text(
    words: str, x: float, y: float, *, anchor: str = "start", colour: str = "ink", kind: str = ""
) -> str:
    """Return a line of text.

    Its kind is "title", "axis" for an axis title, "legend" for a legend entry, or "small".
    """
    place = {"x": x, "y": y, "text-anchor": anchor, "font-size": _SIZES.get(kind, _FONT)}
    return _tag("text", {**place, "font-family": "sans-serif"}, as_content(words), fill=colour, kind=kind)


def box(
    x: float, y: float, width: float, height: float, *, colour: str, edge: str = "", title: str = ""
) -> str:
    """Return a rectangle; it has a border if ``edge``, the border's colour, is not empty."""
    inner = f"<title>{as_content(title)}</title>" if title else ""
    place = {"x": x, "y": y, "width": max(0.0, width), "height": height, "stroke-width": 2 if edge else ""}
    return _tag("rect", place, inner, fill=colour, line=edge)


def stroke(
    path: str, colour: str, *, dashed: bool = False, width: float = 2, turn: tuple[int, int] = (0, 1)
) -> str:
    """Return a line without fill.

    ``turn`` (number, count) lets overlapping lines show in turns, piece by piece.
    """
    number, count = turn
    place: dict[str, object] = {"d": path, "fill": "none", "stroke": "", "stroke-width": f"{width:g}"}
    if number:
        place["stroke-dasharray"] = f"{_PIECE} {_PIECE * (count - 1)}"
        place["stroke-dashoffset"] = -_PIECE * number
    elif dashed:
        place["stroke-dasharray"] = "6 4"
    return _tag("path", place, fill="none", line=colour)


def mark(number: int, x: float, y: float, colour: str) -> str:
    """Return the mark of a series' point; shapes differ, to distinguish series without colours."""
    path = f"M{x:.1f} {y:.1f}{_SHAPES[number % len(_SHAPES)]}"
    return _tag("path", {"d": path}, fill=colour, kind="mark")


def swatch(colour: str, edge: str = "") -> str:
    """Return the sign of a colour in a legend."""
    return box(1, 0, 24, 12, colour=colour, edge=edge)


def palette(number: int) -> str:
    """Return the colour of the series of this number."""
    return COLOURS[number % len(COLOURS)]


# The sign of something wrong in a legend.
ALARM = _tag("path", {"d": "M12 0l8 12h-16Z"}, fill="alarm")


def above(colour: str) -> str:
    """Return the legible text colour on a box of ``colour``; for light/dark, one for each."""
    return "/".join(
        _LIGHT if _luminance(ground) < _EQUAL_CONTRAST else _DARK_INK for ground in colour.split("/")
    )


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.2)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _legend(entries: Iterable[Entry], width: int, top: float) -> tuple[list[str], float]:
    """Return (parts, height) of a legend, in as many rows as the width requires.

    A long meaning takes several lines.
    """
    parts, left, x, y = [], 8.0, 8.0, top
    for sign, meaning in entries:
        words = shortened(meaning, _MOST_WORDS)
        if not words:
            continue
        lines = wrap(words, max(8, int((width - left - 40) * len(words) / text_width(words))))
        needed = 32 + max(map(text_width, lines)) + 18
        if x > left and x + needed > width:
            x, y = left, y + 20
        if sign:
            parts.append(f"<g transform='translate({x:.1f},{y:.1f})'>{sign}</g>")
        for number, line in enumerate(lines):
            parts.append(text(line, x + 32 * bool(sign), y + 10 + 15 * number, kind="legend"))
        x += needed if sign else needed - 32
        if len(lines) > 1:
            x, y = left, y + 15 * (len(lines) - 1) + 20
    return parts, (y - top + 20 * (x > left)) if parts else 0.0
