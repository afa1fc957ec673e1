"""What event-driven loops share: a heap of events, and which links and ports are free.

Resources are numbered links first, then ports.
"""

from __future__ import annotations

from probes.columns import Floats, Indices, Mask
from synth.jit import compiled

__all__ = ["is_free", "occupy", "pop", "push"]


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
