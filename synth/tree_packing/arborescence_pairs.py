"""Fractional packing of pairs of trees with one root: one to reduce along, one to broadcast along.

One spanning tree for both ways (`spanning_trees`) is best if both directions of a link cost the same. If a
NIC sends faster than it receives, or a link is slow in one direction, the two ways should differ: an
in-arborescence and an out-arborescence of the same root, chosen together. Column generation works as in
`arborescences`: each round adds the pairs that are cheapest, over all roots, at the latest and at the
averaged prices of the linear program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import hstack

from probes.base import Floats, Indices
from synth.bounds import Trees, link_load, solve
from synth.errors import NotApplicableError
from synth.network import Network
from synth.tree_packing.min_arborescence import cheapest_arborescence
from synth.tree_packing.rooted_trees import height

__all__ = ["PairPacking", "pack_pairs"]

# The number of pairs before the first linear program, and the most rounds after it.
_FIRST_PAIRS = 24
_MOST_ROUNDS = 60
# The relative gap to the bound at which the search ends.
_CLOSE = 0.002
# The weight of the earlier rounds in the running mean of prices.
_STEADY = 0.7
# The number of latest pairs that stay even if the program gives them no share.
_RECENT = 48


@dataclass(frozen=True, eq=False)
class PairPacking:
    """Pairs of trees and their shares of the bytes; shares sum to 1.

    ``up`` is (pairs, ranks − 1) links towards a root, ``down`` as many links away from it. ``s_per_byte`` is
    the load of the busiest link or port.
    """

    up: Indices
    down: Indices
    share: Floats
    s_per_byte: float


def pack_pairs(network: Network, *, enough_s_per_byte: float = 0.0, seed: int = 0) -> PairPacking:
    """Return a packing whose largest load is within 0.2 % of the least, or the best of 60 rounds.

    ``enough_s_per_byte`` is a known lower bound on the load; the search ends when it is reached. Raises
    NotApplicableError if a rank does not reach every other. O(rounds · (linear program + ranks² · links)).
    """
    random = np.random.default_rng(seed)
    one_way = link_load(network)
    # Columns: links used upwards, then links used downwards.
    busy = hstack((one_way, one_way), format="csc")
    pairs = Trees()
    used = np.zeros(busy.shape[0])
    for _ in range(_FIRST_PAIRS):
        pair, levels = _cheapest(network, np.asarray(one_way.T @ used), random)
        used += busy[:, pairs.add(pair, levels)].sum(axis=1)
    bound, before, steady = enough_s_per_byte, 0, np.zeros_like(used)
    for rounds in range(_MOST_ROUNDS + 1):
        found = solve(busy, pairs, np.ones(1))
        if found.s_per_byte <= bound * (1 + _CLOSE) or rounds == _MOST_ROUNDS or len(pairs) == before:
            break
        pairs.keep(found.share > 1e-9, _RECENT)
        before = len(pairs)
        latest = found.price / (found.price.sum() or 1.0)
        steady = latest if rounds == 0 else _STEADY * steady + (1 - _STEADY) * latest
        for price in (steady, latest):
            cost = np.asarray(one_way.T @ price)
            pair, levels = _cheapest(network, cost, random)
            pairs.add(pair, levels)
            # This is the cheapest of all pairs, so its cost bounds the load of every packing of pairs.
            bound = max(bound, float(np.asarray(busy.T @ price)[pair].sum() / price.sum()))
    kept = found.share > 1e-9
    rows = pairs.table[kept]
    up = rows[rows < network.links].reshape(len(rows), -1)
    down = rows[rows >= network.links].reshape(len(rows), -1) - network.links
    return PairPacking(up, down, found.share[kept] / found.share[kept].sum(), found.s_per_byte)


def _cheapest(network: Network, cost: Floats, random: np.random.Generator) -> tuple[Indices, int]:
    """Return (columns, height) of a cheapest pair; ties break at random.

    The columns are the links up, then the links down with ``network.links`` added to their numbers.
    """
    ranks, links = network.ranks, network.links
    weight = cost / (float(cost.max(initial=0.0)) or 1.0) + 1e-7 * random.random(links)
    best_cost, best, best_height = np.inf, np.zeros(0, dtype=np.int64), 0
    for root in random.permutation(ranks).tolist():
        up = cheapest_arborescence(ranks, network.dst, network.src, weight, root)
        down = cheapest_arborescence(ranks, network.src, network.dst, weight, root)
        if (up == -2).any() or (down == -2).any():
            raise NotApplicableError(f"{network.name}: not every rank reaches every other")
        total = float(weight[up[up >= 0]].sum() + weight[down[down >= 0]].sum())
        if total < best_cost:
            best_cost, best = total, np.concatenate((up[up >= 0], links + down[down >= 0]))
            best_height = height(up, network.dst) + height(down, network.src)
    return best, best_height
