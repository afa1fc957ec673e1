"""A program as a diagram: a lane for each threadblock, its steps in the order of their dependences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render.svg.axes import Axis, Scale, short
from ccctl.render.svg.drawing import ALARM, COLOURS, GREY, Drawing, Entry, stroke
from ccctl.render.svg.lanes import Block, Lane, LaneChart, lanes, room
from ccctl.render.text import MEANINGS
from probes.base import plural
from synth.program import OPS

if TYPE_CHECKING:
    from probes.base import Indices
    from synth.program import Program

__all__ = ["levels", "pictures"]

# The most threadblocks drawn, and the most arrows. More arrows would hide the blocks below them, so then none
# are drawn.
_MOST_LANES, _MOST_ARROWS = 64, 160
_LEAST_CELL, _MOST_CELL = 3.0, 34.0
# The colour of each instruction, with the names of GC3 and MSCCL++.
_LOOKS = {
    "nop": GREY,
    "s": COLOURS[0],
    "r": COLOURS[5],
    "cpy": COLOURS[7],
    "re": COLOURS[2],
    "rrc": COLOURS[4],
    "rrs": COLOURS[3],
    "rcs": "#9ad1f2",
    "rrcs": COLOURS[1],
    "glre": "#332288",
    "gstore": "#c5a3e0",
    "signal": "#b0b0b0",
    "wait": "#d0d0d0",
}
_AXIS = Axis("steps that come first (no times)", short, counted=True)


def levels(program: Program) -> Indices:
    """Return the length of the longest chain of steps before each step; -1 if it never runs.

    A step follows the previous step of its threadblock, the step it waits for, and the send that it receives.
    """
    from synth.simulation import links_of, run

    links = links_of(program)
    first = set(program.tb_start.tolist())
    goal, sender = links.goal.tolist(), links.sender.tolist()
    found = np.full(program.steps, -1, dtype=np.int64)
    for step in run(links, program.steps + 1)[0].tolist():
        before = [goal[step], sender[step], -1 if step in first else step - 1]
        found[step] = 1 + max((found[one] for one in before if one >= 0), default=-1)
    return found


def pictures(program: Program, width: int) -> Iterator[Drawing]:
    """Yield a diagram with each step as early as its dependences allow; it shows no times.

    At most the first 64 threadblocks are drawn, and as many levels as fit.
    """
    if not program.steps:
        return
    level = levels(program)
    blocks = min(program.threadblocks, _MOST_LANES)
    names = [_name(program, block) for block in range(blocks)]
    count, wide = int(level.max(initial=0)) + 1, room(names, width)
    cell = max(_LEAST_CELL, min(_MOST_CELL, wide / count))
    shown = min(count, int(wide / cell))
    drawn = [step for step in range(int(program.tb_start[blocks])) if 0 <= level[step] < shown]
    steps: list[list[Block]] = [[] for _ in names]
    for step in drawn:
        name, at = OPS[program.op[step]], int(level[step])
        words = f"{name}: {MEANINGS[name]}"
        steps[program.tb_of[step]].append(Block(at, at + 1, _LOOKS[name], words, name, program.place(step)))
    rank = program.tb_rank
    rows = [
        Lane(name, tuple(steps[block]), first=block > 0 and rank[block] != rank[block - 1])
        for block, name in enumerate(names)
    ]
    chart = LaneChart(rows, _AXIS, until=shown, ground=True, unit=cell, side="threadblock")
    arrows = list(_arrows(program, level, drawn, chart.scale(width), chart.tops()))
    arrows = arrows if len(arrows) <= _MOST_ARROWS else []
    message = (stroke("M2 6h22", "faint", width=1), "a message, from its sender to its receiver")
    stuck, more = int((level < 0).sum()), program.threadblocks - blocks
    entries: list[Entry] = [
        *([message] if arrows else []),
        ("", "3 > 5 #1: receives from 3, sends to 5, channel 1"),
        ("", f"and {more} more threadblocks" if more else ""),
        ("", f"and {count - shown} more steps in a row" if count > shown else ""),
        (ALARM, f"{plural(stuck, 'step')} never run" if stuck else ""),
    ]
    does = "custom" if program.input_chunks else program.collective.label
    title = f"{program.name}: {does} on {plural(program.ranks, 'rank')}, {plural(program.steps, 'step')}"
    yield lanes(
        f"{title} in {plural(program.threadblocks, 'threadblock')}",
        "A lane for each threadblock: each step as early as those before it allow, without times.",
        chart,
        width,
        entries,
        *arrows,
    )


def _name(program: Program, block: int) -> str:
    send, receive = (int(column[block]) for column in (program.tb_send, program.tb_recv))
    ends = f"{receive if receive >= 0 else ''} > {send if send >= 0 else ''}".strip()
    talks = f"{ends} #{program.tb_channel[block]}" if send >= 0 or receive >= 0 else "local"
    return f"rank {program.tb_rank[block]}: {talks}"


def _arrows(program: Program, level: Indices, drawn: list[int], x: Scale, tops: list[float]) -> Iterator[str]:
    """Yield a line for each message, from its sending step to its receiving step."""
    from synth.simulation import links_of

    sender, there = links_of(program).sender.tolist(), set(drawn)
    for step in drawn:
        source = sender[step]
        if source in there:
            first, last = (tops[program.tb_of[end]] for end in (source, step))
            down, up = (17, 0) if last > first else (0, 17)
            start, end = x.at(level[source] + 0.9), x.at(level[step] + 0.1)
            yield stroke(f"M{start:.1f} {first + down:.1f}L{end:.1f} {last + up:.1f}", "faint", width=1)
