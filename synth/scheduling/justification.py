"""Justification (Wiest; Valls, Ballestín, Quintanilla): lists given sends forwards and backwards in turn.

This finds a better order for them. The sends that end last in one pass go first in the next one, in the other
direction. So sends that others wait for go early, and sends that none waits for go late. The link of each
chunk stays the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.columns import Floats, Indices, floats, ints
from synth.collective import collective
from synth.schedule import Schedule
from synth.scheduling.list_scheduling import line_up
from synth.simulation.chunk_slots import touched
from synth.simulation.schedule import replay

__all__ = ["justified"]

_MOST_PASSES = 8


def justified(schedule: Schedule) -> Schedule:
    """The same sends in the best order found; ``schedule`` itself if none is faster.

    Schedules with addends or with streams are returned as they are. O(passes · sends · log sends).
    """
    if schedule.exchanges or len(schedule.stream) or not schedule.sends:
        return schedule
    network, shape = schedule.network, schedule.collective
    # Backwards a send waits only for sends into its source: as if every rank held every chunk.
    turned = replace(
        schedule,
        network=network.transposed(),
        collective=collective("all_reduce", shape.ranks, shape.chunks),
        chunk=ints(schedule.chunk[::-1]),
        link=ints(schedule.link[::-1]),
        op=schedule.op[::-1],
    )
    best, best_s = schedule, replay(schedule).time_s
    urgency = floats(-_tails_s(schedule))
    for _ in range(_MOST_PASSES):
        order, arrival_s = _listed(schedule, urgency)
        found_s = float(arrival_s.max())
        if not found_s < best_s and best is not schedule:
            break
        if found_s < best_s:
            best, best_s = _in(order, schedule), found_s
        # What arrives last leaves first when time runs backwards.
        back_s = _listed(turned, floats(-arrival_s[::-1]))[1][::-1]
        urgency = floats(-back_s)
    return best


def _listed(schedule: Schedule, urgency: Floats) -> tuple[Indices, Floats]:
    """(rows in the order of their starts, arrival of each row) if the lowest urgency goes first."""
    chunk, link = schedule.chunk.astype(np.int64), schedule.link.astype(np.int64)
    turn = np.arange(schedule.sends)
    order = line_up(schedule.network, schedule.collective, schedule.chunk_bytes, chunk, link, turn, urgency)
    arrival_s = np.empty(schedule.sends)
    arrival_s[order] = replay(_in(order, schedule)).arrival_s
    return order, floats(arrival_s)


def _in(order: Indices, schedule: Schedule) -> Schedule:
    return replace(
        schedule,
        chunk=ints(schedule.chunk[order]),
        link=ints(schedule.link[order]),
        op=schedule.op[order],
    )


def _tails_s(schedule: Schedule) -> Floats:
    """Seconds from the start of each send to the last arrival of any send after it, if none has to queue."""
    leaves, enters, held = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    travel_s = schedule.network.travel_s(schedule.chunk_bytes)[schedule.link].tolist()
    after_s, tail_s = [0.0] * len(held), [0.0] * schedule.sends
    slots = zip(leaves[::-1].tolist(), enters[::-1].tolist(), strict=True)
    for row, (source, target) in zip(range(schedule.sends - 1, -1, -1), slots, strict=True):
        tail_s[row] = travel_s[row] + after_s[target]
        after_s[source] = max(after_s[source], tail_s[row])
    return floats(tail_s)
