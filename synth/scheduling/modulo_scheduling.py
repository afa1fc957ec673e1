"""Modulo scheduling: the sends of one period take places in a cycle, so that periods overlap densely.

This is software pipelining of loops (Rau and Glaeser 1981; Lam 1988): links and ports are the machine's
units, and the sends of a period are the body of the loop. A send takes the earliest time at which all its
resources are free modulo the period. Chunks of two periods are independent, so a period need only be as long
as the busiest link or port is busy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints, floats, offsets
from synth.kernels import compiled, pop, push
from synth.schedules import Schedule
from synth.simulation import touched

__all__ = ["least_period_s", "modulo_scheduled"]

# Times are whole ticks. The shortest hold lasts this many ticks, so that rounding hardly changes a time. If
# rounded holds exceed the period by at most the fraction ``_ROUNDED``, the period is lengthened.
_TICKS_A_HOLD = 1 << 24
_ROUNDED = 1e-6


def least_period_s(schedule: Schedule) -> float:
    """Return the time that the busiest link or port needs for ``schedule``: no period is shorter."""
    return float(schedule.network.busy_s(schedule.link, schedule.chunk_bytes).max())


def modulo_scheduled(schedule: Schedule, period_s: float) -> tuple[Floats, float] | None:
    """Return (start of each send of the first period, seconds from one period to the next).

    ``schedule`` has the sends of one period. It lists each send after all sends that bring its data to its
    source. Sends that begin the longest chains are placed first. The period is ``period_s``, rounded up to
    whole ticks. Return None if some send finds no place. O(sends · (log sends + sends of a link or port)).
    """
    network = schedule.network
    held_s = network.held_s(schedule.chunk_bytes)
    tick_s = float(held_s.min()) / _TICKS_A_HOLD
    start, resource = network.link_resources
    hold = np.ceil(held_s / tick_s * (1 - 1e-12)).astype(np.int64)
    users = np.bincount(schedule.link, minlength=network.links)
    used = np.repeat(users, np.diff(start))
    count = np.bincount(resource, used, network.links + len(network.ports)).astype(np.int64)
    busy = np.bincount(resource, used * hold, len(count))
    period = int(np.ceil(period_s / tick_s * (1 - 1e-12)))
    if period < busy.max() <= period * (1 + _ROUNDED):
        period = int(busy.max())
    longest, shortest = np.zeros(len(count), np.int64), np.full(len(count), period + 1)
    np.maximum.at(longest, resource[used > 0], hold[used > 0])
    np.minimum.at(shortest, resource[used > 0], hold[used > 0])
    if (longest > period).any():
        return None
    alike = np.where(longest == shortest, longest, 0)
    room = np.where(alike > 0, period // np.maximum(alike, 1), 0)
    if ((alike > 0) & (room < count)).any():
        return None
    cycles = _Cycles(
        start.astype(np.int64),
        resource.astype(np.int64),
        hold,
        offsets(count),
        np.zeros(int(count.sum()), np.int64),
        np.zeros(int(count.sum()), np.int64),
        np.zeros(len(count), np.int64),
        alike,
        room - count,
    )
    leaves, enters, held = touched(network, schedule.collective, schedule.chunk, schedule.link)
    slots = len(held)
    rows = np.arange(schedule.sends)
    out_rows, in_rows = np.lexsort((rows, leaves)), np.lexsort((rows, enters))
    # A margin of one tick, so that rounding never puts an arrival after a departure.
    travel = np.ceil(network.travel_s(schedule.chunk_bytes) / tick_s).astype(np.int64) + 1
    after = _after(leaves.astype(np.int64), enters.astype(np.int64), schedule.link, travel, slots)
    waits = _Waits(
        leaves.astype(np.int64),
        enters.astype(np.int64),
        schedule.link.astype(np.int64),
        travel,
        after,
        offsets(np.bincount(leaves, minlength=slots)),
        out_rows,
        offsets(np.bincount(enters, minlength=slots)),
        in_rows,
    )
    begin = _placed(waits, cycles, np.asarray(held), period)
    return None if len(begin) < schedule.sends else (floats(begin * tick_s), period * tick_s)


class _Waits(NamedTuple):
    """The slots that each send leaves and enters, its link, and the longest chain it begins.

    ``travel`` is the ticks to arrive over each link, ``after`` the ticks of the chain. The sends that leave
    slot s are ``out_rows[out_start[s]:out_start[s + 1]]``, and ``in_rows`` has the sends that enter it. Both
    are in the order of the schedule. A slot is a chunk at a rank.
    """

    leaves: Indices
    enters: Indices
    link: Indices
    travel: Indices
    after: Indices
    out_start: Indices
    out_rows: Indices
    in_start: Indices
    in_rows: Indices


class _Cycles(NamedTuple):
    """The busy times of each resource within a period.

    A send over link e holds ``resource[i]`` for ``hold[i]`` ticks, for each i in ``start[e]:start[e + 1]``.
    Resource r has ``taken[r]`` busy times; the i-th is from ``begin[first[r] + i]`` to ``end[first[r] + i]``.
    They are sorted by begin, and begin within the period. If all sends hold resource r equally long,
    ``alike[r]`` is that hold; otherwise it is 0. With such a hold, ``spare[r]`` is the number of places that
    may still be lost to gaps too short for a send.
    """

    start: Indices
    resource: Indices
    hold: Indices
    first: Indices
    begin: Indices
    end: Indices
    taken: Indices
    alike: Indices
    spare: Indices


@compiled
def _placed(waits: _Waits, cycles: _Cycles, held: np.ndarray, period: int) -> Indices:
    """Return the start of each send; an empty array if one finds no place."""
    sends, slots = len(waits.link), len(held)
    start = np.full(sends, -1, np.int64)
    arrival = np.zeros(sends, np.int64)
    next_in, next_out = waits.in_start[:-1].copy(), waits.out_start[:-1].copy()
    ready = np.zeros(slots, np.int64)
    heap, what, size = np.empty(sends + 1), np.empty(sends + 1, np.int64), 0
    for slot in range(slots):
        if held[slot]:
            size = _release(waits, next_in, next_out, slot, heap, what, size)
    done = 0
    while size > 0:
        row = what[0]
        size = pop(heap, what, size)
        begin = _place(cycles, waits.link[row], ready[waits.leaves[row]], period)
        if begin < 0:
            return start[:0]
        start[row] = begin
        arrival[row] = begin + waits.travel[waits.link[row]]
        done += 1
        slot = waits.enters[row]
        while next_in[slot] < waits.in_start[slot + 1] and start[waits.in_rows[next_in[slot]]] >= 0:
            ready[slot] = max(ready[slot], arrival[waits.in_rows[next_in[slot]]])
            next_in[slot] += 1
        size = _release(waits, next_in, next_out, slot, heap, what, size)
    return start if done == sends else start[:0]


@compiled
def _release(
    waits: _Waits,
    next_in: Indices,
    next_out: Indices,
    slot: int,
    heap: Floats,
    what: Indices,
    size: int,
) -> int:
    """Queue the sends out of ``slot`` that no longer wait, and return the size of the queue."""
    before = len(waits.link)
    if next_in[slot] < waits.in_start[slot + 1]:
        before = waits.in_rows[next_in[slot]]
    while next_out[slot] < waits.out_start[slot + 1]:
        row = waits.out_rows[next_out[slot]]
        if row > before:
            break
        next_out[slot] += 1
        size = push(heap, what, size, -float(waits.after[row]), row)
    return size


@compiled
def _place(cycles: _Cycles, link: int, ready: int, period: int) -> int:
    """Take the earliest time from ``ready`` on at which all resources of ``link`` are free; -1: none."""
    low, high = cycles.start[link], cycles.start[link + 1]
    at, agreed, now = low, 0, ready
    while agreed < high - low:
        later = _free_from(cycles, cycles.resource[at], cycles.hold[at], now, period)
        if later > ready + 2 * period:
            return -1
        agreed = agreed + 1 if later == now else 1
        now = later
        at = low if at + 1 == high else at + 1
    for at in range(low, high):
        _take(cycles, cycles.resource[at], cycles.hold[at], now, period)
    return now


@compiled
def _gap(cycles: _Cycles, resource: int, place: int, period: int) -> tuple[int, int, int]:
    """Return (number of busy times that begin by ``place``, end of the last, begin of the next).

    If the last or the next busy time is in another period, its time is shifted by one period.
    """
    first, taken = cycles.first[resource], cycles.taken[resource]
    low, high = 0, taken
    while low < high:
        middle = (low + high) // 2
        if cycles.begin[first + middle] <= place:
            low = middle + 1
        else:
            high = middle
    before = cycles.end[first + low - 1] if low else cycles.end[first + taken - 1] - period
    after = cycles.begin[first + low] if low < taken else cycles.begin[first] + period
    return low, before, after


@compiled
def _free_from(cycles: _Cycles, resource: int, hold: int, now: int, period: int) -> int:
    """Return the earliest free time from ``now`` on that loses at most ``spare`` places to gaps."""
    taken = cycles.taken[resource]
    if not taken:
        return now
    last = now + 2 * period
    while now <= last:
        place = now % period
        _, before, after = _gap(cycles, resource, place, period)
        if before > place:
            now += before - place
            continue
        if place + hold > after:
            now += max(1, after - place)
            continue
        if not cycles.alike[resource]:
            return now
        lost = (after - before) // hold - (place - before) // hold - (after - place - hold) // hold - 1
        if lost <= cycles.spare[resource]:
            return now
        from_before = before - (before - place) // hold * hold
        from_after = after - (after - place) // hold * hold
        now += min(from_before, from_after) - place if from_before + hold <= after else from_after - place
        return now
    return now


@compiled
def _take(cycles: _Cycles, resource: int, hold: int, now: int, period: int) -> None:
    place = now % period
    first, taken = cycles.first[resource], cycles.taken[resource]
    at = 0
    if taken:
        at, before, after = _gap(cycles, resource, place, period)
        if cycles.alike[resource]:
            cycles.spare[resource] -= (
                (after - before) // hold - (place - before) // hold - (after - place - hold) // hold - 1
            )
    for row in range(first + taken, first + at, -1):
        cycles.begin[row], cycles.end[row] = cycles.begin[row - 1], cycles.end[row - 1]
    cycles.begin[first + at], cycles.end[first + at] = place, place + hold
    cycles.taken[resource] = taken + 1


@compiled
def _after(leaves: Indices, enters: Indices, link: Ints, travel: Indices, slots: int) -> Indices:
    """Return for each send the ticks of the longest chain of sends that begins with it."""
    longest = np.zeros(slots, np.int64)
    found = np.zeros(len(link), np.int64)
    for row in range(len(link) - 1, -1, -1):
        found[row] = travel[link[row]] + longest[enters[row]]
        longest[leaves[row]] = max(longest[leaves[row]], found[row])
    return found
