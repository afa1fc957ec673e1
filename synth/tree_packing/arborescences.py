"""Fractional packing of rooted trees: the arborescences that carry the data that each root spreads.

In an all_gather every rank is a root with an equal demand; in a broadcast one rank has all of it. The optimum
is that of ForestColl: the largest rate at which every rank can receive. Trees attain this rate (Edmonds;
Tarjan). Here column generation finds it. The new columns are cheapest arborescences at the current prices;
their costs also give a lower bound on the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Indices
from synth.bounds import Trees, link_load, solve
from synth.errors import NotApplicableError
from synth.network import Network
from synth.tree_packing.min_arborescence import cheapest_arborescence
from synth.tree_packing.rooted_trees import height

__all__ = ["RootedPacking", "pack_rooted"]

# The search ends after this many rounds, or at this relative gap to the bound.
_MOST_ROUNDS = 80
_CLOSE = 1e-4


@dataclass(frozen=True, eq=False)
class RootedPacking:
    """Trees as rows of links, and each tree's ``root`` and ``share`` of the bytes; shares sum to 1.

    ``s_per_byte`` is the load of the busiest link or port; ``bound_s_per_byte`` is a lower bound on it for
    every packing.
    """

    trees: Indices
    root: Indices
    share: Floats
    s_per_byte: float
    bound_s_per_byte: float


def pack_rooted(
    network: Network, demand: Floats, *, enough_s_per_byte: float = 0.0, seed: int = 0
) -> RootedPacking:
    """Return the packing for ``demand``, which is each rank's share of the bytes.

    The search ends within 0.01 % of a lower bound on the load, after 80 rounds, or when no tree is new.
    ``enough_s_per_byte`` is a lower bound known beforehand. Raises NotApplicableError if a root does not
    reach all ranks. O(rounds · (linear program + roots · ranks · links)).
    """
    random = np.random.default_rng(seed)
    busy = link_load(network)
    roots = np.flatnonzero(demand > 0)
    trees = Trees()
    used = np.zeros(busy.shape[0])
    for at, root in enumerate(roots.tolist()):
        tree, levels = _cheapest(network, np.asarray(busy.T @ used), root, random)
        used += busy[:, trees.add(tree, levels, at)].sum(axis=1) * demand[root]
    bound, before = enough_s_per_byte, 0
    for rounds in range(_MOST_ROUNDS + 1):
        found = solve(busy, trees, demand[roots])
        if found.s_per_byte <= bound * (1 + _CLOSE) or rounds == _MOST_ROUNDS or len(trees) == before:
            break
        trees.keep(found.share > 1e-12, 6 * len(roots))
        before = len(trees)
        cost = np.asarray(busy.T @ found.price)
        proven = 0.0
        for at, root in enumerate(roots.tolist()):
            tree, levels = _cheapest(network, cost, root, random)
            proven += float(demand[root] * cost[tree].sum())
            trees.add(tree, levels, at)
        if found.price.sum():
            bound = max(bound, proven / float(found.price.sum()))
    kept = found.share > 1e-12
    return RootedPacking(
        trees.table[kept], roots[trees.groups[kept]], found.share[kept], found.s_per_byte, bound
    )


def _cheapest(network: Network, cost: Floats, root: int, random: np.random.Generator) -> tuple[Indices, int]:
    """Return (links, height) of a cheapest arborescence; ties go to fast links, then at random."""
    scale = float(cost.max(initial=0.0)) or 1.0
    slow = network.beta_s_per_byte / network.beta_s_per_byte.max()
    noise = random.random(network.links)
    chosen = cheapest_arborescence(
        network.ranks, network.src, network.dst, cost / scale + 1e-7 * (slow + noise), root
    )
    if (chosen == -2).any():
        raise NotApplicableError(f"{network.name}: rank {root} does not reach every rank")
    return chosen[chosen >= 0], height(chosen, network.src)
