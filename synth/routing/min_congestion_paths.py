"""Ways through a network that share the load: cheapest paths, dearer where links and ports are busy.

Chunks are routed one batch after another, then again, each batch taken out and put back at the prices of
all the others: multiplicative weights, by which the largest load comes down towards the optimum of the
concurrent-flow LP. The best pass is kept; two without gain end it.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices, Ints
from synth.kernels.compiled import compiled
from synth.routing.congestion_prices import ETA, charge, cheapest, largest_load_s

__all__ = ["route"]


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
            price[at] = np.exp(ETA * load_s[at] / largest_s) if turn else 1.0
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
                last = cheapest(
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
                            charge(
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
            charge(
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
            charge(
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
