"""The event-driven, congestion-aware simulator: when each send of a schedule starts and arrives.

Each send starts as soon as its source holds the chunk (complete with everything that earlier rows
brought there), its link is free and every port of the link is free; rows that share a link or a
port take turns in table order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.columns import Floats, Indices, Ints, Mask
from synth.jit import compiled
from synth.network import Network
from synth.schedule import Schedule
from synth.touched import touched

__all__ = ["Timing", "replay", "utilization"]


@dataclass(frozen=True, eq=False)
class Timing:
    """``start_s`` and ``arrival_s`` of each send; infinite where the source never holds the chunk."""

    start_s: Floats
    arrival_s: Floats
    time_s: float


def replay(schedule: Schedule, network: Network | None = None, chunk_bytes: int | None = None) -> Timing:
    """Time ``schedule`` on its own network, or on another with the same links, or with other chunks.

    O(sends · ports of a link).
    """
    on = network or schedule.network
    size = chunk_bytes or schedule.chunk_bytes
    start_s, arrival_s = _replay(
        *touched(on, schedule.collective, schedule.chunk, schedule.link),
        schedule.link,
        on.hold_s(size),
        on.travel_s(size),
        on.link_port_start,
        on.link_port,
        len(on.ports),
    )
    return Timing(start_s, arrival_s, float(arrival_s.max(initial=0.0)))


def utilization(schedule: Schedule, timing: Timing) -> Floats:
    """For each link the share of the total time that it is held."""
    held_s = schedule.network.hold_s(schedule.chunk_bytes)
    uses = np.bincount(schedule.link, minlength=schedule.network.links)
    return np.asarray(uses * held_s / timing.time_s if timing.time_s else uses * 0.0)


@compiled
def _replay(
    leaves: Indices,
    enters: Indices,
    held: Mask,
    link: Ints,
    hold_s: Floats,
    travel_s: Floats,
    port_start: Ints,
    port: Ints,
    ports: int,
) -> tuple[Floats, Floats]:
    ready_s = np.where(held, 0.0, np.inf)
    link_free_s = np.zeros(len(hold_s))
    port_free_s = np.zeros(ports)
    start_s = np.empty(len(link))
    arrival_s = np.empty(len(link))
    for row in range(len(link)):
        e = link[row]
        begin = max(ready_s[leaves[row]], link_free_s[e])
        for at in range(port_start[e], port_start[e + 1]):
            begin = max(begin, port_free_s[port[at]])
        start_s[row] = begin
        arrival_s[row] = begin + travel_s[e]
        if begin == np.inf:
            continue
        link_free_s[e] = begin + hold_s[e]
        for at in range(port_start[e], port_start[e + 1]):
            port_free_s[port[at]] = begin + hold_s[e]
        known_s = ready_s[enters[row]]
        ready_s[enters[row]] = arrival_s[row] if known_s == np.inf else max(known_s, arrival_s[row])
    return start_s, arrival_s
