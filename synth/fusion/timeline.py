"""A simulator of two resources, processor and network, each of which does one task at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, bytes_of, floats, ints

__all__ = [
    "ALL_GATHER",
    "ALL_REDUCE",
    "BACKWARD",
    "FORWARD",
    "KINDS",
    "REDUCE_SCATTER",
    "Timeline",
    "TimelineTask",
    "simulate",
]

KINDS = ("backward", "forward", "reduce_scatter", "all_gather", "all_reduce")
BACKWARD, FORWARD, REDUCE_SCATTER, ALL_GATHER, ALL_REDUCE = range(5)


@dataclass(frozen=True)
class TimelineTask:
    """A task of one resource for ``seconds``: a pass of a layer, or a collective of a bucket.

    The task starts after the tasks ``after`` (numbers of earlier tasks) and not before ``release_s``. Of
    several tasks that can start, a resource takes the one with the lowest ``priority``, then the first.
    """

    kind: int
    item: int
    seconds: float
    after: tuple[int, ...] = ()
    priority: int = 0
    release_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Timeline:
    """Tasks as columns, in the order in which they start.

    ``kind`` is an index into KINDS. ``item`` is the number of a pass's layer or of a collective's bucket.
    """

    kind: Bytes
    item: Ints
    start_s: Floats
    end_s: Floats

    @property
    def time_s(self) -> float:
        return float(self.end_s.max(initial=0.0))

    @property
    def on_network(self) -> Indices:
        """1 for each task of the network, 0 for each of the processor."""
        return (self.kind >= REDUCE_SCATTER).astype(np.int64)

    def busy_s(self, resource: int) -> float:
        """Return the seconds during which the processor (0) or the network (1) works."""
        return float((self.end_s - self.start_s)[self.on_network == resource].sum())

    def problems(self) -> list[str]:
        """Return inconsistencies, such as two tasks at once, as ``path: what is wrong``."""
        found = [
            f"{name}: expected {len(self.kind)} values, as many as kind, found {len(getattr(self, name))}"
            for name in ("item", "start_s", "end_s")
            if len(getattr(self, name)) != len(self.kind)
        ]
        if found:
            return found
        for row in np.flatnonzero(self.kind >= len(KINDS)).tolist()[:5]:
            found.append(f"kind[{row}]: expected 0 to {len(KINDS) - 1}, found {self.kind[row]}")
        wrong = ~((self.start_s >= 0) & (self.end_s >= self.start_s) & np.isfinite(self.end_s))
        for row in np.flatnonzero(wrong).tolist()[:5]:
            found.append(f"end_s[{row}]: expected a task from 0 s on that ends after it starts")
        if found:
            return found
        for resource in (0, 1):
            rows = np.flatnonzero(self.on_network == resource)
            early = self.start_s[rows][1:] < self.end_s[rows][:-1]
            for row in rows[1:][early].tolist()[:5]:
                found.append(f"start_s[{row}]: starts before the previous task of its resource ends")
        return found


def simulate(tasks: Sequence[TimelineTask]) -> Timeline:
    """Simulate tasks on resources that never idle while a task is ready; O(tasks · log tasks)."""
    left = [len(task.after) for task in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for before in task.after:
            followers[before].append(number)
    # (time, True if the task ends or False if it can start, number of the task)
    events = [(task.release_s, False, number) for number, task in enumerate(tasks) if not task.after]
    events.sort()
    waiting: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    busy = [False, False]
    order: list[int] = []
    start_s, end_s = [0.0] * len(tasks), [0.0] * len(tasks)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, ends, number = heappop(events)
            resource = int(tasks[number].kind >= REDUCE_SCATTER)
            if not ends:
                heappush(waiting[resource], (tasks[number].priority, number))
                continue
            busy[resource] = False
            for follower in followers[number]:
                left[follower] -= 1
                if not left[follower]:
                    heappush(events, (max(now, tasks[follower].release_s), False, follower))
        for resource in (0, 1):
            if waiting[resource] and not busy[resource]:
                number = heappop(waiting[resource])[1]
                busy[resource] = True
                order.append(number)
                start_s[number], end_s[number] = now, now + tasks[number].seconds
                heappush(events, (end_s[number], True, number))
    return Timeline(
        kind=bytes_of([tasks[number].kind for number in order]),
        item=ints([tasks[number].item for number in order]),
        start_s=floats([start_s[number] for number in order]),
        end_s=floats([end_s[number] for number in order]),
    )
