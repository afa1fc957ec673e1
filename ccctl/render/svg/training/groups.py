"""Groups as SVG: a row for each rank, a column for each iteration, a number and a colour for each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl.render import seconds
from ccctl.render.svg import COLOURS, Drawing, above, box, fitted, legend, text, text_width

if TYPE_CHECKING:
    from synth.groups import Groups

__all__ = ["pictures"]

_TOP, _CELL, _ROW, _GAP, _RACK = 40, 26, 18, 8, 16
_MOST_ROWS = 128


def pictures(groups: Groups, width: int) -> list[Drawing]:
    """Return as many iterations as fit, for at most 128 ranks; equal numbers in a column are a group."""
    labels = [f"{rank}{', slow' if rank in groups.slow_ranks else ''}" for rank in range(groups.ranks)]
    left = 14 + max(text_width(f"rank {one}") for one in labels)
    columns = min(groups.period, int((width - left - 12) // _CELL))
    parts = [
        text("iteration", left, 14, kind="axis"),
        *(
            text(str(at), left + at * _CELL + (_CELL - 2) / 2, _TOP - 8, anchor="middle")
            for at in range(columns)
        ),
    ]
    rows = list(_rows(groups, labels, columns, left))
    parts += [part for _, drawn in rows for part in drawn]
    bottom = rows[-1][0] if rows else float(_TOP)
    shown = sum(1 for _, drawn in rows if len(drawn) > 1)
    entries = [
        (box(8, 0, 20, 12, colour=COLOURS[0], edge="ink"), "a group of several racks"),
        (box(8, 0, 20, 12, colour=COLOURS[0]), "a group within a rack"),
        (box(8, 0, 20, 12, colour="paper", edge="grid"), "averages with none"),
        ("", "numbers: the groups of an iteration"),
    ]
    if columns < groups.period:
        entries.append(("", f"and {groups.period - columns} more iterations"))
    if shown < groups.ranks:
        entries.append(("", f"and {groups.ranks - shown} more ranks"))
    drawn, height = legend(entries, 8, width, bottom + 8)
    title = (
        f"{groups.pattern.replace('_', ' ')}, period {groups.period}, rho {groups.rho:.4g}, "
        f"{seconds(groups.predicted_s)} an iteration"
    )
    about = "Which ranks average their parameters together, iteration by iteration."
    return [Drawing(title, about, width, bottom + 8 + height + 8, (*parts, *drawn))]


def _rows(groups: Groups, labels: list[str], columns: int, left: float) -> Iterator[tuple[float, list[str]]]:
    """Yield (lower end in pixels, parts) of each rack's head and each rank's row."""
    rack_of = {rank: number for number, rack in enumerate(groups.racks) for rank in rack}
    number_of = [
        {rank: (number, group) for number, group in enumerate(division) for rank in group}
        for division in groups.iterations[:columns]
    ]
    y, shown = float(_TOP), 0
    for rack, ranks in enumerate(groups.racks):
        if shown >= _MOST_ROWS:
            return
        slow = rack in groups.slow_racks
        head = text(
            fitted(f"rack {rack}{', slow' if slow else ''}", left + columns * _CELL - 8),
            6,
            y + 11,
            colour="alarm" if slow else "faint",
        )
        y += _RACK
        yield y, [head]
        for rank in ranks[: _MOST_ROWS - shown]:
            shown += 1
            colour = "alarm" if rank in groups.slow_ranks else "ink"
            parts = [text(f"rank {labels[rank]}", left - 6, y + 13, anchor="end", colour=colour)]
            for at, found in enumerate(number_of):
                number, group = found[rank]
                crossing = len({rack_of[member] for member in group}) > 1
                parts += _cell(left + at * _CELL, y, number, len(group), crossing=crossing)
            y += _ROW
            yield y, parts
        y += _GAP


def _cell(x: float, y: float, number: int, size: int, *, crossing: bool) -> list[str]:
    wide, high = _CELL - 2, _ROW - 2
    if size == 1:
        return [box(x + 1, y + 1, wide - 2, high - 2, colour="paper", edge="grid")]
    colour = COLOURS[number % len(COLOURS)]
    cell = (
        box(x + 1, y + 1, wide - 2, high - 2, colour=colour, edge="ink")
        if crossing
        else box(x, y, wide, high, colour=colour)
    )
    return [cell, text(str(number), x + wide / 2, y + 12, anchor="middle", size=11, colour=above(colour))]
