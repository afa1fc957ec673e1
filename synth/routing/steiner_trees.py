"""Trees through a network that share the load: the nearest target joins next, dearer where it is busy."""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices
from synth.kernels.compiled import compiled
from synth.routing.congestion_prices import ETA, charge, cheapest, largest_load_s

__all__ = ["grow"]

_FEW = 4


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
    price = np.exp(ETA * load_s / largest_s)
    depth = np.full(ranks, -1)
    depth[seeds] = 0
    wanted = np.zeros(ranks, np.bool_)
    wanted[targets] = True
    wanted[seeds] = False
    used, at_depth = [0 for _ in range(0)], [0 for _ in range(0)]
    while wanted.any():
        inside = np.flatnonzero(depth >= 0)
        end = cheapest(
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
            charge(link, 1.0, load_s, price, largest_s, held_s, link_port_start, link_port, links)
        wanted[end] = False
    return np.array(used), np.array(at_depth), -1
