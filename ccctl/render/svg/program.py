"""A program as a diagram: a lane for each threadblock, its steps in the order of their dependences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.chart import steps
from ccctl.render.svg.drawing import COLOURS, Drawing, above, box, fitted, legend, stroke, text, text_width
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Indices
    from synth.program import Program

__all__ = ["levels", "pictures"]

_TOP, _LANE, _GAP, _RIGHT = 10, 20, 6, 14
_MOST_LANES, _MOST_ARROWS = 64, 160
_PIXELS_A_TICK = 32
# (colour, legend) of each instruction, with the names of GC3.
_LOOKS = {
    "nop": ("#7f7f7f", "nop: only waits"),
    "s": (COLOURS[0], "s: send"),
    "r": (COLOURS[5], "r: receive"),
    "cpy": (COLOURS[7], "cpy: copy"),
    "re": (COLOURS[2], "re: add"),
    "rrc": (COLOURS[4], "rrc: receive, add, keep"),
    "rrs": (COLOURS[3], "rrs: receive, add, send on"),
    "rcs": ("#9ad1f2", "rcs: receive, keep, send on"),
    "rrcs": (COLOURS[1], "rrcs: receive, add, keep, send on"),
}


def levels(program: Program) -> Indices:
    """Return the length of the longest chain of steps before each step; -1 if it never runs.

    A step follows the previous one in its threadblock, the one it waits for, and the send that it receives.
    """
    from synth.simulation import links_of

    links = links_of(program)
    before = np.arange(program.steps) - 1
    before[program.tb_start[:-1][program.tb_start[:-1] < program.steps]] = -1
    columns = (before, links.goal, links.sender)
    left = np.sum([column >= 0 for column in columns], axis=0)
    unserved = links.receives & (links.sender < 0)
    followers: list[list[int]] = [[] for _ in range(program.steps)]
    for column in columns:
        for step, one in enumerate(column.tolist()):
            if one >= 0:
                followers[one].append(step)
    found = np.full(program.steps, -1, dtype=np.int64)
    ready = [int(step) for step in np.flatnonzero((left == 0) & ~unserved)]
    found[ready] = 0
    for step in ready:
        for follower in followers[step]:
            left[follower] -= 1
            found[follower] = max(found[follower], found[step] + 1)
            if not left[follower] and not unserved[follower]:
                ready.append(follower)
    ran = np.zeros(program.steps, dtype=bool)
    ran[ready] = True
    return np.where(ran, found, -1)


def pictures(program: Program, width: int) -> list[Drawing]:
    """Return a diagram with each step as early as its dependences allow; it shows no times.

    At most the first 64 threadblocks are drawn, and as many levels as fit.
    """
    if not program.steps:
        return []
    from synth.program import OPS

    level = levels(program)
    lanes = min(program.threadblocks, _MOST_LANES)
    names = [_name(program, block, width) for block in range(lanes)]
    left = 12 + max(text_width(name) for name in names)
    wide = width - left - _RIGHT
    count = int(level.max(initial=0)) + 1
    cell = max(3.0, min(34.0, wide / count))
    shown = min(count, int(wide / cell))
    top = {}
    y = float(_TOP)
    for block in range(lanes):
        y += _GAP if block and program.tb_rank[block] != program.tb_rank[block - 1] else 0
        top[block] = y
        y += _LANE
    parts = [
        part
        for block in range(lanes)
        for part in (
            text(names[block], left - 6, top[block] + 13, anchor="end"),
            box(left, top[block], cell * shown, _LANE - 3, colour="soft"),
        )
    ]
    drawn = [step for step in range(program.steps) if program.tb_of[step] in top and 0 <= level[step] < shown]
    for step in drawn:
        name = OPS[program.op[step]]
        colour, x, at = _LOOKS[name][0], left + cell * level[step], top[int(program.tb_of[step])]
        edge = min(1.0, cell / 8)
        parts.append(box(x, at, cell - edge, _LANE - 3, colour=colour, title=program.place(step)))
        if text_width(name, 11) < cell - 2:
            parts.append(text(name, x + cell / 2, at + 13, anchor="middle", size=11, colour=above(colour)))
    arrows = list(_arrows(program, level, drawn, top, left, cell))
    parts += arrows if len(arrows) <= _MOST_ARROWS else []
    parts += _axis(shown, left, y, cell)
    entries = [
        (box(8, 0, 20, 12, colour=colour), said)
        for name, (colour, said) in _LOOKS.items()
        if name in {OPS[program.op[step]] for step in drawn}
    ]
    if 0 < len(arrows) <= _MOST_ARROWS:
        entries.append((stroke("M4 6h24", "faint", width=1), "a message, from its sender to its receiver"))
    entries.append(("", "3 > 5 #1: receives from 3, sends to 5, channel 1"))
    for more, what in (
        (program.threadblocks - lanes, "threadblock"),
        (count - shown, "step in a row"),
    ):
        if more:
            entries.append(("", f"and {more} more {what}{'s' * (what == 'threadblock')}"))
    if stuck := int((level < 0).sum()):
        entries.append(("<path d='M14 0l8 12h-16Z' class='f-alarm'/>", f"{plural(stuck, 'step')} never run"))
    below, height = legend(entries, 8, width, y + 46)
    does = "custom" if program.input_chunks else program.collective.label
    title = (
        f"{program.name}: {does} on {plural(program.ranks, 'rank')}, {plural(program.steps, 'step')} in "
        f"{plural(program.threadblocks, 'threadblock')}"
    )
    about = "A lane for each threadblock: each step as early as those before it allow, without times."
    return [Drawing(title, about, width, y + 46 + height + 8, (*parts, *below))]


def _name(program: Program, block: int, width: int) -> str:
    send, receive = int(program.tb_send[block]), int(program.tb_recv[block])
    ends = f"{receive if receive >= 0 else ''} > {send if send >= 0 else ''}".strip()
    talks = f"{ends} #{program.tb_channel[block]}" if send >= 0 or receive >= 0 else "local"
    return fitted(f"rank {program.tb_rank[block]}: {talks}", width * 0.4)


def _arrows(
    program: Program,
    level: Indices,
    drawn: list[int],
    top: dict[int, float],
    left: float,
    cell: float,
) -> Iterator[str]:
    """Yield an arrow for each message, from its sending step to its receiving step."""
    from synth.simulation import links_of

    sender = links_of(program).sender
    there = set(drawn)
    for step in drawn:
        source = int(sender[step])
        if source < 0 or source not in there:
            continue
        first, last = top[int(program.tb_of[source])], top[int(program.tb_of[step])]
        down = last > first
        a = (left + cell * (level[source] + 0.9), first + (_LANE - 3 if down else 0))
        b = (left + cell * (level[step] + 0.1), last + (0 if down else _LANE - 3))
        yield stroke(f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}", "faint", width=1)


def _axis(count: int, left: float, top: float, cell: float) -> Iterator[str]:
    every = int(steps(count - 1, max(1, int(cell * count // _PIXELS_A_TICK)), 1)[1])
    yield stroke(f"M{left:.1f} {top + 2:.1f}h{cell * count:.1f}", "faint", width=1)
    for number in range(0, count, every):
        x = left + cell * (number + 0.5)
        yield stroke(f"M{x:.1f} {top + 2:.1f}v5", "faint", width=1)
        yield text(str(number), x, top + 20, anchor="middle")
    middle = max(left + cell * count / 2, left + 90)
    yield text("steps that must run before it, in a row", middle, top + 38, anchor="middle", kind="axis")
