"""Trees at congestion prices: of few and cheap links, or of short paths.

Steiner trees add the target next that is nearest to the tree (Takahashi and Matsuyama 1980), so that little
load is added. Trees of shortest paths reach every target as soon as the prices allow. On a clique a star
takes no search: one rank sends to all targets.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Ints
from synth.kernels import compiled
from synth.routing.congestion_prices import (
    ETA,
    Resources,
    charge,
    cheapest,
    largest_load_s,
    price_of,
    search_over,
)

__all__ = ["grow", "star"]

# The largest load counts as at least this many chunks, so that a single chunk on a link repels no others.
_FEW = 4


@compiled
def grow(
    through: Resources, seeds: Indices, targets: Indices, load_s: Floats, shortest: bool
) -> tuple[Indices, Indices, int]:
    """Return a tree from ``seeds`` to all ``targets``, nearest first: (links, depths, missing or -1).

    With ``shortest`` every path in it is a cheapest path from ``seeds``. ``load_s`` grows by the tree's load.
    O(targets · links · log ranks), with ``shortest`` O(links · log ranks).
    """
    ranks = len(through.out_start) - 1
    search = search_over(through)
    largest_s = max(largest_load_s(load_s), _FEW * through.held_s.max())
    price = np.exp(ETA * load_s / largest_s)
    depth = np.full(ranks, -1)
    depth[seeds] = 0
    search.wanted[targets] = True
    search.wanted[seeds] = False
    used, at_depth = np.empty(ranks, np.int64), np.empty(ranks, np.int64)
    size = 0
    if shortest and search.wanted.any():
        if cheapest(through, search, price, seeds, search.wanted.sum()) < 0:
            unreached = search.wanted & (search.came < 0)
            return used[:size], at_depth[:size], np.flatnonzero(unreached)[0]
        for target in targets:
            size = _lay(through, search.came, target, depth, used, at_depth, size, load_s, price, largest_s)
        return used[:size], at_depth[:size], -1
    while search.wanted.any():
        end = cheapest(through, search, price, np.flatnonzero(depth >= 0), 1)
        if end < 0:
            return used[:size], at_depth[:size], np.flatnonzero(search.wanted)[0]
        size = _lay(through, search.came, end, depth, used, at_depth, size, load_s, price, largest_s)
        search.wanted[end] = False
    return used[:size], at_depth[:size], -1


@compiled
def star(
    through: Resources, clique: Ints, seeds: Indices, targets: Indices, load_s: Floats
) -> tuple[Indices, Indices]:
    """Return (links, depths) of the cheapest star, whose centre is a seed or has the data from one.

    ``clique[a, b]`` is the link from rank a to rank b. O(links + ranks · (targets + seeds)).
    """
    largest_s = max(largest_load_s(load_s), _FEW * through.held_s.max())
    price = np.exp(ETA * load_s / largest_s)
    lacking = np.zeros(len(clique), np.bool_)
    lacking[targets] = True
    lacking[seeds] = False
    best, centre, feeder = np.inf, -1, -1
    for rank in range(len(clique)):
        cost, source = np.inf, -1
        for seed in seeds:
            before = 0.0 if seed == rank else price_of(through, price, clique[seed, rank])
            if before < cost:
                cost, source = before, seed
        for target in targets:
            if lacking[target] and target != rank:
                cost += price_of(through, price, clique[rank, target])
        if cost < best:
            best, centre, feeder = cost, rank, source
    links, depths = np.empty(len(targets) + 1, np.int64), np.ones(len(targets) + 1, np.int64)
    size = 0
    if feeder != centre:
        links[0], depths[0], size = clique[feeder, centre], 0, 1
    for target in targets:
        if lacking[target] and target != centre:
            links[size] = clique[centre, target]
            size += 1
    for at in range(size):
        charge(through, load_s, price, links[at], 1.0, largest_s)
    return links[:size], depths[:size] - (feeder == centre)


@compiled
def _lay(
    through: Resources,
    came: Indices,
    target: int,
    depth: Indices,
    used: Indices,
    at_depth: Indices,
    size: int,
    load_s: Floats,
    price: Floats,
    largest_s: float,
) -> int:
    """Add the path to ``target`` to the tree, charge its links, and return the tree's new size."""
    src, rank, first = through.src, target, size
    while depth[rank] < 0:
        used[size] = came[rank]
        rank = src[came[rank]]
        size += 1
    # The links were found from the target on; their depths are counted from the tree on.
    for at in range((size - first) // 2):
        used[first + at], used[size - 1 - at] = used[size - 1 - at], used[first + at]
    for at in range(first, size):
        link = used[at]
        at_depth[at] = depth[src[link]]
        depth[through.dst[link]] = depth[src[link]] + 1
        charge(through, load_s, price, link, 1.0, largest_s)
    return size
