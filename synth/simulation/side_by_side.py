"""A simulation of several schedules at once on one network, each with a time at which it may begin.

Within a schedule, sends take turns in table order, as in `replay`. Sends of different schedules that need the
same link or port at the same time share it fairly, and all of them proceed more slowly (max-min fairness,
Bertsekas and Gallager 1992). A schedule alone takes the time of `replay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, floats, offsets, spans
from synth.kernels import compiled, pop, push
from synth.network import Network
from synth.schedules import Schedule, Timing
from synth.simulation.chunk_slots import touched

__all__ = ["replay_together"]

# A remainder of a send below this share of it is a rounding error.
_ROUNDING = 1e-12


class _Sends(NamedTuple):
    """All sends. Send n holds ``held[start[n]:start[n + 1]]``, each for ``held_s`` seconds if not slowed.

    It arrives ``fly_s`` after it has left its link. It begins when ``awaited`` events have come: its group's
    release, the arrivals of what it carries and the ends of the holds before it. The arrival of send n is an
    event for the sends ``after[after_start[n]:after_start[n + 1]]``, the end of hold h for the send
    ``next_user[h]`` (-1: none).
    """

    start: Indices
    held: Indices
    held_s: Floats
    fly_s: Floats
    awaited: Indices
    after_start: Indices
    after: Indices
    next_user: Indices


def replay_together(
    network: Network, schedules: Sequence[Schedule], release_s: Sequence[float]
) -> list[Timing]:
    """Return the times of each schedule, counted from 0; its sends begin at its ``release_s`` or later.

    Streams (`synth.streams`) take turns here, in table order. O(sends · sends under way · ports of a link).
    """
    parts = [_of_one(network, one) for one in schedules]
    first = offsets([one.sends for one in schedules])
    holds = offsets([len(part.held) for part in parts])
    every = _Sends(
        _joined([part.start[:-1] for part in parts], holds, end=True),
        np.concatenate([part.held for part in parts]),
        np.concatenate([part.held_s for part in parts]),
        np.concatenate([part.fly_s for part in parts]),
        np.concatenate([part.awaited for part in parts]),
        _joined(
            [part.after_start[:-1] for part in parts], offsets([len(part.after) for part in parts]), end=True
        ),
        _joined([part.after for part in parts], first),
        np.concatenate(
            [np.where(p.next_user < 0, -1, p.next_user + at) for p, at in zip(parts, first, strict=False)]
        ),
    )
    group = np.repeat(np.arange(len(parts)), np.diff(first))
    resources = network.links + len(network.ports)
    start_s, arrival_s = _run(every, group, floats(release_s).copy(), resources)
    rows = [slice(a, b) for a, b in pairwise(first)]
    return [Timing(start_s[one], arrival_s[one], float(arrival_s[one].max(initial=0.0))) for one in rows]


def _joined(parts: Sequence[Indices], first: Indices, *, end: bool = False) -> Indices:
    """Return the numbers of all parts, each raised by the part's first; ``end`` appends the last end."""
    found = [part + at for part, at in zip(parts, first, strict=False)]
    return np.concatenate([*found, first[-1:]] if end else found)


def _of_one(network: Network, schedule: Schedule) -> _Sends:
    link = schedule.link.astype(np.int64)
    held_start, resource = network.link_resources
    counts = np.diff(held_start)[link]
    entry = spans(held_start[:-1][link], counts)
    held = resource[entry]
    sends, user = schedule.sends, np.repeat(np.arange(schedule.sends), counts)
    # Holds of one resource follow each other in table order.
    order = np.argsort(held, kind="stable")
    follows = np.flatnonzero(np.diff(held[order]) == 0)
    next_user = np.full(len(held), -1, dtype=np.int64)
    next_user[order[follows]] = user[order[follows + 1]]
    needs, carrier = _carried(schedule)
    held_before = np.bincount(next_user[next_user >= 0], minlength=sends)
    awaited = 1 + np.bincount(carrier, minlength=sends) + held_before
    by_need = np.argsort(needs, kind="stable")
    size = schedule.chunk_bytes
    return _Sends(
        offsets(counts),
        held,
        network.held_s(size)[entry],
        (network.travel_s(size) - network.hold_s(size))[link],
        awaited.astype(np.int64),
        offsets(np.bincount(needs, minlength=sends)),
        carrier[by_need],
        next_user,
    )


def _carried(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return pairs (earlier send, send): the first brings what the second carries."""
    leaves, enters, _ = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    rows = np.arange(schedule.sends)
    order = np.argsort(enters, kind="stable")
    key = enters[order].astype(np.int64) * schedule.sends + order
    slot = leaves.astype(np.int64) * schedule.sends
    low, high = np.searchsorted(key, slot), np.searchsorted(key, slot + rows)
    needs, carrier = order[spans(low, high - low)], np.repeat(rows, high - low)
    if schedule.exchanges:
        own = np.diff(schedule.addend_start) > 0
        keep, named = ~own[carrier], schedule.addend >= 0
        addends = np.repeat(rows, np.diff(schedule.addend_start))
        needs = np.concatenate((needs[keep], schedule.addend[named]))
        carrier = np.concatenate((carrier[keep], addends[named]))
    return needs, carrier


@compiled
def _run(sends: _Sends, group: Indices, release_s: Floats, resources: int) -> tuple[Floats, Floats]:
    """Return the start and the arrival of each send; infinite for sends that never start."""
    count = len(sends.fly_s)
    start_s, arrival_s = np.full(count, np.inf), np.full(count, np.inf)
    # An event below ``count`` is the arrival of a send; ``count + g`` is the release of group g.
    key, what = np.empty(count + len(release_s) + 1), np.empty(count + len(release_s) + 1, dtype=np.int64)
    events = 0
    for g in range(len(release_s)):
        events = push(key, what, events, release_s[g], count + g)
    awaited = sends.awaited.copy()
    ready, begun = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    under_way = 0
    passed_s, speed = np.zeros(count), np.ones(count)
    open_ = np.zeros(len(sends.held), dtype=np.bool_)
    users = np.zeros(resources, dtype=np.int64)
    now_s = 0.0
    while events > 0 or under_way > 0:
        until_s = key[0] if events > 0 else np.inf
        until_s = min(until_s, _next_end_s(sends, begun[:under_way], open_, passed_s, speed, now_s))
        if until_s == np.inf:
            break
        waiting, left = 0, 0
        for at in range(under_way):
            row = begun[at]
            before_s = passed_s[row]
            passed_s[row] += speed[row] * (until_s - now_s)
            busy = False
            for h in range(sends.start[row], sends.start[row + 1]):
                if not open_[h]:
                    continue
                # This is the sum that determined ``until_s``, so the hold that ends then ends despite
                # rounding.
                over = now_s + (sends.held_s[h] - before_s) / speed[row] <= until_s
                if over or passed_s[row] >= sends.held_s[h] * (1 - _ROUNDING):
                    open_[h] = False
                    users[sends.held[h]] -= 1
                    if sends.next_user[h] >= 0:
                        waiting = _count_event(awaited, sends.next_user[h], ready, waiting)
                else:
                    busy = True
            if busy:
                begun[left] = row
                left += 1
            else:
                events = push(key, what, events, until_s + sends.fly_s[row], row)
                arrival_s[row] = until_s + sends.fly_s[row]
        under_way, now_s = left, until_s
        while events > 0 and key[0] <= now_s:
            event = what[0]
            events = pop(key, what, events)
            if event >= count:
                for row in range(count):
                    if group[row] == event - count:
                        waiting = _count_event(awaited, row, ready, waiting)
            else:
                for at in range(sends.after_start[event], sends.after_start[event + 1]):
                    waiting = _count_event(awaited, sends.after[at], ready, waiting)
        for at in range(waiting):
            row = ready[at]
            start_s[row] = now_s
            begun[under_way] = row
            under_way += 1
            for h in range(sends.start[row], sends.start[row + 1]):
                open_[h] = True
                users[sends.held[h]] += 1
        _share(sends, begun[:under_way], open_, users, speed)
    return start_s, arrival_s


@compiled
def _next_end_s(
    sends: _Sends, begun: Indices, open_: Mask, passed_s: Floats, speed: Floats, now_s: float
) -> float:
    """Return when the next of the sends under way releases a link or port, at their present speeds."""
    until_s = np.inf
    for row in begun:
        for h in range(sends.start[row], sends.start[row + 1]):
            if open_[h]:
                until_s = min(until_s, now_s + (sends.held_s[h] - passed_s[row]) / speed[row])
    return until_s


@compiled
def _count_event(awaited: Indices, row: int, ready: Indices, waiting: int) -> int:
    """Count one event that ``row`` awaits; return the number of sends that may begin."""
    awaited[row] -= 1
    if awaited[row] == 0:
        ready[waiting] = row
        waiting += 1
    return waiting


@compiled
def _share(sends: _Sends, begun: Indices, open_: Mask, users: Indices, speed: Floats) -> None:
    """Give each send under way its speed, a share of 1; the resource with the most users is divided first."""
    shared = np.empty(len(begun), dtype=np.int64)
    count = 0
    for row in begun:
        speed[row] = 1.0
        crowded = False
        for h in range(sends.start[row], sends.start[row + 1]):
            crowded = crowded or (open_[h] and users[sends.held[h]] > 1)
        if crowded:
            shared[count] = row
            speed[row] = 0.0
            count += 1
    if count == 0:
        return
    free, left = np.ones(len(users)), np.zeros(len(users), dtype=np.int64)
    for at in range(count):
        for h in range(sends.start[shared[at]], sends.start[shared[at] + 1]):
            if open_[h]:
                left[sends.held[h]] += 1
    while True:
        tightest, least = -1, np.inf
        for row in shared[:count]:
            if speed[row] == 0.0:
                for h in range(sends.start[row], sends.start[row + 1]):
                    r = sends.held[h]
                    if open_[h] and free[r] / left[r] < least:
                        tightest, least = r, free[r] / left[r]
        if tightest < 0:
            return
        for row in shared[:count]:
            if speed[row] == 0.0 and _holds(sends, row, open_, tightest):
                # Rounding may leave a resource nothing; the sends that hold it must still end.
                speed[row] = max(least, 1e-9)
                for h in range(sends.start[row], sends.start[row + 1]):
                    if open_[h]:
                        free[sends.held[h]] = max(0.0, free[sends.held[h]] - least)
                        left[sends.held[h]] -= 1


@compiled
def _holds(sends: _Sends, row: int, open_: Mask, resource: int) -> bool:
    found = False
    for h in range(sends.start[row], sends.start[row + 1]):
        found = found or (open_[h] and sends.held[h] == resource)
    return found
