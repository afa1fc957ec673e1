"""Fractional packing of spanning trees: the trees, and the share of the buffer that each carries.

An all_reduce over one tree reduces towards its root and broadcasts back over the same edges, so it uses each
edge once in both directions. A tree that carries the share x of the bytes adds x·beta to the load of a
resource (a link or a port) for each of its edges that needs the resource. The busiest resource decides the
time per byte, so the best shares minimize the largest load. If both directions cost the same
and no port is shared, this time equals the partition bound of Nash-Williams and Tutte, so no algorithm that
reduces at ranks is faster.

The search is column generation. In each round a linear program chooses shares among the trees so far, and its
duals price the resources. Then the cheapest trees at these prices and at their running mean are added, until
no tree is cheaper than the program's optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array

from probes.base import Floats, Indices
from synth.bounds import Trees, link_load, solve
from synth.errors import NotApplicableError
from synth.kernels import compiled
from synth.network import Network, grouped

__all__ = ["Edges", "Packing", "fewest", "low_tree", "pack", "pair_links", "thinned"]

# The number of trees before the first linear program, the most rounds, and the trees added in a round.
_FIRST_TREES = 64
_MOST_ROUNDS = 60
_PER_ROUND = 16
# The relative gap to the bound within which the load counts as least. From five times this gap on, the method
# ``forest`` tries packings of pairs of trees.
_CLOSE = 0.002
# The weight of the earlier rounds in the running mean of prices, which is thus over about three rounds.
_STEADY = 0.7
# Rounds that look for lower trees once the load is least.
_LOWERING_ROUNDS = 6
# The number of latest trees, made in six rounds, that stay even if the program gives them no share.
_RECENT = 6 * _PER_ROUND
# The smallest share of a tree that `thinned` keeps: a hop of a chunk takes 50 times as long on it as at the
# full rate.
_LEAST_SHARE = 0.02
# The costs of a level of a tree, used in turn, so that trees of several heights are found.
_PER_LEVEL = (1e-6, 1e-2, 5e-2, 1e-1)


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of opposite links as undirected edges: ``there[e]`` leads a[e] → b[e], ``back[e]`` b → a."""

    network: Network
    a: Indices
    b: Indices
    there: Indices
    back: Indices

    @property
    def count(self) -> int:
        return len(self.a)

    @cached_property
    def load(self) -> csc_array:
        """(resources, edges): seconds per byte for which each edge, used both ways, holds each resource."""
        one_way = link_load(self.network)
        return csc_array(one_way[:, self.there] + one_way[:, self.back])

    @cached_property
    def unavoidable(self) -> Floats:
        """A load of each resource that no spanning tree avoids.

        Every tree uses some edge at each rank. So it loads a resource at least as much as the rank's edge
        that loads the resource least.
        """
        start, edge, _ = self.around
        found = np.zeros(self.load.shape[0])
        for rank in range(self.network.ranks):
            mine = self.load[:, edge[start[rank] : start[rank + 1]]]
            found = np.maximum(found, mine.min(axis=1).toarray().ravel())
        return found

    @cached_property
    def around(self) -> tuple[Indices, Indices, Indices]:
        """(start, edge, other end) of the edges at each rank."""
        ends = np.concatenate((self.a, self.b))
        others = np.concatenate((self.b, self.a))
        edge = np.concatenate((np.arange(self.count), np.arange(self.count)))
        start, order = grouped(ends, self.network.ranks)
        return start, edge[order], others[order]


@dataclass(frozen=True, eq=False)
class Packing:
    """Trees as rows of edge numbers, each with its ``share`` of the bytes; shares sum to 1.

    ``s_per_byte`` is the load of the busiest resource, ``bound_s_per_byte`` a proven lower bound on it for
    every packing of spanning trees.
    """

    edges: Edges
    trees: Indices
    share: Floats
    s_per_byte: float
    bound_s_per_byte: float


def pair_links(network: Network) -> Edges:
    """Return the opposite links of each two ranks, paired in the order of their cost.

    Raises NotApplicableError if the pairs do not connect all ranks.
    """
    order = np.argsort(network.beta_s_per_byte, kind="stable")
    waiting: dict[tuple[int, int], list[int]] = {}
    rows: list[tuple[int, int, int, int]] = []
    for link in order.tolist():
        src, dst = int(network.src[link]), int(network.dst[link])
        opposite = waiting.get((dst, src))
        if opposite:
            rows.append((dst, src, opposite.pop(0), link))
        else:
            waiting.setdefault((src, dst), []).append(link)
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    edges = Edges(network, table[:, 0], table[:, 1], table[:, 2], table[:, 3])
    joined_by, _ = _grow(*edges.around, np.zeros(edges.count), 0, 0.0)
    if (joined_by < 0).sum() > 1:
        raise NotApplicableError(f"{network.name}: spanning trees need links both ways between ranks")
    return edges


def pack(edges: Edges, *, enough_s_per_byte: float = 0.0, headroom: float = 0.0, seed: int = 0) -> Packing:
    """Return the packing whose largest load is within 0.2 % of the least, or the best of 60 rounds.

    ``enough_s_per_byte`` is a known lower bound on the load; the search ends when it is reached. With
    ``headroom``, load that a tree could avoid (beyond `Edges.unavoidable`) counts 1 + ``headroom`` times, so
    that trees branch where bandwidth is spare. O(rounds · (linear program + ranks · links)).
    """
    random = np.random.default_rng(seed)
    busy = edges.load * (1.0 + headroom)
    spared = headroom * edges.unavoidable if headroom else None
    trees = Trees()
    used = np.zeros(busy.shape[0])
    for _ in range(_FIRST_TREES):
        used += busy[:, trees.add(*_cheapest(edges, used, random))].sum(axis=1)
    bound, lately, before = enough_s_per_byte, 0, 0
    steady = np.zeros_like(used)
    for rounds in range(_MOST_ROUNDS + 1):
        found = solve(busy, trees, np.ones(1), spared)
        # Once the least load is reached, further rounds only look for lower trees of the same load.
        lately += found.s_per_byte <= bound * (1 + _CLOSE)
        if lately > _LOWERING_ROUNDS or rounds == _MOST_ROUNDS or len(trees) == before:
            break
        trees.keep(found.share > 1e-9, _RECENT)
        before = len(trees)
        # The program's prices jump between rounds; trees that are cheap at their running mean stay useful.
        latest = found.price / (found.price.sum() or 1.0)
        steady = latest if rounds == 0 else _STEADY * steady + (1 - _STEADY) * latest
        cost = np.asarray(busy.T @ steady)
        for at in range(_PER_ROUND):
            prices = latest if at % 2 else steady
            tree, height = _cheapest(edges, prices, random, _PER_LEVEL[at % len(_PER_LEVEL)])
            trees.add(tree, height)
            if at == 0 and steady.sum():
                free = float(spared @ steady) if spared is not None else 0.0
                bound = max(bound, float((cost[tree].sum() - free) / steady.sum()))
    kept = found.share > 1e-9
    share, rows = found.share[kept] / found.share[kept].sum(), trees.table[kept]
    if not headroom:
        return Packing(edges, rows, share, found.s_per_byte, bound)
    return _loaded(edges, rows, share)


def thinned(packing: Packing) -> Packing:
    """Return the packing without trees of very small shares.

    If the network queues (`Network.queues`), each tree sends all the time at its share of the rate. A chunk
    on a tree with a small share then takes long at every hop.
    """
    kept = packing.share >= min(_LEAST_SHARE, float(packing.share.max()))
    return _loaded(packing.edges, packing.trees[kept], packing.share[kept] / packing.share[kept].sum())


def fewest(packing: Packing, most_s_per_byte: float) -> Packing:
    """Return the packing without its smallest shares, as far as its load stays ≤ ``most_s_per_byte``."""
    while len(packing.share) > 1:
        trees = Trees()
        for row in np.delete(packing.trees, int(packing.share.argmin()), axis=0):
            trees.add(row, 1)
        found = solve(packing.edges.load, trees, np.ones(1))
        fewer = thinned(_loaded(packing.edges, trees.table, found.share))
        if fewer.s_per_byte > most_s_per_byte:
            break
        packing = fewer
    return packing


def _loaded(edges: Edges, trees: Indices, share: Floats) -> Packing:
    """Return the packing of these trees with these shares."""
    used = np.bincount(trees.ravel(), weights=np.repeat(share, trees.shape[1]), minlength=edges.count)
    return Packing(edges, trees, share, float((edges.load @ used).max()), 0.0)


def _cheapest(
    edges: Edges, prices: Floats, random: np.random.Generator, per_level: float = 1e-6
) -> tuple[Indices, int]:
    """Return (edges, height) of a cheapest spanning tree at these prices; ties go to low trees."""
    cost = np.asarray(edges.load.T @ prices)
    scale = float(cost.max(initial=0.0)) or 1.0
    noise = random.random(edges.count) * 1e-7
    root = int(random.integers(edges.network.ranks))
    joined_by, depth = _grow(*edges.around, cost / scale + noise, root, per_level)
    return joined_by[joined_by >= 0], int(depth.max())


def low_tree(edges: Edges, cost: Floats, root: int, per_level: float) -> Indices:
    """Return the edges of a cheapest spanning tree; each level below ``root`` adds ``per_level``."""
    joined_by, _ = _grow(*edges.around, cost, root, per_level)
    return joined_by[joined_by >= 0]


@compiled
def _grow(
    start: Indices, edge: Indices, other: Indices, cost: Floats, root: int, per_level: float
) -> tuple[Indices, Indices]:
    """Return Prim's tree: (edge that joins each rank, depth of each rank).

    The edge is -1 at the root and at ranks that are not reached. ``per_level`` is added for each level below
    the root, so that equal costs give a low tree.
    """
    ranks = len(start) - 1
    best = np.full(ranks, np.inf)
    joined_by = np.full(ranks, -1)
    depth = np.zeros(ranks, np.int64)
    done = np.zeros(ranks, np.bool_)
    best[root] = 0.0
    for _ in range(ranks):
        rank = -1
        for at in range(ranks):
            if not done[at] and best[at] < np.inf and (rank < 0 or best[at] < best[rank]):
                rank = at
        if rank < 0:
            break
        done[rank] = True
        for at in range(start[rank], start[rank + 1]):
            near = other[at]
            key = cost[edge[at]] + per_level * (depth[rank] + 1)
            if not done[near] and key < best[near]:
                best[near] = key
                joined_by[near] = edge[at]
                depth[near] = depth[rank] + 1
    return joined_by, depth
