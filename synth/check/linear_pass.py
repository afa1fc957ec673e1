"""A linear pass over a schedule that proves most schedules in little memory.

A schedule that the pass cannot prove may still be right: ``synth.check.schedule`` then checks it in detail.
"""

from __future__ import annotations

import numpy as np

from probes.base import Bytes, Floats, Indices, Mask
from synth.kernels import compiled
from synth.schedules import COPY, REDUCE, Schedule, Timing

__all__ = ["is_delivered", "takes_turns"]

# The most slots (ranks times chunks): a larger table takes too much memory, unless the sends take as much.
_MOST_SLOTS = 1 << 24


def takes_turns(schedule: Schedule, timing: Timing, slack: float) -> bool:
    """Return whether sends have possible times, and links and ports carry their sends one by one.

    A time is possible if the send starts at 0 or later, takes as long as its link demands, and arrives by the
    schedule's end. The result is also False if the sends of a link or port do not start in the order of the
    table. O(sends · ports).
    """
    network = schedule.network
    return bool(
        _in_turn(
            schedule.link,
            timing.start_s,
            timing.arrival_s,
            timing.time_s * (1 + slack),
            network.hold_s(schedule.chunk_bytes),
            network.travel_s(schedule.chunk_bytes),
            network.link_port_start,
            network.link_port,
            network.port_hold_s(schedule.chunk_bytes),
            len(network.ports),
            slack,
        )
    )


def is_delivered(schedule: Schedule, timing: Timing, slack: float) -> bool:
    """Return whether reduced chunks are summed along trees, and all chunks reach the ranks that want them.

    A copy carries the complete chunk if the first message to arrive at its source did, and if the copy starts
    after that arrival. By induction over time all copies from the chunk's sources are complete.

    For a chunk to which every rank contributes, the source of the copies is the root of the sum. If all ranks
    but one send their sum once, after everything sent to them has arrived, these sends form a tree: each
    contribution reaches the remaining rank once. A sum does not change while it is being sent: its addends
    arrive before the send begins, and copies arrive after it has ended.

    The result is also False if the table lists a later send first. So the proof also covers sends that run
    one by one in table order. O(sends + ranks · chunks).
    """
    shape, network = schedule.collective, schedule.network
    if network.ranks * shape.chunks > max(_MOST_SLOTS, 2 * schedule.sends):
        return False
    reduced, held = np.asarray(shape.reduced, bool), shape.held()
    if not held[:, reduced].all():
        return False
    complete, gathered = held & ~reduced, np.zeros(shape.chunks, np.int64)
    has_s = np.full(held.shape, np.inf)
    has_s[held] = -np.inf
    if not _delivered(
        schedule.chunk,
        network.src,
        network.dst,
        schedule.link,
        schedule.op,
        timing.start_s,
        timing.arrival_s,
        network.hold_s(schedule.chunk_bytes),
        slack,
        reduced,
        has_s,
        complete,
        sent := np.zeros(held.shape, bool),
        np.zeros(held.shape),
        gathered,
    ):
        return False
    # The one rank that has not sent its sum holds the complete one, even if it is no target.
    summed = reduced & (gathered == network.ranks - 1)
    complete[:, summed] |= ~sent[:, summed]
    return not (shape.wanted() & ~complete).any()


@compiled
def _in_turn(
    link: Indices,
    start_s: Floats,
    arrival_s: Floats,
    latest_s: float,
    hold_s: Floats,
    travel_s: Floats,
    port_start: Indices,
    port: Indices,
    port_hold_s: Floats,
    ports: int,
    slack: float,
) -> bool:
    links = len(hold_s)
    begun_s, ended_s = np.zeros(links + ports), np.zeros(links + ports)
    for row in range(len(link)):
        e, begin_s, come_s = link[row], start_s[row], arrival_s[row]
        # The comparisons are written so that a NaN makes them false.
        timely = 0.0 <= begin_s < np.inf and come_s <= latest_s
        if not (timely and come_s - begin_s >= travel_s[e] - slack * (1.0 + abs(come_s))):
            return False
        for at in range(port_start[e] - 1, port_start[e + 1]):
            resource = e if at < port_start[e] else links + port[at]
            clear_s = ended_s[resource] - slack * ended_s[resource]
            if not (begin_s >= begun_s[resource] and begin_s >= clear_s):
                return False
            held_s = hold_s[e] if at < port_start[e] else port_hold_s[at]
            begun_s[resource], ended_s[resource] = begin_s, begin_s + held_s
    return True


@compiled
def _delivered(
    chunk: Indices,
    src: Indices,
    dst: Indices,
    link: Indices,
    op: Bytes,
    start_s: Floats,
    arrival_s: Floats,
    hold_s: Floats,
    slack: float,
    reduced: Mask,
    has_s: Floats,
    complete: Mask,
    sent: Mask,
    sending_s: Floats,
    gathered: Indices,
) -> bool:
    """Follow all sends through the slots of each rank and chunk; return False at the first unproven send.

    ``has_s`` is the time at which a slot's last contribution arrived, or at which it became complete; inf for
    an empty slot. ``sending_s`` is the time at which the link has finished sending a rank's sum.
    """
    ranks = len(has_s)
    for row in range(len(link)):
        e, c = link[row], chunk[row]
        sender, receiver = src[e], dst[e]
        if not (start_s[row] >= has_s[sender, c] and start_s[row] < arrival_s[row] < np.inf):
            return False
        if op[row] == REDUCE:
            if not reduced[c] or sent[sender, c] or sent[receiver, c]:
                return False
            sent[sender, c], sending_s[sender, c] = True, start_s[row] + hold_s[e]
            has_s[receiver, c] = max(has_s[receiver, c], arrival_s[row])
            gathered[c] += 1
            continue
        root = reduced[c] and gathered[c] == ranks - 1 and not sent[sender, c]
        if op[row] != COPY or not (complete[sender, c] or root):
            return False
        if sent[receiver, c] and not arrival_s[row] >= sending_s[receiver, c] * (1.0 - slack):
            return False
        complete[sender, c] = True
        if not complete[receiver, c]:
            complete[receiver, c], has_s[receiver, c] = True, arrival_s[row]
        has_s[receiver, c] = min(has_s[receiver, c], arrival_s[row])
    return True
