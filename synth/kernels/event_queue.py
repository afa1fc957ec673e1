"""What event-driven loops share: a heap of events, and which links and ports are free.

Resources are numbered links first, then ports.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices, Mask, offsets
from synth.kernels.compiled import compiled

__all__ = ["is_free", "next_event", "occupy", "pop", "push", "queues_of"]


@compiled
def is_free(link: int, free: Mask, start: Indices, port: Indices, links: int) -> bool:
    """Whether the link and every port that it names are free."""
    if not free[link]:
        return False
    for at in range(start[link], start[link + 1]):  # noqa: SIM110 - numba compiles no generators
        if not free[links + port[at]]:
            return False
    return True


@compiled
def occupy(link: int, free: Mask, start: Indices, port: Indices, links: int, value: bool) -> None:
    """Mark the link and its ports as free (True) or held."""
    free[link] = value
    for at in range(start[link], start[link + 1]):
        free[links + port[at]] = value


@compiled
def push(heap_key: Floats, heap_what: Indices, size: int, key: float, what: int) -> int:
    """Add an entry to a binary heap, the least key first; the new size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if heap_key[parent] <= key:
            break
        heap_key[at], heap_what[at] = heap_key[parent], heap_what[parent]
        at = parent
    heap_key[at], heap_what[at] = key, what
    return size + 1


@compiled
def pop(heap_key: Floats, heap_what: Indices, size: int) -> int:
    """Remove the entry with the least key; the new size."""
    size -= 1
    key, what = heap_key[size], heap_what[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap_key[child + 1] < heap_key[child]:
            child += 1
        if heap_key[child] >= key:
            break
        heap_key[at], heap_what[at] = heap_key[child], heap_what[child]
        at = child
    heap_key[at], heap_what[at] = key, what
    return size


def queues_of(hold_s: Floats, travel_s: Floats, total: int) -> tuple[Indices, Indices, int, Indices]:
    """(queue of each link's holds, of its travels, how many are of holds, where each ring starts).

    A link holds one send at a time, and has as many under way as holds fit into a travel; ``total`` sends
    are all.
    """
    holds, hold_queue = np.unique(hold_s, return_inverse=True)
    travels, travel_queue = np.unique(travel_s, return_inverse=True)
    under_way = 3 + np.minimum(travel_s / hold_s, 1e9).astype(np.int64)
    size = np.ones(len(holds) + len(travels), np.int64)
    np.add.at(size, hold_queue, 2)
    np.add.at(size, len(holds) + travel_queue, under_way)
    start = offsets(np.minimum(size, total + 1))
    return hold_queue, travel_queue + len(holds), len(holds), start


@compiled
def next_event(
    heap_s: Floats,
    heap_queue: Indices,
    heap_size: int,
    ring_start: Indices,
    ring_s: Floats,
    ring_send: Indices,
    first_in: Indices,
    waiting: Indices,
) -> tuple[int, int]:
    """Take the first send out of the queue whose turn it is: (send, the heap's new size)."""
    queue = heap_queue[0]
    size = ring_start[queue + 1] - ring_start[queue]
    send = ring_send[ring_start[queue] + first_in[queue]]
    first_in[queue] = (first_in[queue] + 1) % size
    waiting[queue] -= 1
    follows = ring_start[queue] + first_in[queue]
    if waiting[queue] and ring_s[follows] == heap_s[0]:
        return send, heap_size
    heap_size = pop(heap_s, heap_queue, heap_size)
    if waiting[queue]:
        heap_size = push(heap_s, heap_queue, heap_size, ring_s[follows], queue)
    return send, heap_size
