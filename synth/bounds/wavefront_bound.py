"""A lower bound that counts chunks as they spread: no rank can pass on more than it has received.

For each rank v an ideal run is simulated, with the chunks that v lacks. The run does not tell chunks apart: a
free link sends whenever its source has more chunks than the link has sent, and every arrival counts as one
more chunk at its receiver, up to the number that shortest paths could have brought by then. No schedule is
faster: at any time each rank holds at least as many chunks in the ideal run as in any schedule. Unlike cuts,
this bound counts several hops of alpha before a bottleneck. It ignores ports.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Mask
from synth.kernels import compiled, pop, push
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import Bound

__all__ = ["wavefront"]

# The most events of all simulations together: each pair of a link and a chunk that a rank lacks may be one.
_MOST_EVENTS = 1_000_000


def wavefront(network: Network, held: Mask, wanted: Mask, chunk_bytes: int) -> Bound | None:
    """Return the bound for copying from ``held`` to ``wanted`` (ranks × chunks); None if it would take long.

    O(ranks · links · chunks · log links).
    """
    lacking = wanted & ~held
    if network.links * int(lacking.sum()) > _MOST_EVENTS:
        return None
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    distance_s = distances_s(network, travel_s, np.arange(network.ranks))
    best = Bound("wavefront", 0.0)
    for rank in np.flatnonzero(lacking.any(axis=1)).tolist():
        chunks = np.flatnonzero(lacking[rank])
        near_s = np.array([distance_s[held[:, chunk]].min(axis=0) for chunk in chunks])
        ordered_s = np.ascontiguousarray(np.sort(near_s, axis=0).T)
        time_s = float(_filled_s(network.dst, *network.out_links, hold_s, travel_s, rank, ordered_s))
        if time_s > best.time_s:
            best = Bound("wavefront", time_s, f"{len(chunks)} chunks on their way to rank {rank}")
    return best


@compiled
def _filled_s(
    dst: Indices,
    out_start: Indices,
    out_links: Indices,
    hold_s: Floats,
    travel_s: Floats,
    sink: int,
    near_s: Floats,
) -> float:
    """Return the earliest time at which ``sink`` holds all chunks.

    ``near_s[rank, n]`` is the time by which n + 1 chunks are near enough to have reached the rank.
    """
    ranks, most = near_s.shape
    received, free_s = np.zeros(ranks, np.int64), np.zeros(len(dst))
    heap_s, heap_link = np.empty(len(dst) * most + 1), np.empty(len(dst) * most + 1, np.int64)
    size = 0
    for rank in range(ranks):
        while received[rank] < most and near_s[rank, received[rank]] <= 0.0:
            received[rank] += 1
            size = _pass_on(
                rank, 0.0, out_start, out_links, hold_s, travel_s, free_s, heap_s, heap_link, size
            )
    while size > 0:
        now_s, rank = heap_s[0], dst[heap_link[0]]
        size = pop(heap_s, heap_link, size)
        if received[rank] >= most:
            continue
        # The n-th arrival counts no earlier than n chunks can have reached the rank over shortest paths.
        ready_s = max(now_s, near_s[rank, received[rank]])
        received[rank] += 1
        if rank == sink and received[rank] == most:
            return float(ready_s)
        size = _pass_on(
            rank, ready_s, out_start, out_links, hold_s, travel_s, free_s, heap_s, heap_link, size
        )
    return np.inf


@compiled
def _pass_on(
    rank: int,
    now_s: float,
    out_start: Indices,
    out_links: Indices,
    hold_s: Floats,
    travel_s: Floats,
    free_s: Floats,
    heap_s: Floats,
    heap_link: Indices,
    size: int,
) -> int:
    """Queue one more chunk on every link out of ``rank``, and return the heap's new size."""
    for at in range(out_start[rank], out_start[rank + 1]):
        link = out_links[at]
        begin_s = max(now_s, free_s[link])
        free_s[link] = begin_s + hold_s[link]
        size = push(heap_s, heap_link, size, begin_s + travel_s[link], link)
    return size
