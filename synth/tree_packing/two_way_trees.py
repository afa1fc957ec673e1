"""Trees for both ways of an all_reduce: links to reduce up to a root and to broadcast down from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices
from synth.kernels import compiled
from synth.schedules import COPY, REDUCE
from synth.tree_packing.spanning_trees import Edges

__all__ = ["TwoWayTree", "hung"]


@dataclass(frozen=True, eq=False)
class TwoWayTree:
    """The links ``up`` to a root and ``down`` from it, with the depth of each link's lower end."""

    up: Indices
    up_depth: Indices
    down: Indices
    down_depth: Indices

    def ways(self) -> tuple[tuple[Indices, int, Indices], tuple[Indices, int, Indices]]:
        """Return (links, operation, level of each link) up and down; a send needs only earlier levels."""
        height = int(self.up_depth.max())
        up = (self.up, REDUCE, height - self.up_depth)
        return up, (self.down, COPY, height + self.down_depth)


def hung(edges: Edges, tree: Indices) -> TwoWayTree:
    """Return an undirected tree rooted at its centre."""
    rank, edge, depth = _rooted_at_centre(edges.a[tree], edges.b[tree], edges.network.ranks)
    edge = tree[edge]
    from_a = edges.a[edge] == rank
    up, down = edges.there[edge], edges.back[edge]
    return TwoWayTree(np.where(from_a, up, down), depth, np.where(from_a, down, up), depth)


@compiled
def _rooted_at_centre(a: Indices, b: Indices, ranks: int) -> tuple[Indices, Indices, Indices]:
    """Return (rank, its edge towards the centre, its depth) of all ranks but the centre, breadth first."""
    count = np.zeros(ranks + 1, np.int64)
    for edge in range(len(a)):
        count[a[edge] + 1] += 1
        count[b[edge] + 1] += 1
    start = np.cumsum(count)
    place, near = start[:-1].copy(), np.empty(2 * len(a), np.int64)
    for edge in range(len(a)):
        for end in (a[edge], b[edge]):
            near[place[end]] = edge
            place[end] += 1
    order, joined_by, depth = np.empty(ranks, np.int64), np.empty(ranks, np.int64), np.empty(ranks, np.int64)
    _walk(a, b, start, near, 0, order, joined_by, depth)
    _walk(a, b, start, near, order[ranks - 1], order, joined_by, depth)
    middle = order[ranks - 1]
    for _ in range(depth[middle] // 2):
        edge = joined_by[middle]
        middle = a[edge] + b[edge] - middle
    _walk(a, b, start, near, middle, order, joined_by, depth)
    below = order[1:]
    return below, joined_by[below], depth[below]


@compiled
def _walk(
    a: Indices,
    b: Indices,
    start: Indices,
    near: Indices,
    root: int,
    order: Indices,
    joined_by: Indices,
    depth: Indices,
) -> None:
    """Fill ``order`` breadth first from ``root``, ``joined_by`` (edge towards it) and ``depth``."""
    order[0], joined_by[root], depth[root] = root, -1, 0
    met = 1
    for at in range(len(order)):
        rank = order[at]
        for place in range(start[rank], start[rank + 1]):
            edge = near[place]
            if edge != joined_by[rank]:
                other = a[edge] + b[edge] - rank
                order[met], joined_by[other], depth[other] = other, edge, depth[rank] + 1
                met += 1
