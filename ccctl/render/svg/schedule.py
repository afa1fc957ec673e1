"""A schedule over time: a curve for each class of links and for the ports, a lane for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ccctl.render import percent, seconds
from ccctl.render.svg.chart import time_axis
from ccctl.render.svg.drawing import Drawing, box, fitted, legend, text
from ccctl.render.text import classes, over_time
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Floats, Indices
    from synth.schedules import Schedule, Timing

__all__ = ["MOST_LANES", "held", "in_time", "pictures", "slots"]

_BUSY = "#0072b2"
_TOP, _HEIGHT, _LANE, _GAP, _RIGHT = 10, 64, 14, 30, 34
MOST_LANES, _SHADES = 64, 8
_PIXELS_A_SLOT = 4


def pictures(schedule: Schedule, width: int) -> list[Drawing]:
    """Return a picture of the use of links, ports and ranks over time; at most 64 ranks have lanes."""
    from synth.simulation import replay

    timing = replay(schedule)
    if not 0 < timing.time_s < float("inf"):
        return []
    title = f"{schedule.collective.label} by {schedule.method} on {schedule.network.name}"
    about = f"{plural(schedule.sends, 'send')}: which share of links and ports is held, which ranks send."
    count = slots(width)
    lanes = _lanes(schedule, timing, count)
    words = ("held; of a rank: it sends", "a rank, for part of the moment")
    more = schedule.network.ranks - MOST_LANES
    signs = (*words, f"and {more} more ranks") if more > 0 else words
    return [in_time(title, about, width, timing.time_s, _curves(schedule, timing, count), lanes, signs)]


def slots(width: int) -> int:
    """Return the number of time slots in a picture of this width in pixels."""
    return (width - _left(width) - _RIGHT) // _PIXELS_A_SLOT


def in_time(
    title: str,
    about: str,
    width: int,
    time_s: float,
    curves: Iterable[tuple[str, Floats]],
    lanes: Iterable[tuple[str, Floats]],
    signs: Sequence[str],
) -> Drawing:
    """Draw curves, and below them lanes, each as (name, busy share in each time slot).

    ``signs`` are the legend's words for busy, for partly busy, and for what is not drawn.
    """
    left = _left(width)
    wide = width - left - _RIGHT
    parts, y = [], float(_TOP)
    for name, share in curves:
        parts.append(
            text(
                fitted(f"{name}: share held, mean {percent(float(share.mean()))}", width - 8),
                4,
                y + 10,
                kind="axis",
            )
        )
        parts += _curve(share, left, y + 18, wide)
        y += _HEIGHT + _GAP
    for name, share in lanes:
        parts.append(text(fitted(name, left - 8), left - 6, y + _LANE - 3, anchor="end"))
        parts += _shades(share, left, y, wide)
        y += _LANE
    parts += time_axis(time_s, left, y, wide)
    faint = f"<rect x='8' width='20' height='12' fill='{_BUSY}' fill-opacity='0.4'/>"
    keys = (box(8, 0, 20, 12, colour=_BUSY), faint, "")
    drawn, height = legend(list(zip(keys, signs, strict=False)), 8, width, y + 46)
    return Drawing(f"{title}: {seconds(time_s)}", about, width, y + 46 + height + 8, (*parts, *drawn))


def _left(width: int) -> int:
    return 96 if width < 600 else 130


def held(timing: Timing, rows: Indices, held_s: Floats, of: int, slots: int) -> Floats:
    """Return the share of ``of`` links or ports that the sends ``rows`` hold in each time slot."""
    start_s = timing.start_s[rows]
    return over_time(start_s, start_s + held_s, timing.time_s, slots, of)


def _curves(schedule: Schedule, timing: Timing, slots: int) -> Iterator[tuple[str, Floats]]:
    """Yield (name, busy share in each time slot)."""
    import numpy as np

    network, link = schedule.network, schedule.link
    held_s = network.hold_s(schedule.chunk_bytes)[link]
    for name, chosen in classes(network):
        rows = np.flatnonzero(chosen[link])
        yield name.replace("_", " "), held(timing, rows, held_s[rows], int(chosen.sum()), slots)
    if len(network.ports):
        users, entries = network.ports_along(link)[0], network.port_entries(link)
        held_s = network.port_hold_s(schedule.chunk_bytes)[entries]
        yield "ports", held(timing, users, held_s, len(network.ports), slots)


def _lanes(schedule: Schedule, timing: Timing, slots: int) -> Iterator[tuple[str, Floats]]:
    import numpy as np

    from synth.streams import divided

    apart = divided(schedule)
    network, link = apart.network, apart.link
    held_s = network.hold_s(schedule.chunk_bytes)[link]
    for rank in range(min(network.ranks, MOST_LANES)):
        rows = np.flatnonzero(network.src[link] == rank)
        yield f"rank {rank}", held(timing, rows, held_s[rows], 1, slots)


def _curve(share: Floats, left: float, top: float, wide: float) -> list[str]:
    step, bottom = wide / len(share), top + _HEIGHT - 14
    tall = bottom - top
    steps = "".join(
        f"V{bottom - tall * min(1.0, value):.1f}H{left + step * (slot + 1):.1f}"
        for slot, value in enumerate(share.tolist())
    )
    return [
        box(left, top, wide, tall, colour="soft"),
        f"<path d='M{left} {bottom:.1f}{steps}V{bottom:.1f}Z' fill='{_BUSY}'/>",
        text("100 %", left - 6, top + 9, anchor="end", colour="faint"),
        text("0 %", left - 6, bottom, anchor="end", colour="faint"),
    ]


def _shades(share: Floats, left: float, top: float, wide: float) -> list[str]:
    """Return one box for each run of slots with about the same share."""
    import numpy as np

    step = wide / len(share)
    levels = np.ceil(np.clip(share, 0, 1) * _SHADES - 1e-9).astype(int).tolist()
    parts, slot = [box(left, top, wide, _LANE - 2, colour="soft")], 0
    for level, run in groupby(levels):
        length = len(list(run))
        if level:
            place = f"x='{left + step * slot:.1f}' y='{top:.1f}' width='{step * length:.1f}'"
            shade = f"fill='{_BUSY}' fill-opacity='{level / _SHADES:g}'"
            parts.append(f"<rect {place} height='{_LANE - 2}' {shade}/>")
        slot += length
    return parts
