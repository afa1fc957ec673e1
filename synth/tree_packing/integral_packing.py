"""The throughput-optimal trees of an all_gather: equally many for each root (ForestColl)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from probes.base import Longs
from synth.bounds import least_s_per_byte
from synth.errors import NotApplicableError
from synth.network import Network
from synth.tree_packing.arborescences import RootedPacking
from synth.tree_packing.integral_arborescences import graph_of, whole_trees
from synth.tree_packing.integral_capacities import IntegralRates, TreeUnits, exact_trees, rates, units

__all__ = ["Optimum", "gathering_trees", "optimum"]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The optimum of an all_gather.

    ``best`` is the rate, in the unit of ``rates``, at which each rank can receive from every other. Reaching
    it takes ``trees_a_root`` trees for each root, or a multiple of that. ``s_per_byte`` is the least time per
    byte.
    """

    rates: IntegralRates
    best: Fraction
    trees_a_root: int
    s_per_byte: float


@lru_cache(maxsize=4)
def optimum(network: Network) -> Optimum:
    """Return the exact optimum of an all_gather.

    Raises NotApplicableError without a common unit of rates, or if a rank does not reach every other.
    """
    s_per_byte = least_s_per_byte(network, "all_gather")
    if not math.isfinite(s_per_byte):
        raise NotApplicableError(f"{network.name}: not every rank reaches every other")
    found = rates(network)
    best, trees = exact_trees(found, _every_rank(network), 1.0 / (network.ranks * s_per_byte))
    return Optimum(found, best, trees, s_per_byte)


def gathering_trees(network: Network, chunks: int, seed: int = 0, solver: str = "cbc") -> RootedPacking:
    """Return the trees for ``chunks`` chunks a root.

    They are the fewest optimal trees if their number for each root divides ``chunks``, else one tree for each
    chunk. ``solver`` divides shared ports. Raises NotApplicableError if bandwidths have no common unit or
    ports cannot be divided, UnavailableError without the solver.
    """
    least = optimum(network)
    trees = least.trees_a_root if chunks % least.trees_a_root == 0 else chunks
    fitted = _units(network, trees, solver)
    roots = np.random.default_rng(seed).permutation(np.tile(np.arange(network.ranks), trees))
    table, _ = whole_trees(graph_of(network), roots, fitted.capacity.copy(), fitted.flow.copy(), seed)
    share = np.full(len(roots), 1.0 / len(roots))
    s_per_byte = least.s_per_byte * float(fitted.time * least.best / trees)
    return RootedPacking(table, roots, share, s_per_byte, least.s_per_byte)


@lru_cache(maxsize=4)
def _units(network: Network, trees: int, solver: str) -> TreeUnits:
    least = optimum(network)
    return units(least.rates, _every_rank(network), least.best, trees, solver)


def _every_rank(network: Network) -> Longs:
    return np.ones(network.ranks, dtype=np.int64)
