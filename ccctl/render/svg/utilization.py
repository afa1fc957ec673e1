"""Utilization over time as SVG: a curve for each class of links and for the ports, a lane for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl.render.text.utilization import classes, over_time
from ccctl.render.units import percent, seconds
from probes.xml_text import as_content

if TYPE_CHECKING:
    from probes.columns import Floats, Indices
    from synth.schedule import Schedule
    from synth.simulation.schedule import Timing

__all__ = ["picture"]

_SLOTS = 200
_LEFT, _WIDTH, _HEIGHT, _LANE = 130, 800, 60, 12
_MOST_LANES = 64


def picture(schedule: Schedule) -> bytes:
    """The picture; lanes are of the first 64 ranks, as dark as what they send on is busy."""
    from synth.simulation.schedule import replay

    timing = replay(schedule)
    rows = list(_rows(schedule, timing))
    height = 40 + sum(_LANE if name.startswith("rank ") else _HEIGHT + 10 for name, _ in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="10">'
    ]
    y = 10
    for name, share in rows:
        lane = name.startswith("rank ")
        tall = _LANE if lane else _HEIGHT
        label = name if lane else f"{name}, mean {percent(float(share.mean()))}"
        parts.append(f'<text x="2" y="{y + tall - 2}">{as_content(label)}</text>')
        parts += _shades(share, y) if lane else [_curve(share, y)]
        y += tall if lane else tall + 10
    parts.append(f'<text x="{_LEFT}" y="{y + 15}">0</text>')
    total = seconds(timing.time_s)
    parts.append(f'<text x="{_LEFT + _WIDTH}" y="{y + 15}" text-anchor="end">{total}</text></svg>\n')
    return "\n".join(parts).encode()


def _rows(schedule: Schedule, timing: Timing) -> Iterator[tuple[str, Floats]]:
    """(name, the share of what is meant that is held in each part of the time)."""
    import numpy as np

    network, link = schedule.network, schedule.link
    end_s = timing.start_s + network.hold_s(schedule.chunk_bytes)[link]

    def share(rows: Indices, of: int) -> Floats:
        return over_time(timing.start_s[rows], end_s[rows], timing.time_s, _SLOTS, of)

    for name, chosen in classes(network):
        yield name.replace("_", " "), share(np.flatnonzero(chosen[link]), int(chosen.sum()))
    if len(network.ports):
        yield "ports", share(network.ports_along(link)[0], len(network.ports))
    links_of = np.bincount(network.src, minlength=network.ranks)
    for rank in range(min(network.ranks, _MOST_LANES)):
        yield f"rank {rank}", share(np.flatnonzero(network.src[link] == rank), int(links_of[rank]))


def _curve(share: Floats, top: int) -> str:
    step, bottom = _WIDTH / len(share), top + _HEIGHT
    steps = " ".join(
        f"V{bottom - _HEIGHT * value:.1f}H{_LEFT + step * (slot + 1):.1f}"
        for slot, value in enumerate(share.tolist())
    )
    return (
        f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="#eee"/>'
        f'<path d="M{_LEFT} {bottom}{steps}V{bottom}Z" fill="#36c"/>'
    )


def _shades(share: Floats, top: int) -> list[str]:
    step = _WIDTH / len(share)
    return [
        f'<rect x="{_LEFT + step * slot:.1f}" y="{top}" width="{step:.1f}" height="{_LANE - 1}" '
        f'fill="#36c" fill-opacity="{value:.3f}"/>'
        for slot, value in enumerate(share.tolist())
        if value > 0
    ]
