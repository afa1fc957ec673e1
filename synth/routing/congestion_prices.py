"""Congestion prices of links and ports, and cheapest paths under them (Garg and Könemann 2007).

Every link and port has a load: the seconds for which the chunks routed so far hold it. Its price is exp(eta ·
load / the largest load), so a path that avoids busy resources is cheap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, floats
from synth.kernels import compiled, pop, push
from synth.network import Network

__all__ = [
    "ETA",
    "PathSearch",
    "Resources",
    "charge",
    "cheapest",
    "largest_load_s",
    "price_of",
    "resources",
    "search_over",
]

# The busiest link or port costs exp(10) times an idle one, about 22,000 times as much.
ETA = 10.0
# The largest float is about exp(709), so sums of many prices stay finite.
_MOST_EXPONENT = 100.0


class Resources(NamedTuple):
    """The network as routing needs it: hold times, ports, and the links out of each rank.

    Resources are numbered links first, then ports. A chunk on link e holds the link for ``held_s[e]``, and
    each of its ports ``port[port_start[e]:port_start[e + 1]]`` for the fraction ``port_part`` of that time.
    ``latency_s[e]`` is added to the cost of a path over link e.
    """

    src: Indices
    dst: Indices
    held_s: Floats
    port_start: Indices
    port: Indices
    port_part: Floats
    out_start: Indices
    out_links: Indices
    latency_s: Floats


def resources(network: Network, chunk_bytes: int, latency: float = 0.0) -> Resources:
    """Return the resources of ``network`` for one chunk size; ``latency`` weights alphas."""
    ports = network.link_port_start, network.link_port, network.port_part
    held = network.hold_s(chunk_bytes)
    latency_s = floats(latency * network.alpha_s)
    return Resources(network.src, network.dst, held, *ports, *network.out_links, latency_s)


class PathSearch(NamedTuple):
    """Buffers of a search: wanted ranks, cost of the path to each rank, the link into it, a heap."""

    wanted: Mask
    cost: Floats
    came: Indices
    heap_cost: Floats
    heap_rank: Indices


@compiled
def search_over(through: Resources) -> PathSearch:
    """Return the buffers for searches."""
    ranks = len(through.out_start) - 1
    most = len(through.src) + ranks + 1
    return PathSearch(
        np.zeros(ranks, np.bool_),
        np.empty(ranks),
        np.empty(ranks, np.int64),
        np.empty(most),
        np.empty(most, np.int64),
    )


@compiled
def price_of(through: Resources, price: Floats, link: int) -> float:
    """Return the cost of a chunk on ``link``, at the prices of the link and its ports."""
    total, links = price[link], len(through.src)
    for at in range(through.port_start[link], through.port_start[link + 1]):
        total += price[links + through.port[at]] * through.port_part[at]
    return float(total * through.held_s[link] + through.latency_s[link])


@compiled
def charge(
    through: Resources, load_s: Floats, price: Floats, link: int, chunks: float, largest_s: float
) -> None:
    """Add ``chunks`` (negative to remove) to the loads of a link and its ports, and update their prices."""
    held_s, links = chunks * through.held_s[link], len(through.src)
    load_s[link] += held_s
    price[link] = np.exp(min(ETA * load_s[link] / largest_s, _MOST_EXPONENT))
    for at in range(through.port_start[link], through.port_start[link + 1]):
        port = links + through.port[at]
        load_s[port] += held_s * through.port_part[at]
        price[port] = np.exp(min(ETA * load_s[port] / largest_s, _MOST_EXPONENT))


@compiled
def cheapest(through: Resources, search: PathSearch, price: Floats, seeds: Indices, enough: int) -> int:
    """Run Dijkstra from ``seeds`` until ``enough`` wanted ranks are settled; the paths are in ``search``.

    Return the wanted rank that was settled last, or -1 if fewer than ``enough`` can be reached.
    """
    cost, came = search.cost, search.came
    cost[:] = np.inf
    came[:] = -1
    size = 0
    for rank in seeds:
        cost[rank] = 0.0
        size = push(search.heap_cost, search.heap_rank, size, 0.0, rank)
    found = 0
    while size > 0:
        at_cost, rank = search.heap_cost[0], search.heap_rank[0]
        size = pop(search.heap_cost, search.heap_rank, size)
        if at_cost > cost[rank]:
            continue
        if search.wanted[rank]:
            found += 1
            if found == enough:
                return int(rank)
        for at in range(through.out_start[rank], through.out_start[rank + 1]):
            link = through.out_links[at]
            onward = through.dst[link]
            after = at_cost + price_of(through, price, link)
            if after < cost[onward]:
                cost[onward] = after
                came[onward] = link
                size = push(search.heap_cost, search.heap_rank, size, after, onward)
    return -1


@compiled
def largest_load_s(load_s: Floats) -> float:
    """Return the load of the busiest resource, at least 1e-300."""
    largest_s = 1e-300
    for load in load_s:
        largest_s = max(largest_s, load)
    return largest_s
