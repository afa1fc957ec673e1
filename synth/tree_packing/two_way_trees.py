"""Trees for both ways of an all_reduce: what is reduced up to a root is broadcast down from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.columns import Indices
from synth.schedule import COPY, REDUCE
from synth.tree_packing.spanning_trees import Edges

__all__ = ["TwoWayTree", "hung"]


@dataclass(frozen=True, eq=False)
class TwoWayTree:
    """Links that lead ``up`` to a root and ``down`` from it, and the depth below it of the rank at the lower
    end of each.
    """

    up: Indices
    up_depth: Indices
    down: Indices
    down_depth: Indices

    def ways(self) -> tuple[tuple[Indices, int, Indices], tuple[Indices, int, Indices]]:
        """(links, operation, level of each link) up and down; a send needs only those of earlier levels."""
        height = int(self.up_depth.max())
        up = (self.up, REDUCE, height - self.up_depth)
        return up, (self.down, COPY, height + self.down_depth)


def hung(edges: Edges, tree: Indices) -> TwoWayTree:
    """An undirected tree hung from its centre."""
    network = edges.network
    near: list[list[tuple[int, int]]] = [[] for _ in range(network.ranks)]
    for edge in tree.tolist():
        a, b = int(edges.a[edge]), int(edges.b[edge])
        near[a].append((b, edge))
        near[b].append((a, edge))
    far = _walk(near, 0)[-1][0]
    longest = _walk(near, far)
    parent = {rank: above for rank, above, _, _ in longest}
    middle = longest[-1][0]
    for _ in range(longest[-1][3] // 2):
        middle = parent[middle]
    rows = _walk(near, middle)[1:]
    upwards = [edges.there[edge] if edges.a[edge] == rank else edges.back[edge] for rank, _, edge, _ in rows]
    downwards = [
        edges.back[edge] if edges.a[edge] == rank else edges.there[edge] for rank, _, edge, _ in rows
    ]
    depth = np.array([depth for _, _, _, depth in rows])
    return TwoWayTree(np.array(upwards), depth, np.array(downwards), depth)


def _walk(near: list[list[tuple[int, int]]], root: int) -> list[tuple[int, int, int, int]]:
    """(rank, parent, edge, depth) of every rank, breadth first from ``root``."""
    rows = [(root, -1, -1, 0)]
    for rank, above, _, depth in rows:
        rows += [(other, rank, edge, depth + 1) for other, edge in near[rank] if other != above]
    return rows
