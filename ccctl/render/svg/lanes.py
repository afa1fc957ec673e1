"""Lanes of blocks over one axis: bars, timelines and matrices."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ccctl.render import seconds
from ccctl.render.svg.axes import Axis, Scale
from ccctl.render.svg.drawing import Drawing, Entry, above, box, figure, fitted, swatch, text, text_width

__all__ = ["Block", "Lane", "LaneChart", "bar", "heading", "lanes", "room"]

_GROUP, _HEADING, _TOP, _COLUMNS_TOP, _LEAST_RIGHT = 8, 20, 6.0, 38.0, 28
# Height of a label in pixels. If lanes are lower, only every second (third, …) lane is labelled.
_LABEL = 13


@dataclass(frozen=True)
class Block:
    """A box from ``begin`` to ``end`` on the axis, with a word in it if that fits.

    ``kind`` is its meaning in the legend, "" if the legend does not explain it. ``share`` is the part of the
    lane's height that it fills, from below.
    """

    begin: float
    end: float
    colour: str
    kind: str = ""
    word: str = ""
    title: str = ""
    edge: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class Lane:
    """A row: its label, its blocks, and the text after the last block.

    ``first`` begins a group of lanes. An ``alarm`` lane is highlighted. ``height`` is in pixels; 0 stands for
    the usual height.
    """

    label: str
    blocks: tuple[Block, ...] = ()
    after: str = ""
    first: bool = False
    alarm: bool = False
    height: float = 0.0
    is_heading: bool = False


def heading(label: str, *, alarm: bool = False) -> Lane:
    """Return a line of text above lanes."""
    return Lane(label, first=True, alarm=alarm, height=_HEADING, is_heading=True)


def bar(
    label: str, pieces: Sequence[tuple[str, float, str]], after: str, begin: float = 0.0, **look: bool
) -> Lane:
    """Return a lane of consecutive pieces (kind, length, colour).

    If there are several, their lengths are in seconds. A negative length extends to the left.
    ``look`` says whether it is the first of a group, or an alarm.
    """
    blocks = []
    for kind, length, colour in pieces:
        word, value = (kind, seconds(length)) if len(pieces) > 1 else ("", after)
        title = f"{label}: {kind}, {value}".removeprefix(": ")
        blocks.append(Block(begin, begin + length, colour, kind, word, title))
        begin += length
    return Lane(label, tuple(blocks), after, **look)


def room(labels: Iterable[str], width: int) -> float:
    """Return the width in pixels beside the labels, for lanes with no text after their blocks."""
    return width - _LEAST_RIGHT - _left(labels, width)


def _left(labels: Iterable[str], width: int) -> float:
    return round(min(14 + max(map(text_width, labels), default=0.0), 0.46 * width))


@dataclass(frozen=True)
class LaneChart:
    """Lanes ``pitch`` pixels high over an axis from 0 to ``until`` or the end of the last block.

    Each lane has a background if there is ``ground``. A counted axis is drawn above the lanes: its columns
    are ``unit`` pixels wide, ``side`` is the title of the labels, and the columns of ``alarms`` stand out.
    """

    rows: Sequence[Lane]
    axis: Axis
    pitch: float = 20.0
    until: float = 0.0
    ground: bool = False
    unit: float = 0.0
    side: str = ""
    alarms: Container[int] = ()

    def scale(self, width: int) -> Scale:
        """Return the scale between the labels and the text after the lanes."""
        left = _left((row.label for row in self.rows if not row.is_heading), width)
        after = max((12 + text_width(row.after) for row in self.rows if row.after), default=0.0)
        ends = (max(block.begin, block.end) for row in self.rows for block in row.blocks)
        high = self.until or max(ends)
        right = left + self.unit * high if self.unit else width - max(_LEAST_RIGHT, min(after, 0.3 * width))
        return self.axis.until(high, left, right)

    def tops(self) -> list[float]:
        """Return the top of each row, then the lower end of the last."""
        y, found = _COLUMNS_TOP if self.axis.counted else _TOP, []
        for number, row in enumerate(self.rows):
            y += _GROUP if row.first and number else 0
            found.append(y)
            y += row.height or self.pitch
        return [*found, y]

    def parts(self, width: int) -> list[str]:
        """Return the lanes and their axis."""
        x, tops = self.scale(width), self.tops()
        placed = list(zip(self.rows, tops[:-1], strict=True))
        grounds = [
            box(x.first, top, x.last - x.first, _tall(row, self.pitch), colour="soft")
            for row, top in placed
            if self.ground and not row.is_heading
        ]
        axis = self._columns(x) if self.axis.counted else self.axis.along(x, tops[0], tops[-1])
        every = int(_LABEL // self.pitch) + 1
        drawn = [
            part
            for number, (row, top) in enumerate(placed)
            for part in _lane(row, x, top, _tall(row, self.pitch), width, labelled=number % every == 0)
        ]
        return [*grounds, *axis, *drawn]

    def _columns(self, x: Scale) -> Iterator[str]:
        """Yield the titles and the names of columns."""
        yield text(self.axis.title, x.first, 14, kind="axis")
        yield text(self.side, 8, _COLUMNS_TOP - 8, kind="axis")
        for tick in x.ticks:
            name, colour = self.axis.name(tick), "alarm" if round(tick) in self.alarms else "ink"
            yield text(name, x.at(tick + 0.5), _COLUMNS_TOP - 8, anchor="middle", colour=colour)

    def entries(self) -> list[Entry]:
        """Return the legend: each kind of block."""
        blocks = {block.kind: block for row in self.rows for block in row.blocks if block.kind}
        return [(swatch(block.colour, block.edge), kind) for kind, block in blocks.items()]


def lanes(
    title: str, about: str, chart: LaneChart, width: int, entries: Iterable[Entry] = (), *more: str
) -> Drawing:
    """Return the picture of the lanes and ``more`` parts; ``entries`` are added to its legend."""
    bottom = chart.tops()[-1] + (10 if chart.axis.counted else 46)
    parts = [*chart.parts(width), *more]
    return figure(title, about, width, parts, bottom, [*chart.entries(), *entries])


def _tall(row: Lane, pitch: float) -> float:
    return (row.height or pitch) - max(1.0, min(3.0, 0.15 * pitch))


def _lane(row: Lane, x: Scale, top: float, tall: float, width: int, *, labelled: bool) -> Iterator[str]:
    colour, line = "alarm" if row.alarm else "ink", top + (14 if row.height else tall / 2 + 4)
    if row.is_heading:
        # The lines of the axis do not cross the text.
        yield box(0, top, width, tall, colour="paper")
        yield text(fitted(row.label, width - 16), 8, line, colour=colour, kind="axis")
        return
    if labelled:
        yield text(fitted(row.label, x.first - 10), x.first - 6, line, anchor="end", colour=colour)
    for block in row.blocks:
        yield from _block(block, x, top, tall)
    if row.after:
        end = max((x.at(max(block.begin, block.end)) for block in row.blocks), default=x.first)
        yield text(fitted(row.after, width - end - 8), end + 5, line, colour=colour)


def _block(block: Block, x: Scale, top: float, tall: float) -> Iterator[str]:
    first, last = sorted((x.at(block.begin), x.at(block.end)))
    # Leave a gap after a block with a word or an edge; other blocks may touch.
    wide = last - first - (min(1.5, (last - first) / 8) if block.word or block.edge else 0)
    high = tall * block.share
    y, inset = top + tall - high, 1 if block.edge else 0
    place = (first + inset, y + inset, wide - 2 * inset, high - 2 * inset)
    yield box(*place, colour=block.colour, edge=block.edge, title=block.title)
    if block.word and text_width(block.word, "small") < wide - 2:
        middle, line, colour = first + wide / 2, y + high / 2 + 4, above(block.colour)
        yield text(block.word, middle, line, anchor="middle", colour=colour, kind="small")
