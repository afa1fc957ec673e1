"""Steiner trees that add the nearest target next (Takahashi and Matsuyama 1980), at congestion prices."""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices
from synth.kernels import compiled
from synth.routing.congestion_prices import ETA, Resources, charge, cheapest, largest_load_s, search_over

__all__ = ["grow"]

# The largest load counts as at least this many chunks, so that a single chunk on a link repels no others.
_FEW = 4


@compiled
def grow(
    through: Resources, seeds: Indices, targets: Indices, load_s: Floats
) -> tuple[Indices, Indices, int]:
    """Return a tree from ``seeds`` to all ``targets``, nearest first: (links, depths, missing or -1).

    ``load_s`` grows by the tree's load. O(targets · links · log ranks).
    """
    src, ranks = through.src, len(through.out_start) - 1
    search = search_over(through)
    largest_s = max(largest_load_s(load_s), _FEW * through.held_s.max())
    price = np.exp(ETA * load_s / largest_s)
    depth = np.full(ranks, -1)
    depth[seeds] = 0
    search.wanted[targets] = True
    search.wanted[seeds] = False
    used, at_depth = np.empty(ranks, np.int64), np.empty(ranks, np.int64)
    size = 0
    while search.wanted.any():
        end = cheapest(through, search, price, np.flatnonzero(depth >= 0), 1)
        if end < 0:
            return used[:size], at_depth[:size], np.flatnonzero(search.wanted)[0]
        way = [end]
        while depth[src[search.came[way[-1]]]] < 0:
            way.append(src[search.came[way[-1]]])
        for rank in way[::-1]:
            link = search.came[rank]
            depth[rank] = depth[src[link]] + 1
            used[size], at_depth[size] = link, depth[src[link]]
            size += 1
            charge(through, load_s, price, link, 1.0, largest_s)
        search.wanted[end] = False
    return used[:size], at_depth[:size], -1
