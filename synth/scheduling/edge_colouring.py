"""Edge colouring: if each send holds one port out and one port in, the busiest port sets the period.

Sends of equal length are edges between ports out and ports in; places in the period are colours. As many
colours as the busiest port has edges suffice (König 1916). A send takes the earliest place that is free at
both its ports; if there is none, two places are swapped along an alternating path. Periods share no chunk, so
a send may wait for any place. It then starts later by less than a period, and the period stays the same.

The length of a place may differ between ports, such as NICs and switches inside hosts; the period is the same
for all.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, floats
from synth.kernels import compiled
from synth.schedules import Schedule
from synth.simulation import touched

__all__ = ["coloured"]

# Rounding margin, as a part of a place in the period.
_SLACK = 1e-9


def coloured(schedule: Schedule) -> tuple[Floats, float] | None:
    """Return (start of each send of the first period, seconds from one period to the next).

    The period is as long as the busiest port needs. ``schedule`` has the sends of one period, each after the
    sends that bring its chunk to its source. Return None unless each send holds one port out and one port in
    and all sends of a port are equally long. O(sends · (places of a period + longest path)).
    """
    network, link = schedule.network, schedule.link
    rows, port = network.ports_along(link)
    hold_s = network.hold_s(schedule.chunk_bytes)[link]
    if not (np.bincount(rows, minlength=len(link)) == 2).all():
        return None
    port_s = network.port_hold_s(schedule.chunk_bytes)[network.port_entries(link)]
    longest_s, shortest_s = np.zeros(len(network.ports)), np.full(len(network.ports), np.inf)
    np.maximum.at(longest_s, port, np.maximum(port_s, hold_s[rows]))
    np.minimum.at(shortest_s, port, np.minimum(port_s, hold_s[rows]))
    used = np.bincount(port, minlength=len(network.ports))
    if (longest_s > shortest_s * (1 + _SLACK))[used > 0].any():
        return None
    port = port[np.argsort(rows, kind="stable")].astype(np.int64)
    out, into = port[0::2], port[1::2]
    if np.intersect1d(out, into).size:
        return None
    # A margin, so that rounding never puts an arrival after the end of its place.
    place_s = np.maximum(longest_s[out], longest_s[into]) * (1 + _SLACK)
    period_s = float((used * longest_s).max()) * (1 + _SLACK)
    places = np.floor(period_s / place_s * (1 + _SLACK)).astype(np.int64)
    place_s = period_s / places
    leaves, enters, held = touched(network, schedule.collective, schedule.chunk, link)
    travel_s = network.travel_s(schedule.chunk_bytes)[link]
    leaves, enters = leaves.astype(np.int64), enters.astype(np.int64)
    place = _coloured(out, into, leaves, enters, place_s, travel_s, len(held), places)
    return floats(_started_s(place, leaves, enters, place_s, travel_s, len(held), places)), period_s


@compiled
def _started_s(
    place: Indices,
    leaves: Indices,
    enters: Indices,
    place_s: Floats,
    travel_s: Floats,
    slots: int,
    places: Indices,
) -> Floats:
    """Return the start of each send: the first time of its place after its chunk has arrived."""
    ready_s = np.zeros(slots)
    start_s = np.zeros(len(place))
    for row in range(len(place)):
        begin = int(np.ceil(ready_s[leaves[row]] / place_s[row]))
        start_s[row] = (begin + (place[row] - begin) % places[row]) * place_s[row]
        ready_s[enters[row]] = max(ready_s[enters[row]], start_s[row] + travel_s[row])
    return start_s


@compiled
def _coloured(
    port_out: Indices,
    port_in: Indices,
    leaves: Indices,
    enters: Indices,
    place_s: Floats,
    travel_s: Floats,
    slots: int,
    places: Indices,
) -> Indices:
    """Return the place of each send in the period; no two sends of a port share a place."""
    outs, ins = port_out.max() + 1, port_in.max() + 1
    # The send that holds a port at a place; -1: none.
    by_out = np.full((outs, places.max()), -1, np.int64)
    by_in = np.full((ins, places.max()), -1, np.int64)
    ready_s = np.zeros(slots)
    place = np.full(len(port_out), -1, np.int64)
    for row in range(len(port_out)):
        one, two = port_out[row], port_in[row]
        begin, most = int(np.ceil(ready_s[leaves[row]] / place_s[row])), places[row]
        taken, free_out, free_in = -1, -1, -1
        for later in range(most):
            at = (begin + later) % most
            if by_out[one, at] < 0:
                if by_in[two, at] < 0:
                    taken = begin + later
                    break
                if free_out < 0:
                    free_out = at
            elif by_in[two, at] < 0 and free_in < 0:
                free_in = at
        if taken < 0:
            # The path from port ``two`` enters each port out by a send at place ``free_out``. Port ``one``
            # has no such send, so the path never reaches port ``one``.
            _exchange(port_out, port_in, by_out, by_in, place, two, free_out, free_in)
            taken = begin + (free_out - begin) % most
        at = taken % most
        by_out[one, at], by_in[two, at], place[row] = row, row, at
        ready_s[enters[row]] = max(ready_s[enters[row]], taken * place_s[row] + travel_s[row])
    return place


@compiled
def _exchange(
    port_out: Indices,
    port_in: Indices,
    by_out: Indices,
    by_in: Indices,
    place: Indices,
    at_in: int,
    there: int,
    back: int,
) -> None:
    """Free place ``there`` at port ``at_in``: swap ``there`` and ``back`` along the path from this port."""
    path = np.empty(2 * (len(by_out) + len(by_in)), np.int64)
    count, row, now, inward = 0, by_in[at_in, there], there, True
    while row >= 0:
        path[count] = row
        count += 1
        now = back if now == there else there
        row = by_out[port_out[row], now] if inward else by_in[port_in[row], now]
        inward = not inward
    for step in range(count):
        row = path[step]
        by_out[port_out[row], place[row]] = -1
        by_in[port_in[row], place[row]] = -1
    for step in range(count):
        row = path[step]
        place[row] = back if place[row] == there else there
        by_out[port_out[row], place[row]] = row
        by_in[port_in[row], place[row]] = row
