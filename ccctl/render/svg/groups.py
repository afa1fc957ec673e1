"""Groups as SVG: a row for each rank, a column for each iteration, a colour for each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl.render.svg.chart import COLOURS
from ccctl.render.units import seconds
from probes.xml_text import as_content

if TYPE_CHECKING:
    from synth.groups.artifact import Groups

__all__ = ["picture"]

_LEFT, _TOP, _CELL, _ROW, _GAP = 96, 44, 26, 18, 10
_MOST_COLUMNS = 64
# Groups that cross racks are dark, those within one pale, ranks that average with none empty.
_WITHIN, _INK = 0.3, "#222222"


def picture(groups: Groups) -> str:
    """The picture, of at most 64 iterations; cells of one colour in a column are one group."""
    columns = min(groups.period, _MOST_COLUMNS)
    height = _TOP + groups.ranks * _ROW + len(groups.racks) * _GAP + 16
    width = max(_LEFT + columns * _CELL + 20, 420)
    title = (
        f"{groups.pattern.replace('_', ' ')}, period {groups.period}, rho {groups.rho:.4g}, "
        f"{seconds(groups.predicted_s)} an iteration"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="11" fill="{_INK}">',
        f"<title>{as_content(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="16" font-size="13">{as_content(title)}</text>',
        f'<text x="8" y="{_TOP - 6}">iteration</text>',
    ]
    parts += [
        f'<text x="{_LEFT + at * _CELL + _CELL / 2:g}" y="{_TOP - 6}" text-anchor="middle">{at}</text>'
        for at in range(columns)
    ]
    parts += [*_rows(groups, columns), "</svg>"]
    return "\n".join(parts) + "\n"


def _rows(groups: Groups, columns: int) -> Iterator[str]:
    rack_of = {rank: number for number, rack in enumerate(groups.racks) for rank in rack}
    number_of = [
        {rank: (number, group) for number, group in enumerate(division) for rank in group}
        for division in groups.iterations[:columns]
    ]
    y = _TOP
    for rack, ranks in enumerate(groups.racks):
        slow = ", slow" if rack in groups.slow_racks else ""
        for place, rank in enumerate(ranks):
            label = f"rank {rank}{', slow' if rank in groups.slow_ranks else ''}"
            middle = y + _ROW - 5
            yield f'<text x="{_LEFT - 6}" y="{middle}" text-anchor="end">{label}</text>'
            if not place:
                yield f'<text x="8" y="{y - 1}" font-size="9" fill="#7f7f7f">rack {rack}{slow}</text>'
            for at, found in enumerate(number_of):
                number, group = found[rank]
                crossing = len({rack_of[member] for member in group}) > 1
                yield _cell(_LEFT + at * _CELL, y, number, len(group), crossing=crossing)
            y += _ROW
        y += _GAP


def _cell(x: int, y: int, number: int, size: int, *, crossing: bool) -> str:
    place = f'x="{x}" y="{y}" width="{_CELL - 2}" height="{_ROW - 2}"'
    if size == 1:
        return f'<rect {place} fill="none" stroke="#dddddd"/>'
    colour = COLOURS[number % len(COLOURS)]
    return f'<rect {place} fill="{colour}" fill-opacity="{1 if crossing else _WITHIN}"/>'
