"""AdapCC's logical graph: hosts or ranks as nodes, and the candidate links between any two nodes.

The logical graph of AdapCC (Sec. IV-D) has GPUs and NICs; here a NIC is a port that links share. Between
hosts each host is one node, and sub-collective number i uses the links between the i-th ranks of both hosts,
so that the NICs of a host share the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, floats
from synth.network import Network
from synth.networks import ShortestPaths, shortest_paths

__all__ = ["Edge", "NodeGraph", "node_graph", "opposites"]

# Between two nodes, links slower than the fastest by more than this factor are left out: a sub-collective on
# such a link would end last.
_AS_GOOD = 1.2


@dataclass(frozen=True, eq=False)
class Edge:
    """An edge from one node to another; sub-collective number i uses ``links[i]``."""

    src: int
    dst: int
    links: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NodeGraph:
    """A graph of nodes and edges over the links of a network.

    With ``both``, data that crosses an edge also returns over the opposite links. ``opposite[link]`` is the
    link in the other direction, −1 if there is none.
    """

    network: Network
    nodes: int
    edges: tuple[Edge, ...]
    both: bool
    opposite: Indices

    def rows(self, edge: Edge, number: int) -> tuple[int, ...]:
        """Return the links that sub-collective ``number`` uses on ``edge``: one, or one each way."""
        link = edge.links[number]
        return (link, int(self.opposite[link])) if self.both else (link,)

    def load(self, edge: Edge, number: int) -> dict[int, float]:
        """Return for how many seconds a byte of a sub-collective on an edge holds each resource."""
        busy: dict[int, float] = {}
        for row in self.rows(edge, number):
            for resource in self.network.resources_of(row):
                busy[resource] = busy.get(resource, 0.0) + float(self.network.beta_s_per_byte[row])
        return busy

    def steps_s(self, chunk_bytes: int) -> Floats:
        """Return the travel time of a chunk on each edge, in the slower direction, for sub-collective 0."""
        travel_s = self.network.travel_s(chunk_bytes)
        rows = np.array([self.rows(edge, 0) for edge in self.edges], dtype=np.int64)
        per_edge = rows.size // max(1, len(self.edges))
        return floats(travel_s[rows.reshape(len(self.edges), per_edge)].max(axis=1, initial=0.0))

    def paths_from(self, chunk_bytes: int) -> ShortestPaths:
        """Return the fastest paths of a chunk from every node."""
        return shortest_paths(self.nodes, *self._ends, self.steps_s(chunk_bytes))

    def paths_to(self, chunk_bytes: int) -> ShortestPaths:
        """Return the fastest paths to every node: ``edge[n, m]`` is the first edge from m towards n."""
        src, dst = self._ends
        return shortest_paths(self.nodes, dst, src, self.steps_s(chunk_bytes))

    @cached_property
    def _ends(self) -> tuple[Indices, Indices]:
        ends = np.array([(edge.src, edge.dst) for edge in self.edges], dtype=np.int64).reshape(-1, 2)
        return ends[:, 0], ends[:, 1]


def node_graph(network: Network, node_of: Indices, *, numbers: int, both: bool = False) -> NodeGraph:
    """Return the graph for ``numbers`` sub-collectives.

    ``node_of[rank]`` is the node of a rank, −1 if the rank is left out. With ``both``, links without an
    opposite one are left out.
    """
    nodes = int(node_of.max(initial=-1)) + 1
    place = np.full(network.ranks, -1)
    for node in range(nodes):
        members = np.flatnonzero(node_of == node)
        place[members] = np.arange(len(members))
    sizes = np.bincount(node_of[node_of >= 0], minlength=nodes)
    opposite = opposites(network)
    between: dict[tuple[int, int], list[int]] = {}
    for link in np.argsort(network.beta_s_per_byte, kind="stable").tolist():
        a, b = int(node_of[network.src[link]]), int(node_of[network.dst[link]])
        if a >= 0 and b >= 0 and a != b and (not both or opposite[link] >= 0):
            between.setdefault((a, b), []).append(link)
    edges = []
    for (a, b), links in sorted(between.items()):
        least = network.beta_s_per_byte[links[0]] * _AS_GOOD
        good = np.array([link for link in links if network.beta_s_per_byte[link] <= least])
        tails, heads = place[network.src[good]], place[network.dst[good]]
        chosen = []
        for number in range(numbers):
            away = (tails != number % sizes[a]).astype(int) + (heads != number % sizes[b])
            nearest = good[away == away.min()]
            chosen.append(int(nearest[number // int(sizes[a]) % len(nearest)]))
        edges.append(Edge(a, b, tuple(chosen)))
    return NodeGraph(network, nodes, tuple(edges), both, opposite)


def opposites(network: Network) -> Indices:
    """Return the opposite of each link, −1 if none; parallel links pair up in the order of cost."""
    found = np.full(network.links, -1)
    waiting: dict[tuple[int, int], list[int]] = {}
    for link in np.argsort(network.beta_s_per_byte, kind="stable").tolist():
        src, dst = int(network.src[link]), int(network.dst[link])
        back = waiting.get((dst, src))
        if back:
            found[link] = back.pop(0)
            found[found[link]] = link
        else:
            waiting.setdefault((src, dst), []).append(link)
    return found
