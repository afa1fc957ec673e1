"""Consensus of periodic averaging: the product of a period's mixing matrices (DS-Sync, Sec. IV-B).

The mixing matrix of a division has 1/n for any two ranks in one group of n. It is symmetric, doubly
stochastic, and a projection. Ranks agree in the limit if and only if the groups of a period connect all of
them: a vector that every projection of the period keeps is constant on every group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from probes.base import Floats
from synth.groups.artifact import Division

__all__ = ["Consensus", "average", "consensus", "mixing_product", "parties"]

# Values up to this are rounding errors: products of projections are exact to a few units in the last place.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Consensus:
    """The factors by which disagreement shrinks in a period: ``rho`` in the limit, ``distance`` at worst."""

    rho: float
    distance: float


def average(values: Floats, division: Division) -> Floats:
    """Return ``values``, one row per rank, with the rows of each group replaced by their mean; O(size)."""
    mixed = np.array(values, dtype=np.float64)
    for group in division:
        rows = list(group)
        mixed[rows] = mixed[rows].mean(axis=0)
    return mixed


def mixing_product(ranks: int, iterations: Sequence[Division]) -> Floats:
    """Return the product of a period's mixing matrices, the last matrix leftmost; O(period · ranks²)."""
    product: Floats = np.eye(ranks)
    for division in iterations:
        product = average(product, division)
    return product


def parties(ranks: int, iterations: Sequence[Division]) -> list[list[int]]:
    """Return the sets of ranks that the groups of the period connect; a single set if all agree."""
    pairs = [(group[0], rank) for division in iterations for group in division for rank in group[1:]]
    src, dst = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(src)), (src, dst)), shape=(ranks, ranks))
    count, party = connected_components(graph, directed=False)
    return [np.flatnonzero(party == number).tolist() for number in range(count)]


def consensus(ranks: int, iterations: Sequence[Division]) -> Consensus:
    """Return rho, the second largest modulus of the product's eigenvalues, and the distance ‖product − J‖₂.

    Every entry of J is 1/ranks. The product is not symmetric, so the norm may exceed rho. Both are 1 if ranks
    never agree. O(ranks³).
    """
    if len(parties(ranks, iterations)) > 1:
        return Consensus(1.0, 1.0)
    error = mixing_product(ranks, iterations) - 1.0 / ranks
    distance = float(np.linalg.norm(error, 2))
    if np.abs(np.linalg.matrix_power(error, 4)).max() < _ROUNDING:
        # The matrix is nilpotent: its computed eigenvalues are only rounding.
        return Consensus(0.0, distance if distance > _ROUNDING else 0.0)
    return Consensus(min(1.0, float(np.abs(np.linalg.eigvals(error)).max())), min(1.0, distance))
