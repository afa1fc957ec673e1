"""The congestion-aware simulator of schedules: the start and arrival of each send.

A send starts as soon as its source holds the chunk, its link is free and every port of the link is free. The
source holds the chunk once all earlier rows that bring it there have arrived. For a send that names its
addends, it is enough that these have arrived. Rows that share a link or a port take turns in table order.
Streams take no turns: they share links and ports all the time (``synth.streams``). The sends of a switch's
operation start together (``synth.multimem``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, Mask, ints
from synth.kernels import compiled
from synth.multimem import laned, operations
from synth.network import Network
from synth.schedules import REDUCE, AnySchedule, Schedule, Timing
from synth.simulation.chunk_slots import are_few, numbered, touched
from synth.streams import divided

__all__ = ["critical_path", "replay", "simulated", "utilization"]

# Times closer than this share of the total are the same moment, because sums of floats round.
_SAME = 1e-9
# Sends whose slots are numbered at a time, to bound memory.
_BLOCK = 1 << 20


class _Links(NamedTuple):
    """Seconds of a send over each link, and the links and ports that it holds.

    Link l holds ``held[held_start[l]:held_start[l + 1]]``, each for ``held_s`` seconds.
    """

    travel_s: Floats
    held_start: Indices
    held: Indices
    held_s: Floats


def simulated(made: AnySchedule) -> Timing:
    """Return the time of a schedule of any kind, and the start and arrival of each send of its table."""
    excerpt = made.excerpt
    return made.timing(None if excerpt is None else replay(excerpt))


def replay(schedule: Schedule, network: Network | None = None, chunk_bytes: int | None = None) -> Timing:
    """Time ``schedule`` on its own network, or on another with the same links, or with other chunks.

    O(sends · ports of a link).
    """
    schedule = laned(divided(schedule, network))
    on = schedule.network
    size = chunk_bytes or schedule.chunk_bytes
    in_blocks = not schedule.exchanges and not schedule.uses_switches
    few = are_few(on, schedule.collective, schedule.sends) and in_blocks
    block = _BLOCK if few else max(1, schedule.sends)
    slots = None if few else touched(on, schedule.collective, schedule.chunk, schedule.link)
    held = slots.held if slots is not None else schedule.collective.held().ravel()
    ready_s = np.where(held, 0.0, np.inf)
    del held
    links = _Links(on.travel_s(size), *on.link_resources, on.held_s(size))
    free_s = np.zeros(on.links + len(on.ports))
    start_s, arrival_s = np.empty(schedule.sends), np.empty(schedule.sends)
    first_row, end_row = operations(schedule) if schedule.uses_switches else (ints([]), ints([]))
    for first in range(0, schedule.sends, block):
        rows = slice(first, first + block)
        chunk, link = schedule.chunk[rows], schedule.link[rows]
        leaves, enters = slots[:2] if slots else numbered(on, schedule.collective, chunk, link)
        carried = schedule.addend_start, schedule.addend
        op, known = schedule.op[rows], (ready_s, free_s)
        times = start_s[rows], arrival_s[rows]
        _replay(leaves, enters, link, op, first_row, end_row, links, *carried, *known, *times)
    return Timing(start_s, arrival_s, float(arrival_s.max(initial=0.0)))


def utilization(schedule: Schedule, timing: Timing) -> Floats:
    """Return for each link the share of the total time during which sends hold it."""
    busy_s = schedule.busy_s
    return np.asarray(busy_s / timing.time_s if timing.time_s else busy_s * 0.0)


def critical_path(schedule: Schedule, timing: Timing) -> list[int]:
    """Return the rows of the sends that the last arrival waited for, first to last.

    Each send starts when the send before it arrives with its data, or leaves its link or port. A schedule of
    streams has no such path. O(sends · length of the path).
    """
    if not schedule.sends or len(schedule.stream):
        return []
    schedule = laned(schedule)
    network = schedule.network
    leaves, enters, _ = touched(network, schedule.collective, schedule.chunk, schedule.link)
    left_s = timing.start_s + network.hold_s(schedule.chunk_bytes)[schedule.link]
    rows = np.arange(schedule.sends)
    path = [int(np.argmax(timing.arrival_s))]
    while True:
        row = path[-1]
        start_s = timing.start_s[row]
        earlier = rows < row
        came = earlier & (enters == leaves[row]) & _same(timing.arrival_s, start_s, timing.time_s)
        left = earlier & _same(left_s, start_s, timing.time_s)
        before = np.flatnonzero(came)
        if not len(before):
            before = np.flatnonzero(left)
            before = before[_share_resource(network, schedule.link[before], int(schedule.link[row]))]
        if start_s <= 0 or not len(before):
            return path[::-1]
        path.append(int(before[-1]))


def _same(moments_s: Floats, moment_s: float, total_s: float) -> Mask:
    return np.asarray(np.abs(moments_s - moment_s) <= _SAME * total_s)


def _share_resource(network: Network, links: Indices, link: int) -> Mask:
    """Return which of ``links`` are ``link`` or use one of its ports."""
    shared = links == link
    row, port = network.ports_along(links)
    shared[row[np.isin(port, network.ports_of(link))]] = True
    return np.asarray(shared)


@compiled
def _replay(
    leaves: Indices,
    enters: Indices,
    link: Ints,
    op: Bytes,
    first: Indices,
    end: Indices,
    links: _Links,
    addend_start: Ints,
    addend: Ints,
    ready_s: Floats,
    free_s: Floats,
    start_s: Floats,
    arrival_s: Floats,
) -> None:
    """Time some sends; ``ready_s`` (of slots) and ``free_s`` (of links and ports) come from earlier sends.

    Row n starts with the rows from ``first[n]`` to ``end[n]``; alone if both are empty.
    """
    travel_s, held_start, held, held_s = links
    for row in range(len(link)):
        e = link[row]
        begin = ready_s[leaves[row]]
        if len(first) > 0 and first[row] < row:
            begin = start_s[first[row]]
        elif len(first) > 0 and end[row] > row + 1:
            if op[row] == REDUCE:
                begin = max(begin, ready_s[enters[row]])
            for other in range(row + 1, end[row]):
                begin = max(begin, ready_s[leaves[other]])
                for at in range(held_start[link[other]], held_start[link[other] + 1]):
                    begin = max(begin, free_s[held[at]])
        if len(addend) > 0 and addend_start[row + 1] > addend_start[row]:
            begin = 0.0
            for at in range(addend_start[row], addend_start[row + 1]):
                if addend[at] >= 0:
                    begin = max(begin, arrival_s[addend[at]])
        for at in range(held_start[e], held_start[e + 1]):
            begin = max(begin, free_s[held[at]])
        start_s[row] = begin
        arrival_s[row] = begin + travel_s[e]
        if begin == np.inf:
            continue
        for at in range(held_start[e], held_start[e + 1]):
            free_s[held[at]] = begin + held_s[at]
        known_s = ready_s[enters[row]]
        ready_s[enters[row]] = arrival_s[row] if known_s == np.inf else max(known_s, arrival_s[row])
