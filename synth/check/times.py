"""The judge's own clock: when each send of a schedule starts and arrives.

A send starts as soon as its source holds the chunk, its link is free and every port of the link is free.
Sends that share a link or a port take turns in table order. A send holds its link and ports for beta·bytes
and arrives alpha later. If the schedule divides its links among streams (`synth.streams`), each stream counts
as a link of its own. So does each pair of ranks in the operations of switches (`Schedule.multimem`), whose
sends start together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, floats, ints, offsets
from synth.kernels import compiled
from synth.rank_sets import RankSets
from synth.schedules import REDUCE, Schedule, Timing

__all__ = ["Sets", "by_chunk", "columns", "on_lanes", "ranks_of", "replay", "starts"]

# The content of a slot before any send: the chunk, or nothing.
_HELD, _EMPTY = -1, -2


class Sets(NamedTuple):
    """The columns of `RankSets`."""

    group: Ints
    start: Ints
    rank: Ints


class _Lanes(NamedTuple):
    """For each link, a send's ``travel_s``, its growth per byte, and the resources ``held``: link and ports.

    A send holds each resource for ``held_s``, which grows by ``held_s_per_byte``.
    """

    travel_s: Floats
    beta_s_per_byte: Floats
    held_start: Indices
    held: Indices
    held_s: Floats
    held_s_per_byte: Floats


def columns(sets: RankSets) -> Sets:
    """Return the sets as a tuple of arrays for compiled loops."""
    return Sets(sets.group, sets.start, sets.rank)


def on_lanes(schedule: Schedule) -> Schedule:
    """Return the schedule with a separate link for each stream, or for operations of switches; O(sends).

    The sends of a stream, one after the other, take as long as all sends together need at the busiest link or
    port. So no link or port is overloaded.
    """
    if schedule.uses_switches:
        return _in_switches(schedule)
    if not len(schedule.stream):
        return schedule
    network, sends = schedule.network, np.bincount(schedule.stream)
    link = np.zeros(len(sends), np.int64)
    link[schedule.stream] = schedule.link
    stream, port = network.ports_along(link)
    in_ports = sends[stream] * network.held_s_per_byte[network.port_entries(link)]
    busiest = max(
        np.bincount(link, weights=sends * network.beta_s_per_byte[link]).max(),
        np.bincount(port, weights=in_ports, minlength=1).max(),
    )
    lanes = replace(
        network,
        src=network.src[link],
        dst=network.dst[link],
        alpha_s=network.alpha_s[link],
        beta_s_per_byte=floats(busiest / np.maximum(1, sends)),
        ports=(),
        link_port_start=ints(np.zeros(len(link) + 1)),
        link_port=ints([]),
        port_beta_s_per_byte=floats([]),
        queues=False,
    )
    return replace(schedule, network=lanes, link=schedule.stream, stream=ints([]))


def _in_switches(schedule: Schedule) -> Schedule:
    """Return the schedule with a link of its own for each kind of operation, rank that does it, and peer.

    Let p ranks of a host sum and q copy. A port carries the sums of all p out of a rank and its own copy, or
    the copies of all q into it and its own sum. As all run beside each other, each gets the share that the
    busier direction leaves.
    """
    network = schedule.network
    host = network.host_of.tolist()
    src, dst = network.src.tolist(), network.dst.tolist()
    doers: dict[tuple[int, bool], set[int]] = {}
    lanes: dict[tuple[int, bool], int] = {}
    rows = list(
        zip(schedule.link.tolist(), (schedule.op == REDUCE).tolist(), schedule.multimem.tolist(), strict=True)
    )
    for link, adds, number in rows:
        if number >= 0:
            doer = dst[link] if adds else src[link]
            doers.setdefault((host[doer], adds), set()).add(doer)
            lanes.setdefault((link, adds), network.links + len(lanes))
    links = np.array([link for link, _ in lanes], np.int64)
    shares = []
    for link, _ in lanes:
        sums, copies = (len(doers.get((host[src[link]], adds), ())) for adds in (True, False))
        shares.append(max(sums + min(1, copies), copies + min(1, sums)))
    latencies = np.array([2.0 if adds else 1.0 for _, adds in lanes])
    behind = [network.link_port_start[-1]] * len(lanes)
    apart = replace(
        network,
        src=ints(np.append(network.src, network.src[links])),
        dst=ints(np.append(network.dst, network.dst[links])),
        alpha_s=floats(np.append(network.alpha_s, latencies * network.alpha_s[links])),
        beta_s_per_byte=floats(
            np.append(network.beta_s_per_byte, network.multimem_s_per_byte * np.array(shares))
        ),
        link_port_start=ints(np.append(network.link_port_start, behind)),
    )
    link_of = [lanes[link, adds] if number >= 0 else link for link, adds, number in rows]
    return replace(schedule, network=apart, link=ints(link_of))


def replay(schedule: Schedule) -> Timing:
    """Return the times of a schedule without streams; infinite if the source never holds the chunk."""
    start_s, _ = starts(schedule)
    arrival_s = start_s + schedule.network.travel_s(schedule.chunk_bytes)[schedule.link]
    return Timing(start_s, arrival_s, float(arrival_s.max(initial=0.0)))


def starts(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return (start of each send, its growth per byte of a chunk); O(sends · ports of a link)."""
    network, size = schedule.network, schedule.chunk_bytes
    lanes = _Lanes(
        network.travel_s(size),
        network.beta_s_per_byte,
        *network.link_resources,
        network.held_s(size),
        np.insert(network.held_s_per_byte, network.link_port_start[:-1], network.beta_s_per_byte),
    )
    ends = network.src[schedule.link], network.dst[schedule.link]
    sources = columns(schedule.collective.sources)
    into_source, into_target = _previous_sends(*by_chunk(schedule), *ends, sources, network.ranks)
    carried = schedule.addend_start, schedule.addend
    resources = network.links + len(network.ports)
    before = into_source, into_target
    return _starts(schedule.link, schedule.op, schedule.multimem, lanes, *before, *carried, resources)


def by_chunk(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return (rows, start): ``rows[start[c]:start[c + 1]]`` are the sends of chunk c, in table order."""
    start = offsets(np.bincount(schedule.chunk, minlength=schedule.collective.chunks))
    return _sorted(schedule.chunk, start.copy()), start


@compiled
def ranks_of(sets: Sets, chunk: int) -> Ints:
    """Return the ranks of one chunk."""
    group = sets.group[chunk]
    return sets.rank[sets.start[group] : sets.start[group + 1]]


@compiled
def _sorted(chunk: Indices, place: Indices) -> Indices:
    rows = np.empty(len(chunk), np.int64)
    for row in range(len(chunk)):
        rows[place[chunk[row]]] = row
        place[chunk[row]] += 1
    return rows


@compiled
def _previous_sends(
    rows: Indices, chunk_start: Indices, src: Indices, dst: Indices, sources: Sets, ranks: int
) -> tuple[Indices, Indices]:
    """Return for each send the last earlier send into its source slot, and the last into its target slot."""
    into_source, into_target = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
    latest = np.full(ranks, _EMPTY)
    for chunk in range(len(chunk_start) - 1):
        chunk_rows = rows[chunk_start[chunk] : chunk_start[chunk + 1]]
        if len(chunk_rows) == 0:
            continue
        held = ranks_of(sources, chunk)
        for rank in held:
            latest[rank] = _HELD
        for row in chunk_rows:
            into_source[row], into_target[row] = latest[src[row]], latest[dst[row]]
            latest[dst[row]] = row
        for rank in held:
            latest[rank] = _EMPTY
        for row in chunk_rows:
            latest[dst[row]] = _EMPTY
    return into_source, into_target


@compiled
def _starts(
    link: Indices,
    op: Bytes,
    multimem: Ints,
    lanes: _Lanes,
    into_source: Indices,
    into_target: Indices,
    addend_start: Indices,
    addend: Indices,
    resources: int,
) -> tuple[Floats, Floats]:
    travel_s, beta, held_start, held, held_s, held_beta = lanes
    sends = len(link)
    start_s, slope = np.empty(sends), np.empty(sends)
    # For each send: the time at which it and all earlier sends into the same slot have arrived there.
    ready_s, ready_slope = np.empty(sends), np.empty(sends)
    free_s, free_slope = np.zeros(resources), np.zeros(resources)
    for row in range(sends):
        e, before = link[row], into_source[row]
        begin, grows = 0.0, 0.0
        together = len(multimem) > 0 and multimem[row] >= 0
        if together and row > 0 and multimem[row - 1] == multimem[row]:
            begin, grows = start_s[row - 1], slope[row - 1]
        elif together:
            last = row
            while last < sends and multimem[last] == multimem[row]:
                slots = (into_source[last], into_target[row] if op[row] == REDUCE else into_source[last])
                for slot in slots:
                    if slot == _EMPTY:
                        begin = np.inf
                    elif slot >= 0 and ready_s[slot] > begin:
                        begin, grows = ready_s[slot], ready_slope[slot]
                for at in range(held_start[link[last]], held_start[link[last] + 1]):
                    if free_s[held[at]] > begin:
                        begin, grows = free_s[held[at]], free_slope[held[at]]
                last += 1
        elif len(addend) > 0 and addend_start[row + 1] > addend_start[row]:
            for at in range(addend_start[row], addend_start[row + 1]):
                part = addend[at]
                if part >= 0 and start_s[part] + travel_s[link[part]] > begin:
                    begin, grows = start_s[part] + travel_s[link[part]], slope[part] + beta[link[part]]
        elif before >= 0:
            begin, grows = ready_s[before], ready_slope[before]
        elif before == _EMPTY:
            begin = np.inf
        for at in range(held_start[e], held_start[e + 1]):
            if not together and free_s[held[at]] > begin:
                begin, grows = free_s[held[at]], free_slope[held[at]]
        start_s[row], slope[row] = begin, grows
        arrived_s, arrived_slope = 0.0, 0.0
        if into_target[row] >= 0:
            arrived_s, arrived_slope = ready_s[into_target[row]], ready_slope[into_target[row]]
        elif into_target[row] == _EMPTY:
            arrived_s = np.inf
        if begin < np.inf:
            for at in range(held_start[e], held_start[e + 1]):
                free_s[held[at]], free_slope[held[at]] = begin + held_s[at], grows + held_beta[at]
            if arrived_s == np.inf or begin + travel_s[e] > arrived_s:
                arrived_s, arrived_slope = begin + travel_s[e], grows + beta[e]
        ready_s[row], ready_slope[row] = arrived_s, arrived_slope
    return start_s, slope
