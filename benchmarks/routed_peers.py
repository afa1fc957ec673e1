"""Ring and direct sends as TACOS simulates them: along shortest paths, on any network, which they ignore."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probes.base.columns import Indices, Ints
from synth.collective import collective
from synth.network import Link, Network, build
from synth.networks.path_search import distances_s
from synth.schedules import COPY
from synth.scheduling.list_scheduling import Sends
from synth.simulation.schedule import replay


class Routed:
    """Sends along shortest paths, one dimension after another, on one network."""

    def __init__(self, network: Network, chunk_bytes: int) -> None:
        self.network, self.chunk_bytes = network, chunk_bytes
        cost_s = network.travel_s(chunk_bytes)
        far_s = distances_s(network, cost_s, np.arange(network.ranks))
        self._next: Ints = np.full((network.ranks, network.ranks), -1, dtype=np.int32)
        src, dst = network.src.astype(int), network.dst.astype(int)
        # The shortest stride is the first dimension; halfway round a ring every other rank turns back.
        against = (dst < src) ^ (src % 2 == 1)
        for link in np.lexsort((against, np.abs(dst - src)))[::-1].tolist():
            over_s = cost_s[link] + far_s[dst[link]]
            self._next[src[link], over_s <= far_s[src[link]] * (1 + 1e-9)] = link

    def path(self, src: int, dst: int) -> Iterator[int]:
        """Yield the links from ``src`` to ``dst``."""
        while src != dst:
            yield (link := int(self._next[src, dst]))
            src = int(self.network.dst[link])

    def direct_s(self, src: Indices, dst: Indices) -> float:
        """Return the time of sending one chunk from each ``src`` to its ``dst``."""
        ranks, sends = self.network.ranks, Sends()
        pair = src * ranks + dst
        again = repeats(pair)
        share = 1 + int(again.max(initial=0))
        shape = collective("all_to_all", ranks, ranks * share)
        of_pair = np.lexsort((shape.target_of(), shape.source_of()))
        chunk, at, shift, hop = of_pair[pair * share + again], src, (dst - src) % ranks, 0
        while len(chunk):
            link = self._next[at, dst]
            sends.add(chunk, link, COPY, hop, shift)
            onward = self.network.dst[link] != dst
            at, hop = self.network.dst[link][onward], hop + 1
            chunk, dst, shift = chunk[onward], dst[onward], shift[onward]
        return replay(sends.schedule(self.network, shape, self.chunk_bytes, "direct")).time_s

    def ring_s(self, members: tuple[int, ...]) -> float:
        """Return the time of half an all_reduce: each member's chunk goes round the ring once.

        A rank on the way of several hops is a separate place for each, so that it waits for the right chunk.
        """
        network, sends = self.network, Sends()
        hops = [list(self.path(a, b)) for a, b in zip(members, (*members[1:], members[0]), strict=True)]
        way = [link for hop in hops for link in hop]
        places = [self._place(at, link, len(way)) for at, link in enumerate(way)]
        round_trip = build("ring", ["n"] * len(way), places, hold_alpha=network.hold_alpha)
        first = np.cumsum([0, *map(len, hops)])
        for member in range(len(members)):
            steps = np.arange(len(way) - len(hops[member - 1]))
            sends.add(int(first[member]), (first[member] + steps) % len(way), COPY, steps)
        shape = collective("all_gather", len(way))
        return replay(sends.schedule(round_trip, shape, self.chunk_bytes, "ring")).time_s

    def _place(self, at: int, link: int, places: int) -> Link:
        network = self.network
        ports = (f"link {link}", *(network.ports[port] for port in network.ports_of(link)))
        alpha_s, beta = float(network.alpha_s[link]), float(network.beta_s_per_byte[link])
        return Link(at, (at + 1) % places, alpha_s, beta, ports)


def repeats(values: Indices) -> Indices:
    """Return how many equal values come before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return found
