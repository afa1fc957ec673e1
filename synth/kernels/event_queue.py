"""The event queue of compiled loops: a binary heap, and a calendar of sends that end.

Sends of equal duration finish first in, first out. So a calendar has one queue (a ring buffer of sends) for
each duration. Its heap holds the few queues instead of all sends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, offsets
from synth.kernels.compiled_loop import compiled

__all__ = ["Calendar", "calendar_of", "enter", "pop", "push", "take"]


@compiled
def push(heap_key: Floats, heap_entry: Indices, size: int, key: float, entry: int) -> int:
    """Add an entry to a binary heap with the least key first, and return the heap's new size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if heap_key[parent] <= key:
            break
        heap_key[at], heap_entry[at] = heap_key[parent], heap_entry[parent]
        at = parent
    heap_key[at], heap_entry[at] = key, entry
    return size + 1


@compiled
def pop(heap_key: Floats, heap_entry: Indices, size: int) -> int:
    """Remove the entry with the least key, and return the heap's new size."""
    size -= 1
    key, entry = heap_key[size], heap_entry[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap_key[child + 1] < heap_key[child]:
            child += 1
        if heap_key[child] >= key:
            break
        heap_key[at], heap_entry[at] = heap_key[child], heap_entry[child]
        at = child
    heap_key[at], heap_entry[at] = key, entry
    return size


class Calendar(NamedTuple):
    """The ends of sends: when a link's hold ends, and when a chunk's travel ends.

    ``hold_queue`` and ``travel_queue`` are the queues of each link; the first ``holds`` queues are for holds.
    Queue q is the ring from ``start[q]`` to ``start[q + 1]``, with ``waiting[q]`` sends from the
    ``first[q]``-th on. The heap has the queues that are not empty, by the end of their first send.
    """

    hold_queue: Indices
    travel_queue: Indices
    holds: int
    start: Indices
    end_s: Floats
    send: Indices
    first: Indices
    waiting: Indices
    heap_s: Floats
    heap_queue: Indices


def calendar_of(hold_s: Floats, travel_s: Floats, total: int) -> Calendar:
    """Return an empty calendar for links with these holds and travels, and ``total`` sends in all.

    A link holds one send at a time. The number of its sends in flight is the number of holds that fit into a
    travel.
    """
    holds, hold_queue = np.unique(hold_s, return_inverse=True)
    travels, travel_queue = np.unique(travel_s, return_inverse=True)
    under_way = 3 + np.minimum(travel_s / hold_s, 1e9).astype(np.int64)
    size = np.ones(len(holds) + len(travels), np.int64)
    np.add.at(size, hold_queue, 2)
    np.add.at(size, len(holds) + travel_queue, under_way)
    start = offsets(np.minimum(size, total + 1))
    queues = len(size)
    return Calendar(
        hold_queue,
        travel_queue + len(holds),
        len(holds),
        start,
        np.empty(start[-1]),
        np.empty(start[-1], np.int32),
        np.zeros(queues, np.int64),
        np.zeros(queues, np.int64),
        np.empty(queues + 1),
        np.empty(queues + 1, np.int64),
    )


@compiled
def enter(calendar: Calendar, size: int, queue: int, end_s: float, send: int) -> int:
    """Add ``send``, which ends at ``end_s``, to ``queue``, and return the heap's new size."""
    if not calendar.waiting[queue]:
        size = push(calendar.heap_s, calendar.heap_queue, size, end_s, queue)
    first = calendar.start[queue]
    slot = first + (calendar.first[queue] + calendar.waiting[queue]) % (calendar.start[queue + 1] - first)
    calendar.end_s[slot], calendar.send[slot] = end_s, send
    calendar.waiting[queue] += 1
    return size


@compiled
def take(calendar: Calendar, size: int) -> tuple[int, int, int]:
    """Remove the send that ends first, and return (send, its queue, the heap's new size)."""
    heap_s, heap_queue, start = calendar.heap_s, calendar.heap_queue, calendar.start
    queue = heap_queue[0]
    send = calendar.send[start[queue] + calendar.first[queue]]
    calendar.first[queue] = (calendar.first[queue] + 1) % (start[queue + 1] - start[queue])
    calendar.waiting[queue] -= 1
    follows_s = calendar.end_s[start[queue] + calendar.first[queue]]
    if calendar.waiting[queue] and follows_s == heap_s[0]:
        return send, queue, size
    size = pop(heap_s, heap_queue, size)
    if calendar.waiting[queue]:
        size = push(heap_s, heap_queue, size, follows_s, queue)
    return send, queue, size
