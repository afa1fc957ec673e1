"""Pictures of schedules: the use of links over time, and the predicted time for each size of a selection.

Curves show the share of links and ports that is held. A lane shows when a rank sends, or when an orbit of
links is held; the links of an orbit are all equally busy. A periodic schedule is shown for its first periods,
until the pipeline is full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render import percent, seconds
from ccctl.render.svg.axes import SIZE, TIME, Axis, short
from ccctl.render.svg.chart import Chart, charts, series
from ccctl.render.svg.drawing import COLOURS, GREY, Drawing, palette, swatch
from ccctl.render.svg.lanes import Block, Lane, LaneChart, heading, lanes, room
from ccctl.render.text import busbw_gbs, classes, is_behind_ports, over_time
from probes.base import plural
from synth.simulation import replay
from synth.streams import divided

if TYPE_CHECKING:
    from probes.base import Floats, Indices
    from synth.schedules import PeriodicSchedule, Schedule, Selection, SymmetricSchedule, Timing

__all__ = ["periodic", "schedule", "selection", "symmetric"]

_BUSY = COLOURS[0]
# Opacities of a colour, in hexadecimal: the larger the share held in a slot, the more opaque.
_SHADES = ("20", "40", "60", "80", "a0", "c0", "e0", "ff")
# Heights of curves and lanes, and the width of a slot, in pixels.
_CURVE, _LANE, _SLOT = 54, 14, 4
_MOST_LANES, _MOST_SENDS, _FULL_PERIODS = 64, 1_000_000, 3


@dataclass(frozen=True, eq=False)
class _Use:
    """A lane or curve of ``count`` links or ports, the sends (``rows``) that hold them, and how long."""

    name: str
    rows: Indices
    held_s: Floats
    count: int = 1


def schedule(made: Schedule, width: int) -> Iterator[Drawing]:
    """Yield a picture of the use of links, ports and ranks over time; at most 64 ranks have lanes."""
    about = f"{plural(made.sends, 'send')}: which share of links and ports is busy, which ranks send."
    words = ["busy; a rank is busy while it sends", "busy for part of that time step"]
    if (more := made.network.ranks - _MOST_LANES) > 0:
        words.append(f"and {more} more ranks")
    return _over_time(made, replay(made), about, words, _classes(made), _ranks(made), width)


def periodic(made: PeriodicSchedule, width: int) -> Iterator[Drawing]:
    """Yield a picture of the use of links, ports and ranks in the first periods, with eager sends."""
    if not len(made.chunk):
        return
    shown = math.ceil(made.latency_s / made.period_s) + _FULL_PERIODS
    shown = max(1, min(shown, made.periods, _MOST_SENDS // len(made.chunk)))
    for one in schedule(made.expanded(shown), width):
        yield replace(one, title=f"{one.title}: {shown} of {made.periods} periods")


def symmetric(made: SymmetricSchedule, width: int) -> Iterator[Drawing]:
    """Yield a picture of the use of links and ports during the listed sends, at most 64 orbits as lanes."""
    if not len(made.chunk):
        return
    network = made.network
    about = (
        f"{plural(len(made.chunk), 'send')} listed, {network.translations - 1} shifted copies of each: "
        "which share of links and ports is busy."
    )
    words = ["busy; links: all alike", "busy for part of that time step"]
    if (more := len(network.src) - _MOST_LANES) > 0:
        words.append(f"and {plural(more, 'more kind')} of links")
    held_s, rows = network.hold_s(made.chunk_bytes)[made.link], np.arange(len(made.link))
    # The mean over orbits is that over all links or ports, as orbits are equally large.
    uses = [_Use("links", rows, held_s, len(network.src))]
    if len(network.ports):
        users = np.repeat(rows, np.diff(network.link_port_start)[made.link])
        uses.append(_Use("ports", users, held_s[users], len(network.ports)))
    names = [f"like {src}→{dst}" for src, dst in zip(network.src.tolist(), network.dst.tolist(), strict=True)]
    orbits = _each(names, made.link, held_s)
    yield from _over_time(made, replay(made.quotient), about, words, uses, orbits, width)


def _classes(made: Schedule) -> Iterator[_Use]:
    """Yield the use of each class of links, and of the ports."""
    network, link = made.network, made.link
    held_s = network.hold_s(made.chunk_bytes)[link]
    # A link behind ports only stands for a pair of ranks, so that its own share is no limit.
    pairs = " (pairs of ranks; the ports below are the bottleneck)" if is_behind_ports(network) else ""
    for name, chosen in classes(network):
        rows = np.flatnonzero(chosen[link])
        yield _Use(name.replace("_", " ") + pairs, rows, held_s[rows], int(chosen.sum()))
    if len(network.ports):
        users, entries = network.ports_along(link)[0], network.port_entries(link)
        yield _Use("ports", users, network.port_hold_s(made.chunk_bytes)[entries], len(network.ports))


def _ranks(made: Schedule) -> list[_Use]:
    apart = divided(made)
    held_s = apart.network.hold_s(made.chunk_bytes)[apart.link]
    names = [f"rank {rank}" for rank in range(apart.network.ranks)]
    return _each(names, apart.network.src[apart.link], held_s)


def _each(names: Iterable[str], owner: Indices, held_s: Floats) -> list[_Use]:
    """Return a lane for each of the first 64 names; ``owner[send]`` is a name's number."""
    found = []
    for number, name in enumerate(islice(names, _MOST_LANES)):
        rows = np.flatnonzero(owner == number)
        found.append(_Use(name, rows, held_s[rows]))
    return found


def _over_time(
    made: Schedule | SymmetricSchedule,
    timing: Timing,
    about: str,
    words: Sequence[str],
    curves: Iterable[_Use],
    each: Sequence[_Use],
    width: int,
) -> Iterator[Drawing]:
    """Yield the curves, and below them the lanes; ``words`` explain what is held, partly held, left out."""
    time_s = timing.time_s
    if not 0 < time_s < float("inf"):
        return
    slots = int(room(["100 %", *(use.name for use in each)], width)) // _SLOT
    rows = []
    for use in curves:
        share = _share(use, timing, slots)
        rows.append(heading(f"{use.name}: share busy, mean {percent(float(share.mean()))}"))
        runs = _runs(share, time_s, _CURVE)
        heights = [Block(begin, end, _BUSY, share=level / _CURVE) for begin, end, level in runs]
        rows.append(Lane("100 %", tuple(heights), height=_CURVE))
    for number, use in enumerate(each):
        spans = _runs(_share(use, timing, slots), time_s, len(_SHADES))
        blocks = [Block(begin, end, _BUSY + _SHADES[level - 1]) for begin, end, level in spans]
        rows.append(Lane(use.name, tuple(blocks), first=not number))
    signs = (swatch(_BUSY), swatch(_BUSY + _SHADES[3]), "")
    title = f"{made.collective.label} by {made.method} on {made.network.name}: {seconds(time_s)}"
    entries = zip(signs, words, strict=False)
    chart = LaneChart(rows, TIME, _LANE, until=time_s, unit=slots * _SLOT / time_s, ground=True)
    yield lanes(title, about, chart, width, entries)


def _share(use: _Use, timing: Timing, slots: int) -> Floats:
    """Return the share of the links or ports that is held in each slot."""
    start_s = timing.start_s[use.rows]
    return over_time(start_s, start_s + use.held_s, timing.time_s, slots, use.count)


def _runs(share: Floats, time_s: float, levels: int) -> Iterator[tuple[float, float, int]]:
    """Yield (begin, end, level) of each run of slots of about the same share, except level 0."""
    found = np.ceil(np.clip(share, 0, 1) * levels - 1e-9).astype(int).tolist()
    slot, slot_s = 0, time_s / len(share)
    for level, run in groupby(found):
        length = len(list(run))
        if level:
            yield slot * slot_s, (slot + length) * slot_s, level
        slot += length


def selection(made: Selection, width: int) -> Iterator[Drawing]:
    """Yield predicted bandwidth and time over size, with a line for each schedule and a dashed bound."""
    rates, times = [], []
    for number, algorithm in enumerate(made.algorithms):
        name, colour = f"{algorithm.method}, {plural(algorithm.collective.chunks, 'chunk')}", palette(number)
        points = [point for point in made.points if point.algorithm == number]
        sizes = [point.size_bytes for point in points]
        rates.append(series(name, colour, sizes, [busbw_gbs(made, point, point.time_s) for point in points]))
        times.append(series(name, colour, sizes, [point.time_s for point in points]))
    sizes, bounds_s = [point.size_bytes for point in made.points], [point.bound_s for point in made.points]
    times.append(series("proven bound", GREY, sizes, bounds_s, dashed=True))
    yield charts(
        f"{made.collective.label} on {made.network.name}, predicted",
        "Predicted bus bandwidth and time over size: a line for each schedule, and the proven bound.",
        [
            Chart(SIZE, Axis("bus bandwidth (GB/s)", short, 10), rates),
            Chart(SIZE, Axis("time", seconds, 10), times),
        ],
        width,
    )
