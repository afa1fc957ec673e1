"""The throughput-optimal trees of an all_gather, every rank the root of as many (ForestColl)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from synth.network import Network
from synth.rooted_packing import RootedPacking, least_s_per_byte
from synth.tree_units import TreeUnits, exact_trees, rates, units
from synth.whole_trees import whole_trees

__all__ = ["gathering_trees"]


def gathering_trees(network: Network, chunks: int, seed: int = 0) -> RootedPacking:
    """Trees for ``chunks`` chunks a root: the fewest that are optimal if these are a multiple, or one each.

    Raises NotApplicableError where bandwidths have no common unit, or ports cannot be divided.
    """
    optimum_s_per_byte = _least_s_per_byte(network)
    found = rates(network)
    supply = np.ones(network.ranks, dtype=np.int64)
    best, fewest = exact_trees(found, supply, 1.0 / (network.ranks * optimum_s_per_byte))
    trees = fewest if chunks % fewest == 0 else chunks
    fitted = _units(network, trees)
    roots = np.random.default_rng(seed).permutation(np.tile(np.arange(network.ranks), trees))
    table, _ = whole_trees(
        roots, fitted.capacity.copy(), fitted.flow.copy(), network.src, network.dst,
        *network.out_links, *network.in_links, seed,
    )  # fmt: skip
    share = np.full(len(roots), 1.0 / len(roots))
    s_per_byte = optimum_s_per_byte * float(fitted.time * best / trees)
    return RootedPacking(table, roots, share, s_per_byte, optimum_s_per_byte)


@lru_cache(maxsize=4)
def _least_s_per_byte(network: Network) -> float:
    return least_s_per_byte(network)


@lru_cache(maxsize=4)
def _units(network: Network, trees: int) -> TreeUnits:
    found = rates(network)
    supply = np.ones(network.ranks, dtype=np.int64)
    best, _ = exact_trees(found, supply, 1.0 / (network.ranks * _least_s_per_byte(network)))
    return units(found, supply, best, trees)
