"""Spanning trees that load links and ports evenly, one tree after the other (greedy tree packing).

Each tree is a cheapest one at costs that grow exponentially with load. With enough trees the largest load
comes as close to its minimum as desired (Thorup 2007; Plotkin, Shmoys and Tardos 1995). No linear program is
solved, so a thousand ranks take a second where column generation takes minutes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Indices, Mask
from synth.kernels import compiled
from synth.tree_packing.spanning_trees import Edges, low_tree

__all__ = ["balanced_trees", "exchanged"]

# The difference in load for which the price of a resource grows e-fold. The cheapest edge costs _SOFT while
# all loads are equal, and no edge ever costs less. Values from 2 to 16 give 48 trees the same largest load on
# mesh:8x8, torus:8x8, dragonfly:9x8 and switch:32; at 1, it is 4 % larger on the torus.
_SOFT = 4.0
# The cost of one more level of a tree: less than a tenth of _SOFT, so that it decides only between trees of
# about the same load. At 0, the trees of mesh:8x8 have 18 levels instead of 13; at 1, loads of the mesh and
# the torus are 4 % larger.
_PER_LEVEL = 0.3
# The largest random addition to the cost of an edge: less than a level costs, so that it decides only ties.
# At 0.5, loads of the torus are 4 % larger.
_NOISE = 0.1
# The cost of one more level of a low tree: more than _SOFT, so that a tree takes a dearer edge if that makes
# it lower. At 3, the trees of dragonfly:9x8 have 4 levels instead of 3; at 30, nothing changes there. The
# root matters for low trees, so up to _MOST_ROOTS roots are tried for each tree, fewer if that takes more
# than _MOST_STEPS steps in all. With 8 roots, the trees of mesh:8x8 have 14 levels instead of 12.
_PER_LOW_LEVEL = 10.0
_MOST_ROOTS, _MOST_STEPS = 64, 500_000_000
# The most edges to examine for exchanges: some tenths of a second.
_MOST_LOOKED_AT = 100_000_000


def balanced_trees(edges: Edges, trees: int, *, seed: int = 0, low: bool = False) -> Indices:
    """Return (trees, ranks - 1) edges of this many spanning trees, which may repeat each other.

    ``low`` trees load the network less evenly. O(trees · ranks²), and up to 64 times that for low trees.
    """
    random = np.random.default_rng(seed)
    busy = edges.load
    # The unit of load is the least time per byte for which any edge holds a resource.
    scale = 1.0 / float(busy.data.min())
    load = np.zeros(busy.shape[0])
    found = np.empty((trees, edges.network.ranks - 1), np.int64)
    both_ways = np.asarray(busy.sum(axis=0)).ravel() * scale
    ranks = edges.network.ranks
    roots = max(1, min(_MOST_ROOTS, _MOST_STEPS // (trees * ranks * ranks))) if low else 1
    per_level = _PER_LOW_LEVEL if low else _PER_LEVEL
    for at in range(trees):
        price = np.exp(np.minimum((load - load.min()) / _SOFT, 500.0))
        cost = _SOFT * np.asarray(busy.T @ price) * scale / both_ways.min()
        cost += _NOISE * random.random(edges.count)
        grown = [
            low_tree(edges, cost, root, per_level) for root in random.integers(ranks, size=roots).tolist()
        ]
        tree = min(grown, key=lambda one: float(cost[one].sum()))
        load += np.asarray(busy[:, tree].sum(axis=1)).ravel() * scale
        found[at] = tree
    return found


def exchanged(edges: Edges, trees: Indices, most: Indices) -> Indices:
    """Return ``trees`` with edges exchanged until edge e is in at most ``most[e]`` of them, if possible.

    Each edge in too many trees is replaced along a shortest chain of exchanges that ends at an edge in too
    few, as in matroid union (Edmonds 1968): if no chain exists, no set of trees keeps to ``most``. O(edges ·
    trees · ranks) for each replacement, mostly far less; the search stops after a hundred million steps.
    """
    member = np.zeros((len(trees), edges.count), np.bool_)
    member[np.arange(len(trees))[:, None], trees] = True
    load = member.sum(axis=0)
    left = _MOST_LOOKED_AT
    walks = _Walks(*edges.around, *np.empty((2, len(trees), edges.network.ranks), np.int64))
    for tree in range(len(trees)):
        _walk(walks, member[tree], tree)
    for edge in np.argsort(most - load, kind="stable").tolist():
        while load[edge] > most[edge]:
            found, looked_at = _free_edge(member, edges.a, edges.b, walks, load, most, edge, left)
            left -= looked_at
            if not found:
                break
    return np.array([np.flatnonzero(row) for row in member])


class _Walks(NamedTuple):
    """Depth-first walks from rank 0 through each tree, and the edges at each rank.

    ``start``, ``edge`` and ``other`` are the edges at each rank. The walk through a tree numbers the ranks
    in the order in which it reaches them. A rank has the number ``begin[tree, rank]``; the rank and all ranks
    below it have the numbers from there to before ``end[tree, rank]``.
    """

    start: Indices
    edge: Indices
    other: Indices
    begin: Indices
    end: Indices


@compiled
def _free_edge(
    member: Mask, a: Indices, b: Indices, walks: _Walks, load: Indices, most: Indices, edge: int, steps: int
) -> tuple[bool, int]:
    """Take ``edge`` out of one tree along a shortest chain of exchanges, and return (found one, steps).

    The search ends soon after it has taken ``steps`` steps.
    """
    trees, edges = member.shape
    ranks = walks.begin.shape[1]
    instead_of, within = np.full(edges, -1), np.full(edges, -1)
    instead_of[edge] = edge
    queue, first, last, taken = np.empty(edges, np.int64), 0, 1, 0
    queue[0] = edge
    # Edges that no chain has reached yet, in their order.
    free = np.arange(edges)
    free_count = edges
    while first < last and taken < steps:
        out = queue[first]
        first += 1
        for tree in range(trees):
            if not member[tree, out]:
                continue
            taken += 2 * edges + ranks
            begin, end = walks.begin[tree], walks.end[tree]
            # Without the edge, its lower end and all ranks below that are cut off.
            lower = a[out] if begin[a[out]] > begin[b[out]] else b[out]
            low, high = begin[lower], end[lower]
            kept = 0
            for at in range(free_count):
                other = free[at]
                if instead_of[other] >= 0:
                    continue
                below = low <= begin[a[other]] < high
                if member[tree, other] or below == (low <= begin[b[other]] < high):
                    free[kept] = other
                    kept += 1
                    continue
                instead_of[other], within[other] = out, tree
                queue[last] = other
                last += 1
                if load[other] < most[other]:
                    load[other] += 1
                    load[edge] -= 1
                    while other != edge:
                        changed = within[other]
                        member[changed, other] = True
                        member[changed, instead_of[other]] = False
                        other = instead_of[other]
                        _walk(walks, member[changed], changed)
                    return True, taken
            free_count = kept
    return False, taken


@compiled
def _walk(walks: _Walks, tree: Mask, number: int) -> None:
    """Fill a tree's ``begin`` and ``end`` by a depth-first walk."""
    begin, end = walks.begin[number], walks.end[number]
    ranks = len(begin)
    begin[:] = -1
    at, above = walks.start[:-1].copy(), np.full(ranks, -1)
    begin[0] = 0
    met, rank = 1, 0
    while rank >= 0:
        if at[rank] == walks.start[rank + 1]:
            end[rank] = met
            rank = above[rank]
            continue
        place = at[rank]
        at[rank] += 1
        near = walks.other[place]
        if tree[walks.edge[place]] and begin[near] < 0:
            begin[near], above[near] = met, rank
            met += 1
            rank = near
