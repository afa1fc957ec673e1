"""The load of links and ports, what it costs to add to it, and the ways that cost least.

Every link and port has a load, the seconds for which what was routed so far will hold it. Its price is
exp(eta · load / the largest load), so a way is cheap that avoids what is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.columns import Floats, Indices, Ints, Mask
from synth.kernels.compiled import compiled
from synth.kernels.event_queue import pop, push
from synth.network import Network

__all__ = ["ETA", "Resources", "charge", "cheapest", "largest_load_s", "price_of", "resources"]

ETA = 10.0
_MOST_EXPONENT = 100.0


@dataclass(frozen=True, eq=False)
class Resources:
    """What routing knows of a network: who holds what for how long, and the links that leave each rank."""

    src: Ints
    dst: Ints
    held_s: Floats
    link_port_start: Ints
    link_port: Ints
    ports: int
    out_start: Ints
    out_links: Ints

    @property
    def columns(self) -> tuple[Ints, Ints, Floats, Ints, Ints, Ints, Ints]:
        return (
            self.src,
            self.dst,
            self.held_s,
            self.link_port_start,
            self.link_port,
            self.out_start,
            self.out_links,
        )


def resources(network: Network, chunk_bytes: int) -> Resources:
    """Of ``network`` with chunks of one size; a hold of nothing still counts a little, as a hop."""
    held_s = network.hold_s(chunk_bytes)
    start, links = network.out_links
    return Resources(
        network.src,
        network.dst,
        held_s,
        network.link_port_start,
        network.link_port,
        len(network.ports),
        start,
        links,
    )


@compiled
def price_of(
    link: int, price: Floats, held_s: Floats, link_port_start: Indices, link_port: Indices, links: int
) -> float:
    """What a chunk costs on ``link``, by the prices of the link and its ports."""
    total = price[link]
    for at in range(link_port_start[link], link_port_start[link + 1]):
        total += price[links + link_port[at]]
    return float(total * held_s[link])


@compiled
def charge(
    link: int,
    chunks: float,
    load_s: Floats,
    price: Floats,
    largest_s: float,
    held_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    links: int,
) -> None:
    """Add ``chunks`` (or take them away) to the loads of a link and its ports."""
    load_s[link] += chunks * held_s[link]
    price[link] = np.exp(min(ETA * load_s[link] / largest_s, _MOST_EXPONENT))
    for at in range(link_port_start[link], link_port_start[link + 1]):
        port = links + link_port[at]
        load_s[port] += chunks * held_s[link]
        price[port] = np.exp(min(ETA * load_s[port] / largest_s, _MOST_EXPONENT))


@compiled
def cheapest(
    seeds: Indices,
    wanted: Mask,
    enough: int,
    price: Floats,
    cost: Floats,
    came: Indices,
    heap_cost: Floats,
    heap_rank: Indices,
    src: Indices,
    dst: Indices,
    held_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    out_start: Indices,
    out_links: Indices,
) -> int:
    """Dijkstra from ``seeds`` until ``enough`` wanted ranks are settled; ``came`` is the link into each.

    Gives the wanted rank that was settled last, or -1 where they cannot be reached.
    """
    links = len(held_s)
    cost[:] = np.inf
    came[:] = -1
    size = 0
    for rank in seeds:
        cost[rank] = 0.0
        size = push(heap_cost, heap_rank, size, 0.0, rank)
    found = 0
    while size > 0:
        at_cost, rank = heap_cost[0], heap_rank[0]
        size = pop(heap_cost, heap_rank, size)
        if at_cost > cost[rank]:
            continue
        if wanted[rank]:
            found += 1
            if found == enough:
                return int(rank)
        for at in range(out_start[rank], out_start[rank + 1]):
            link = out_links[at]
            after = at_cost + price_of(link, price, held_s, link_port_start, link_port, links)
            if after < cost[dst[link]]:
                cost[dst[link]] = after
                came[dst[link]] = link
                size = push(heap_cost, heap_rank, size, after, dst[link])
    return -1


@compiled
def largest_load_s(load_s: Floats) -> float:
    """The load of the busiest resource, never zero."""
    largest_s = 1e-300
    for load in load_s:
        largest_s = max(largest_s, load)
    return largest_s
