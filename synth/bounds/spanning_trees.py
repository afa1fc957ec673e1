"""A lower bound on all_reduce: twice a minimum spanning tree at the best prices of links and ports.

Let every port, and every link without a port, have a price y. A send costs price times hold time, summed over
the ports and links that it uses. In time T all resources offer T·Σy. Between k parts of the network every
chunk crosses at least 2(k−1) times (Nash-Williams, Tutte). For each cost c, let the parts be the sets of
ranks that links of less than c connect, as in Kruskal's algorithm. Summed over all costs, the crossings cost
at least twice a minimum spanning tree, MST(y). In this tree, a pair of ranks costs as much as its cheaper
direction. So T ≥ bytes · 2·MST(y)/Σy. The best prices are the dual of packing spanning trees; the bounds
named *total traffic* and *partition* are this bound at special prices.

MST(y) is concave. So in a symmetric network the mean of y over all translations proves the same bound, and
all resources of an orbit may have the same price.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import lru_cache
from itertools import tee

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

from probes.base import Floats, Indices
from synth.bounds.packing_lp import Trees, resource_load, solve
from synth.network import Network
from synth.networks import found_symmetry

__all__ = ["is_promising", "spanning_tree_s_per_byte"]

# The most links for which the search takes less than a second.
_MOST_LINKS = 20_000
# Linear programs with this many resources are small, even if each link is a resource.
_FEW_RESOURCES = 64
# The number of trees before the first linear program, and the most rounds after it.
_FIRST_TREES = 32
_MOST_ROUNDS = 40
# The trees that a round adds at the latest prices, and again at the mean prices.
_PER_ROUND = 4
# The relative gap to the best prices at which the search ends.
_CLOSE = 0.002
# The weight of the earlier rounds in the running mean of prices.
_STEADY = 0.7
# The largest random addition to a cost, relative to the largest cost; it breaks ties.
_CHANCE = 1e-12


def is_promising(network: Network) -> bool:
    """Return whether the search takes less than a second and may prove more than cuts and partitions.

    It may prove more if many links share few ports. If each link has its own price, the linear programs are
    large, and partitions are about as good.
    """
    if not len(network.ports) or network.links > _MOST_LINKS:
        return False
    orbits = int(_load_by_orbit(network).shape[0])
    return orbits <= max(_FEW_RESOURCES, network.links // 2)


def spanning_tree_s_per_byte(network: Network, known_s_per_byte: float = 0.0) -> float:
    """Return seconds per byte, without alpha, that no all_reduce beats; within 0.2 % of the best prices.

    The search ends early if no prices can prove more than ``known_s_per_byte``. Its rounds are cached for the
    last few networks: a call for another size continues them, with the same result as a fresh search. The
    network must be connected. O(rounds · (linear program + links · log ranks)).
    """
    proven = 0.0
    for limit, proven in copy(_rounds_of(network)):
        if limit <= max(proven, known_s_per_byte) * (1 + _CLOSE):
            break
    return proven * (1 - 1e-12)


@lru_cache(maxsize=4)
def _rounds_of(network: Network) -> Iterator[tuple[float, float]]:
    """Return an iterator whose copies each begin at the first round, and compute each round only once."""
    return tee(_search(network), 1)[0]


def _search(network: Network) -> Iterator[tuple[float, float]]:
    """Yield (the most that any prices can prove, the best proven so far), in seconds per byte."""
    busy = 2.0 * _load_by_orbit(network)
    random = np.random.default_rng(0)
    trees = Trees()
    used = np.zeros(busy.shape[0])
    for _ in range(_FIRST_TREES):
        used += busy[:, trees.add(_cheapest(network, busy.T @ used, random), 0)].sum(axis=1)
    best, before, steady = 0.0, 0, np.zeros_like(used)
    for rounds in range(_MOST_ROUNDS):
        found = solve(busy, trees, np.ones(1))
        # No prices prove more than the optimum over the trees found so far.
        yield found.s_per_byte, best
        if len(trees) == before or not found.price.any():
            return
        before = len(trees)
        latest = found.price / found.price.sum()
        steady = latest if rounds == 0 else _STEADY * steady + (1 - _STEADY) * latest
        for price in (steady, latest):
            cost = np.asarray(busy.T @ price)
            for at in range(_PER_ROUND):
                tree = trees.add(_cheapest(network, cost, random), 0)
                if at == 0:
                    # The random additions to the costs may hide a tree that is cheaper, but by no more than
                    # the term subtracted here.
                    least = cost[tree].sum() - 2 * _CHANCE * len(tree) * cost.max()
                    best = max(best, float(least / price.sum()))
    yield best, best


def _load_by_orbit(network: Network) -> csc_array:
    """Return, for (orbit of resources, link), the mean seconds that a byte on the link keeps one busy."""
    used, load = resource_load(network)
    symmetry = found_symmetry(network)
    if symmetry is None:
        return load
    orbit = np.concatenate((symmetry.orbit, network.links + symmetry.port_orbit))[used]
    _, orbit, count = np.unique(orbit, return_inverse=True, return_counts=True)
    mean = csc_array((1.0 / count[orbit], (orbit, np.arange(len(used)))), shape=(len(count), len(used)))
    return csc_array(mean @ load)


def _cheapest(network: Network, cost: Floats, random: np.random.Generator) -> Indices:
    """Return the links of a minimum spanning tree, by the cheaper link of each pair; ties break at random."""
    low, high = np.minimum(network.src, network.dst), np.maximum(network.src, network.dst)
    order = np.lexsort((cost, high, low))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (low[order][1:] != low[order][:-1]) | (high[order][1:] != high[order][:-1])
    link = order[first]
    scale = float(cost.max()) or 1.0
    # All edges cost the same extra, because scipy reads a cost of 0 as no edge.
    weight = cost[link] / scale + 1.0 + random.random(len(link)) * _CHANCE
    shape = (network.ranks, network.ranks)
    number = csr_array((np.arange(1, len(link) + 1), (low[link], high[link])), shape=shape)
    tree = minimum_spanning_tree(csr_array((weight, (low[link], high[link])), shape=shape)).tocoo()
    return np.asarray(link[number[tree.row, tree.col] - 1], dtype=np.int64)
