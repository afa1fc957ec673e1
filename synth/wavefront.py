"""A lower bound that counts chunks as they spread: no rank can pass on more than it has received.

For each rank v, every link sends without pause, as soon as its source holds one more chunk than the
link has sent, as if all that arrives were new to its receiver and of use to v; but no rank holds more
chunks than are near enough to have reached it. No schedule is faster: by every time each rank holds at
least as many of the chunks that v wants. Unlike the cuts of ``synth.bounds`` this sees several hops of
alpha on the way to a bottleneck. Ports are left out.
"""

from __future__ import annotations

import heapq

import numpy as np

from probes.columns import Floats, Mask
from synth.distances import distances_s
from synth.network import Network
from synth.schedule import Bound

__all__ = ["wavefront"]

_MOST_EVENTS = 2_000_000


def wavefront(network: Network, held: Mask, wanted: Mask, chunk_bytes: int) -> Bound | None:
    """The bound for copying from ``held`` to ``wanted`` (ranks × chunks); None if it would take long.

    O(ranks · links · chunks · log links).
    """
    lacking = wanted & ~held
    if network.links * int(lacking.sum()) > _MOST_EVENTS:
        return None
    distance_s = distances_s(network, network.travel_s(chunk_bytes), np.arange(network.ranks))
    best = Bound("wavefront", 0.0)
    for rank in np.flatnonzero(lacking.any(axis=1)).tolist():
        chunks = np.flatnonzero(lacking[rank])
        near_s = np.array([distance_s[held[:, chunk]].min(axis=0) for chunk in chunks])
        time_s = float(_filled_s(network, rank, np.sort(near_s, axis=0).T, chunk_bytes))
        if time_s > best.time_s:
            best = Bound("wavefront", time_s, f"{len(chunks)} chunks on their way to rank {rank}")
    return best


def _filled_s(network: Network, sink: int, near_s: Floats, chunk_bytes: int) -> float:
    """When ``sink`` can have received all; [rank, n] ``near_s`` is when n + 1 chunks can be near enough."""
    start, out_links = network.out_links
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    has = (near_s <= 0.0).sum(axis=1).tolist()
    free_s = [0.0] * network.links
    arrivals: list[tuple[float, int]] = []
    leaving = [out_links[start[rank] : start[rank + 1]].tolist() for rank in range(network.ranks)]

    def pass_on(rank: int, now_s: float) -> None:
        for link in leaving[rank]:
            begin_s = max(now_s, free_s[link])
            free_s[link] = begin_s + hold_s[link]
            heapq.heappush(arrivals, (begin_s + travel_s[link], link))

    for rank, number in enumerate(has):
        for _ in range(number):
            pass_on(rank, 0.0)
    while arrivals:
        now_s, link = heapq.heappop(arrivals)
        rank = int(network.dst[link])
        if has[rank] >= near_s.shape[1]:
            continue
        # One more has arrived, but no more than can have come from where they are: it counts when it can.
        ready_s = max(now_s, float(near_s[rank, has[rank]]))
        has[rank] += 1
        if rank == sink and has[rank] == near_s.shape[1]:
            return ready_s
        pass_on(rank, ready_s)
    return float("inf")
