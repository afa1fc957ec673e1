"""Lower bounds on the time of a pattern under any order.

A rank at a place takes at least as long as that place's messages take on the rank's fastest links, with the
largest message on the fastest link. So the least bottleneck of any assignment of ranks to places is a lower
bound for every order. In a ring each rank has a successor, so the bottleneck assignment of successors is a
bound, too. The links of a ring also connect all ranks, so a third bound is the least c such that the links of
cost up to c connect all ranks. Bottleneck assignments are found by bisection over matchings (Burkard,
Dell'Amico and Martello 2009, Sec. 6.2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from probes.base import Floats, Mask
from synth.rank_order.costs import OrderCosts

__all__ = ["least_s"]


def least_s(costs: OrderCosts) -> float:
    """Return a lower bound on the seconds of any order."""
    pattern = costs.pattern
    if pattern.places < 2:
        return 0.0
    alpha, beta = costs.paths.alpha_s, costs.paths.beta_s_per_byte
    size, count = _between(costs)
    sends = _by_place(alpha, beta, size, count, pipelined=pattern.pipelined)
    receives = _by_place(alpha.T, beta.T, size.T, count.T, pipelined=pattern.pipelined)
    found = [_bottleneck(np.maximum(sends, receives), _perfect)]
    if ((size > 0).sum(axis=1) == 1).all() and _joins(size > 0):
        hop = size[size > 0].min() * beta + (0.0 if pattern.pipelined else count[size > 0].min() * alpha)
        np.fill_diagonal(hop, np.inf)
        found += [_bottleneck(hop, _perfect), _bottleneck(hop, _joins)]
    return max(found)


def _between(costs: OrderCosts) -> tuple[Floats, Floats]:
    """Return (bytes, messages) from place to place in all rounds."""
    pattern = costs.pattern
    size, count = (np.zeros((pattern.places, pattern.places)) for _ in range(2))
    repeats = np.ones(len(pattern.round)) if pattern.pipelined else pattern.repeats[pattern.round]
    np.add.at(size, (pattern.src, pattern.dst), pattern.share * costs.size_bytes * repeats)
    np.add.at(count, (pattern.src, pattern.dst), repeats)
    return size, count


def _by_place(alpha: Floats, beta: Floats, size: Floats, count: Floats, *, pipelined: bool) -> Floats:
    """Return (ranks, places): the least seconds that each rank needs for the sends of each place."""
    most = max(1, int((count > 0).sum(axis=1).max()))
    fastest, soonest = _least_others(beta, most), _least_others(alpha, most)
    largest = -np.sort(-size, axis=1)[:, :most]
    if pipelined:
        return np.asarray((fastest[:, None, :] * largest[None, :, :]).max(axis=2))
    return np.asarray(fastest @ largest.T + soonest @ -np.sort(-count, axis=1)[:, :most].T)


def _least_others(cost: Floats, most: int) -> Floats:
    """Return the ``most`` lowest costs from each rank to other ranks, ascending."""
    others = cost.copy()
    np.fill_diagonal(others, np.inf)
    return np.asarray(np.sort(others, axis=1)[:, :most])


def _bottleneck(cost: Floats, enough: Callable[[Mask], bool]) -> float:
    """Return the least value such that all entries of ``cost`` up to it are ``enough``."""
    values = np.unique(cost[np.isfinite(cost)])
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if enough(cost <= values[middle]):
            high = middle
        else:
            low = middle + 1
    return float(values[low])


def _perfect(allowed: Mask) -> bool:
    return bool((maximum_bipartite_matching(csr_array(allowed)) >= 0).all())


def _joins(allowed: Mask) -> bool:
    parts, _ = connected_components(csr_array(allowed), directed=True, connection="strong")
    return bool(parts == 1)
