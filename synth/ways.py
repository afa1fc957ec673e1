"""Ways through a network that share the load: cheapest paths, dearer where links and ports are busy.

Every link and port has a load, the seconds for which what was routed so far will hold it. Its price is
exp(eta · load / the largest load), so a way is cheap that avoids what is busy. Chunks are routed one batch
after another, then again, each batch taken out and put back at the prices of all the others: multiplicative
weights, by which the largest load comes down towards the optimum of the concurrent-flow LP. The best pass
is kept; two without gain end it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.columns import Floats, Indices, Ints, Mask
from synth.events import pop, push
from synth.jit import compiled
from synth.network import Network

__all__ = ["Resources", "grow", "largest_load_s", "resources", "route"]

_ETA = 10.0
_MOST_EXPONENT = 100.0
_FEW = 4


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
def _price(
    link: int, price: Floats, held_s: Floats, link_port_start: Indices, link_port: Indices, links: int
) -> float:
    total = price[link]
    for at in range(link_port_start[link], link_port_start[link + 1]):
        total += price[links + link_port[at]]
    return float(total * held_s[link])


@compiled
def _charge(
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
    price[link] = np.exp(min(_ETA * load_s[link] / largest_s, _MOST_EXPONENT))
    for at in range(link_port_start[link], link_port_start[link + 1]):
        port = links + link_port[at]
        load_s[port] += chunks * held_s[link]
        price[port] = np.exp(min(_ETA * load_s[port] / largest_s, _MOST_EXPONENT))


@compiled
def _cheapest(
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
            after = at_cost + _price(link, price, held_s, link_port_start, link_port, links)
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


@compiled
def route(
    source: Indices,
    target: Indices,
    first: Indices,
    passes: int,
    batch: int,
    most_hops: int,
    load_s: Floats,
    src: Indices,
    dst: Indices,
    held_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    out_start: Indices,
    out_links: Indices,
    seed: int,
) -> tuple[Ints, Ints]:
    """A path for every chunk: (hops, links), ``links[c, : hops[c]]``; hops are -1 where there is no way.

    Chunks are sorted by source: those of the s-th one are ``first[s] … first[s + 1]``. ``load_s`` (links,
    then ports) has what is there already, and afterwards everything.
    """
    np.random.seed(seed)
    chunks, links, ranks = len(source), len(held_s), len(out_start) - 1
    hops = np.zeros(chunks, np.int32)
    path = np.zeros((chunks, most_hops), np.int32)
    cost, came = np.empty(ranks), np.empty(ranks, np.int64)
    heap_cost, heap_rank = np.empty(links + ranks + 1), np.empty(links + ranks + 1, np.int64)
    wanted = np.zeros(ranks, np.bool_)
    price = np.ones(len(load_s))
    best_hops, best_path, best_s = hops.copy(), path.copy(), np.inf
    seeds = np.zeros(1, np.int64)
    own = np.zeros(links, np.int64)
    before_s, stale = load_s.copy(), 0
    largest_s = largest_load_s(load_s)
    order = np.arange(len(first) - 1)
    for turn in range(passes + 1):
        largest_s = largest_load_s(load_s)
        for at in range(len(load_s)):
            # The first pass knows no loads yet: it takes the shortest ways.
            price[at] = np.exp(_ETA * load_s[at] / largest_s) if turn else 1.0
        np.random.shuffle(order)
        for group in order:
            mine = np.arange(first[group], first[group + 1])
            np.random.shuffle(mine)
            step = batch if turn else len(mine)
            for begin in range(0, len(mine), max(1, step)):
                part = mine[begin : begin + step]
                if turn:
                    _unload(part, hops, path, load_s, price, largest_s, held_s, link_port_start, link_port)
                wanted[:] = False
                enough = 0
                for chunk in part:
                    if not wanted[target[chunk]]:
                        wanted[target[chunk]] = True
                        enough += 1
                seeds[0] = source[part[0]]
                last = _cheapest(
                    seeds, wanted, enough, price, cost, came, heap_cost, heap_rank,
                    src, dst, held_s, link_port_start, link_port, out_start, out_links,
                )  # fmt: skip
                if last < 0:
                    for chunk in range(chunks):
                        hops[chunk] = -1
                    return hops, path
                own[:] = 0
                for chunk in part:
                    _lay(chunk, target[chunk], source[chunk], came, src, hops, path)
                    for at in range(hops[chunk]):
                        own[path[chunk, at]] += 1
                for chunk in part:
                    for at in range(hops[chunk]):
                        link = path[chunk, at]
                        if own[link]:
                            _charge(
                                link, own[link], load_s, price, largest_s if turn else np.inf,
                                held_s, link_port_start, link_port, links,
                            )  # fmt: skip
                            own[link] = 0
        stale += 1
        if largest_load_s(load_s) < best_s * (1 - 1e-3):
            stale = 0
        if largest_load_s(load_s) < best_s * (1 - 1e-9):
            best_s = largest_load_s(load_s)
            best_hops[:] = hops
            best_path[:] = path
        if stale == 2:
            break
    load_s[:] = before_s
    for chunk in range(chunks):
        for at in range(best_hops[chunk]):
            _charge(
                best_path[chunk, at], 1.0, load_s, price, largest_s, held_s, link_port_start, link_port, links
            )
    return best_hops, best_path


@compiled
def _unload(
    part: Indices,
    hops: Indices,
    path: Indices,
    load_s: Floats,
    price: Floats,
    largest_s: float,
    held_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
) -> None:
    for chunk in part:
        for at in range(hops[chunk]):
            _charge(
                path[chunk, at],
                -1.0,
                load_s,
                price,
                largest_s,
                held_s,
                link_port_start,
                link_port,
                len(held_s),
            )


@compiled
def _lay(
    chunk: int, target: int, source: int, came: Indices, src: Indices, hops: Indices, path: Indices
) -> None:
    """Write down the way to ``target``; one with more hops than fit is left as it was."""
    count = 0
    rank = target
    while rank != source:
        rank = src[came[rank]]
        count += 1
    if count > path.shape[1]:
        return
    hops[chunk] = count
    rank = target
    for at in range(count - 1, -1, -1):
        path[chunk, at] = came[rank]
        rank = src[came[rank]]


@compiled
def grow(
    seeds: Indices,
    targets: Indices,
    load_s: Floats,
    src: Indices,
    dst: Indices,
    held_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    out_start: Indices,
    out_links: Indices,
) -> tuple[Indices, Indices, int]:
    """A tree from ``seeds`` that reaches all ``targets``, the nearest next: (links, depths, missing or -1).

    ``load_s`` grows by what the tree adds. O(targets · links · log ranks).
    """
    links, ranks = len(held_s), len(out_start) - 1
    cost, came = np.empty(ranks), np.empty(ranks, np.int64)
    heap_cost, heap_rank = np.empty(links + ranks + 1), np.empty(links + ranks + 1, np.int64)
    # The first trees know no loads yet: one chunk on a link is nothing to avoid.
    largest_s = max(largest_load_s(load_s), _FEW * held_s.max())
    price = np.exp(_ETA * load_s / largest_s)
    depth = np.full(ranks, -1)
    depth[seeds] = 0
    wanted = np.zeros(ranks, np.bool_)
    wanted[targets] = True
    wanted[seeds] = False
    used, at_depth = [0 for _ in range(0)], [0 for _ in range(0)]
    while wanted.any():
        inside = np.flatnonzero(depth >= 0)
        end = _cheapest(
            inside, wanted, 1, price, cost, came, heap_cost, heap_rank,
            src, dst, held_s, link_port_start, link_port, out_start, out_links,
        )  # fmt: skip
        if end < 0:
            return np.array(used), np.array(at_depth), np.flatnonzero(wanted)[0]
        way = [end]
        while depth[src[came[way[-1]]]] < 0:
            way.append(src[came[way[-1]]])
        for rank in way[::-1]:
            link = came[rank]
            depth[rank] = depth[src[link]] + 1
            used.append(link)
            at_depth.append(depth[src[link]])
            _charge(link, 1.0, load_s, price, largest_s, held_s, link_port_start, link_port, links)
        wanted[end] = False
    return np.array(used), np.array(at_depth), -1
