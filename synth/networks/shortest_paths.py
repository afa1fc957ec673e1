"""Shortest paths through a network, by time."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from probes.columns import Floats, Indices
from synth.network import Network

__all__ = ["distances_s"]


def distances_s(network: Network, cost_s: Floats, sources: Indices, links: Indices | None = None) -> Floats:
    """(sources, ranks): the least sum of ``cost_s`` (one value a link) along any path.

    ``links`` restricts the paths to those rows. Unreachable ranks are at infinity.
    O(sources · (links + ranks·log ranks)).
    """
    rows = np.arange(network.links) if links is None else links
    rows = rows[np.argsort(cost_s[rows], kind="stable")]
    pair = network.src[rows].astype(np.int64) * network.ranks + network.dst[rows]
    _, first = np.unique(pair, return_index=True)
    rows = rows[first]
    # The solver reads an explicit 0 as "no edge": a free link costs the least positive number instead.
    cost = np.maximum(cost_s[rows], np.finfo(float).tiny)
    graph = coo_array((cost, (network.src[rows], network.dst[rows])), shape=(network.ranks,) * 2)
    return np.asarray(dijkstra(graph.tocsr(), indices=np.asarray(sources, dtype=np.int64)))
