"""A linear pass over a schedule that proves most schedules in little memory.

What it cannot prove is not yet wrong: ``synth.check`` then looks closely, and names what it finds. It
shares no code with any synthesizer.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Bytes, Floats, Indices, Mask
from synth.kernels.compiled import compiled
from synth.schedule import COPY, REDUCE, Schedule
from synth.simulation.schedule import Timing

__all__ = ["is_spread", "is_summed", "takes_turns"]

_MOST_SLOTS = 1 << 24


def takes_turns(schedule: Schedule, timing: Timing, slack: float) -> bool:
    """Whether no send is too short, early or late, and links and ports carry their sends one by one.

    Proven only if the sends of each link and port start in the order of the table. O(sends · ports).
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


def is_spread(schedule: Schedule, timing: Timing) -> bool:
    """Whether copies alone bring every chunk from who holds it to who wants it.

    A send that starts no earlier than the first arrival of its chunk at its source, and arrives later
    than it starts, carries the chunk if that arrival did; so does each in turn, from the sources on.
    Proven only where the table has the earlier send first. O(sends + ranks · chunks).
    """
    shape, network = schedule.collective, schedule.network
    slots = network.ranks * shape.chunks
    if shape.reduced.any() or slots > max(_MOST_SLOTS, 2 * schedule.sends):
        return False
    has_s = np.full((network.ranks, shape.chunks), np.inf)
    has_s[shape.held()] = -np.inf
    if not _carried(
        schedule.chunk,
        network.src,
        network.dst,
        schedule.link,
        schedule.op,
        timing.start_s,
        timing.arrival_s,
        has_s,
    ):
        return False
    return bool(_is_complete(shape.wanted(), has_s))


def is_summed(schedule: Schedule, timing: Timing, slack: float) -> bool:
    """Whether each chunk, with a contribution of every rank, is summed along a tree and copied from its root.

    Where all ranks but one send their sum once, after all that they are sent themselves has arrived, these
    sends are a tree: each contribution reaches the last rank, once. From then on that rank has the complete
    chunk, and so has who is sent a copy by one that has it. Sums do not change while they are being sent:
    what is added comes before, and copies come after. Proven only where the table has the earlier send first,
    so it holds one by one in that order, too. O(sends + ranks · chunks).
    """
    shape, network = schedule.collective, schedule.network
    slots = network.ranks * shape.chunks
    if not shape.reduced.all() or slots > max(_MOST_SLOTS, 2 * schedule.sends) or not shape.held().all():
        return False
    # When the last contribution came, or from completeness on when that was.
    has_s = np.full((shape.chunks, network.ranks), -np.inf)
    if not _summed(
        schedule.chunk,
        network.src,
        network.dst,
        schedule.link,
        schedule.op,
        timing.start_s,
        timing.arrival_s,
        network.hold_s(schedule.chunk_bytes),
        slack,
        has_s,
    ):
        return False
    return bool(_is_complete(shape.wanted(), has_s.T))


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
        # Written so that what is not a number proves nothing.
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
def _carried(
    chunk: Indices,
    src: Indices,
    dst: Indices,
    link: Indices,
    op: Bytes,
    start_s: Floats,
    arrival_s: Floats,
    has_s: Floats,
) -> bool:
    for row in range(len(link)):
        sender, receiver = src[link[row]], dst[link[row]]
        if op[row] != COPY or not (
            start_s[row] >= has_s[sender, chunk[row]] and arrival_s[row] > start_s[row]
        ):
            return False
        has_s[receiver, chunk[row]] = min(has_s[receiver, chunk[row]], arrival_s[row])
    return True


@compiled
def _summed(
    chunk: Indices,
    src: Indices,
    dst: Indices,
    link: Indices,
    op: Bytes,
    start_s: Floats,
    arrival_s: Floats,
    hold_s: Floats,
    slack: float,
    has_s: Floats,
) -> bool:
    """Fills ``has_s[chunk, rank]``: when it was complete, inf where it never was."""
    chunks, ranks = has_s.shape
    # Until when a rank that has sent its sum holds a link with it; -inf for one that has not.
    sending_s = np.full(has_s.shape, -np.inf)
    complete = np.zeros(has_s.shape, np.bool_)
    gathered = np.zeros(chunks, np.int64)
    for row in range(len(link)):
        e, c = link[row], chunk[row]
        sender, receiver = src[e], dst[e]
        if not (start_s[row] >= has_s[c, sender] and start_s[row] < arrival_s[row] < np.inf):
            return False
        if op[row] == REDUCE:
            if sending_s[c, sender] > -np.inf or sending_s[c, receiver] > -np.inf:
                return False
            sending_s[c, sender] = start_s[row] + hold_s[e]
            has_s[c, receiver] = max(has_s[c, receiver], arrival_s[row])
            gathered[c] += 1
            continue
        last = gathered[c] == ranks - 1 and not sending_s[c, sender] > -np.inf
        if op[row] != COPY or not (complete[c, sender] or last):
            return False
        if not arrival_s[row] >= sending_s[c, receiver] * (1.0 - slack):
            return False
        complete[c, sender] = True
        if not complete[c, receiver]:
            complete[c, receiver], has_s[c, receiver] = True, arrival_s[row]
        has_s[c, receiver] = min(has_s[c, receiver], arrival_s[row])
    for c in range(chunks):
        for rank in range(ranks):
            last = gathered[c] == ranks - 1 and not sending_s[c, rank] > -np.inf
            if not (complete[c, rank] or last):
                has_s[c, rank] = np.inf
    return True


@compiled
def _is_complete(wanted: Mask, has_s: Floats) -> bool:
    for rank in range(wanted.shape[0]):
        for chunk in range(wanted.shape[1]):
            if wanted[rank, chunk] and not has_s[rank, chunk] < np.inf:
                return False
    return True
