"""Shortest paths from ranks to ranks, or between the nodes of any graph (Dijkstra, by scipy).

Of parallel links only the cheapest counts; if several are equally cheap, the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra

from probes.base import Floats, Indices
from synth.network import Network, cheapest_of_parallel

__all__ = ["ShortestPaths", "distances_s", "shortest_paths"]


@dataclass(frozen=True, eq=False)
class ShortestPaths:
    """Paths from s to n: ``cost[s, n]``, inf if none, and last edge ``edge[s, n]``, -1 if none."""

    src: Indices
    cost: Floats
    edge: Indices

    def edges(self, source: int, node: int) -> list[int]:
        """Return the edges from the ``source``-th source to ``node``, in order; [] if there is no path."""
        taken: list[int] = []
        while (edge := int(self.edge[source, node])) >= 0:
            taken.append(edge)
            node = int(self.src[edge])
        return taken[::-1]


def shortest_paths(
    nodes: int, src: Indices, dst: Indices, cost: Floats, sources: Indices | None = None
) -> ShortestPaths:
    """Return the cheapest paths from each of ``sources`` (None: every node) to every node.

    ``cost`` has the cost of each edge, at least 0. O(sources · (edges + nodes·log nodes)).
    """
    rows = cheapest_of_parallel(nodes, src, dst, cost)
    graph = _graph(nodes, src[rows], dst[rows], cost[rows])
    found, before = dijkstra(graph, indices=sources, return_predecessors=True)
    pair = src[rows].astype(np.int64) * nodes + dst[rows]
    last = np.searchsorted(pair, np.maximum(before, 0) * np.int64(nodes) + np.arange(nodes))
    edge = np.where(before >= 0, np.append(rows, -1)[last], -1)
    return ShortestPaths(src, found, edge)


def distances_s(network: Network, cost_s: Floats, sources: Indices, links: Indices | None = None) -> Floats:
    """Return (sources, ranks): the least sum of ``cost_s`` (one value a link) along any path.

    ``links`` restricts the paths to those rows. Unreachable ranks have infinite distance. O(sources · (links
    + ranks·log ranks)).
    """
    rows = np.arange(network.links) if links is None else links
    rows = rows[cheapest_of_parallel(network.ranks, network.src[rows], network.dst[rows], cost_s[rows])]
    graph = _graph(network.ranks, network.src[rows], network.dst[rows], cost_s[rows])
    return np.asarray(dijkstra(graph, indices=np.asarray(sources, dtype=np.int64)))


def _graph(nodes: int, src: Indices, dst: Indices, cost: Floats) -> csr_array:
    # The solver reads an explicit 0 as "no edge", so a free link costs the least positive number.
    return coo_array((np.maximum(cost, np.finfo(float).tiny), (src, dst)), shape=(nodes, nodes)).tocsr()
