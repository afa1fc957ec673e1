"""Max-min fairness (Bertsekas and Gallager 1992): rates of flows by progressive filling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices
from synth.kernels import compiled, push

__all__ = ["Flows", "carry", "enqueue", "next_s", "share"]


class Flows(NamedTuple):
    """The messages and rates of flows; the functions of this module change the arrays in place.

    The messages of a flow form a linked list of steps: ``head`` is the one under way (-1: none), ``tail`` the
    last, and ``after`` has the next step of each step. Flow f crosses the resources
    ``crossed[start[f]:start[f + 1]]``. ``left`` and ``size`` (of each step) are bytes, ``rate`` and
    ``capacity`` (of each resource) bytes a second.
    """

    head: Indices
    tail: Indices
    after: Indices
    left: Floats
    rate: Floats
    size: Floats
    alpha_s: Floats
    capacity: Floats
    start: Indices
    crossed: Indices


@compiled
def enqueue(flows: Flows, f: int, step: int) -> bool:
    """Append the message of ``step`` to flow ``f``; return whether its transfer begins at once."""
    idle = bool(flows.head[f] < 0)
    if idle:
        flows.head[f], flows.left[f] = step, flows.size[step]
    else:
        flows.after[flows.tail[f]] = step
    flows.tail[f] = step
    return idle


@compiled
def next_s(flows: Flows, now_s: float, event_s: float) -> float:
    """Return the earliest of ``event_s`` and the ends of messages under way."""
    for f in range(len(flows.head)):
        if flows.head[f] >= 0:
            event_s = min(event_s, now_s + flows.left[f] / flows.rate[f])
    return event_s


@compiled
def carry(
    flows: Flows, now_s: float, until_s: float, key: Floats, what: Indices, events: int
) -> tuple[int, bool]:
    """Advance every flow; return (number of events with new arrivals, whether a flow went idle)."""
    ended = False
    head, left, rate, size = flows.head, flows.left, flows.rate, flows.size
    for f in range(len(head)):
        if head[f] < 0:
            continue
        # This is the same sum as in ``next_s``, so the message whose end determined ``until_s`` ends then
        # despite rounding.
        over = now_s + left[f] / rate[f] <= until_s
        left[f] -= rate[f] * (until_s - now_s)
        # A remainder that is only a rounding error counts as the end.
        if over or left[f] <= 1e-9 * size[head[f]]:
            events = push(key, what, events, until_s + flows.alpha_s[f], head[f])
            head[f] = flows.after[head[f]]
            left[f] = size[head[f]] if head[f] >= 0 else 0.0
            ended = ended or head[f] < 0
    return events, ended


@compiled
def share(flows: Flows) -> None:
    """Give each busy flow its rate; the tightest resource is divided first."""
    head, start, crossed = flows.head, flows.start, flows.crossed
    free = flows.capacity.copy()
    users = np.zeros(len(free), dtype=np.int64)
    open_ = head >= 0
    for f in range(len(head)):
        if open_[f]:
            for at in range(start[f], start[f + 1]):
                users[crossed[at]] += 1
    while True:
        tightest, least = -1, np.inf
        for r in range(len(free)):
            if users[r] > 0 and free[r] / users[r] < least:
                tightest, least = r, free[r] / users[r]
        if tightest < 0:
            return
        for f in range(len(head)):
            if not open_[f] or not _crosses(flows, f, tightest):
                continue
            # Rounding may leave a port no capacity; the flows that cross it must still end.
            flows.rate[f], open_[f] = max(least, 1e-9 * flows.capacity[tightest]), False
            for at in range(start[f], start[f + 1]):
                free[crossed[at]] = max(0.0, free[crossed[at]] - least)
                users[crossed[at]] -= 1


@compiled
def _crosses(flows: Flows, f: int, resource: int) -> bool:
    found = False
    for at in range(flows.start[f], flows.start[f + 1]):
        found = found or flows.crossed[at] == resource
    return found
