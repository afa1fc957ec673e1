"""Routes from rank to rank along paths between nodes, for chunks that have one source and one target.

On the last edge of its path a chunk takes a direct link to its target if there is one. Each other edge has
one link for each sub-collective. A chunk from the i-th rank of a node belongs to sub-collective i: it takes
the i-th link of the edge, and a shortest path to the start of this link. The chunks start in the best of a
few simulated orders.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Indices
from synth.adapcc.logical_graph import Edge, node_graph
from synth.adapcc.path_milp import Flow, FlowPaths, plan_paths
from synth.adapcc.two_level_strategy import nodes_of, require_size
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network, fastest_links
from synth.networks import shortest_paths
from synth.schedules import COPY, Schedule
from synth.scheduling import Sends
from synth.simulation import replay

__all__ = ["Routes", "along", "plan_routes"]


@dataclass(frozen=True, eq=False)
class Routes:
    """The paths between nodes, and the links that each chunk takes."""

    paths: FlowPaths
    links: tuple[tuple[int, ...], ...]

    @property
    def gap(self) -> float:
        """The relative gap of the integer program."""
        return self.paths.gap


def plan_routes(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    solver: str = "cbc",
    time_limit_s: float = 60.0,
    seed: int = 0,
) -> Routes:
    """Return balanced routes for a collective that copies each chunk from one rank to one other.

    Raises NotApplicableError for other collectives, and if there is no path.
    """
    begun_s = time.perf_counter()
    source, target = collective.source_of(), collective.target_of()
    if collective.reduces or (source < 0).any() or (target < 0).any():
        raise NotApplicableError(f"adapcc has no paths for {collective.label}")
    node_of = nodes_of(network)
    numbers = int(np.bincount(node_of).max())
    graph = node_graph(network, node_of, numbers=numbers)
    flows = _flows(node_of[source], node_of[target], graph.nodes, chunk_bytes)
    require_size(network, len(flows) * len(graph.edges), time_limit_s)
    left_s = time_limit_s - (time.perf_counter() - begun_s)
    found = plan_paths(graph, numbers, flows, solver=solver, time_limit_s=left_s, seed=seed)
    if found is None:
        raise NotApplicableError(f"adapcc: {network.name}: no path of links leads to every rank")
    router = _Router(network, node_of, chunk_bytes)
    path_of = {(flow.src, flow.dst): path for flow, path in zip(flows, found.paths, strict=True)}
    links: dict[tuple[int, int], tuple[int, ...]] = {}
    for src, dst in sorted(set(zip(source.tolist(), target.tolist(), strict=True))):
        path = path_of.get((int(node_of[src]), int(node_of[dst])), ())
        links[src, dst] = tuple(router.links(src, dst, path))
    return Routes(found, tuple(links[pair] for pair in zip(source.tolist(), target.tolist(), strict=True)))


def _flows(source: Indices, target: Indices, nodes: int, chunk_bytes: int) -> list[Flow]:
    """Return the flow from each node to each other node, for chunks from ``source`` to ``target``."""
    ends, counts = np.unique(source * nodes + target, return_counts=True)
    return [
        Flow(pair // nodes, pair % nodes, count * chunk_bytes)
        for pair, count in zip(ends.tolist(), counts.tolist(), strict=True)
        if pair // nodes != pair % nodes
    ]


def along(
    network: Network, collective: Collective, chunk_bytes: int, routes: Routes, method: str, seed: int
) -> Schedule:
    """Return the schedule in which every chunk takes its route, in the best of a few orders."""
    made = [
        _ordered(network, collective, chunk_bytes, routes, method, seed, turns)
        for turns in _orders(network, collective, chunk_bytes, routes)
    ]
    return min(made, key=lambda schedule: replay(schedule).time_s)


def _ordered(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    routes: Routes,
    method: str,
    seed: int,
    turns: Floats,
) -> Schedule:
    sends = Sends()
    longest = max(map(len, routes.links), default=0)
    for hop in range(longest):
        chunks = np.array([chunk for chunk, links in enumerate(routes.links) if len(links) > hop])
        links = np.array([routes.links[chunk][hop] for chunk in chunks])
        sends.add(chunks, links, COPY, turns[chunks] + hop / (longest + 1))
    return sends.schedule(network, collective, chunk_bytes, method, seed)


def _orders(network: Network, collective: Collective, chunk_bytes: int, routes: Routes) -> Iterator[Floats]:
    """Yield the turn of each chunk: by distance in ranks, by distance in hosts, busiest resource first."""
    ranks = network.ranks
    source, target = collective.source_of().astype(int), collective.target_of().astype(int)
    lap = np.arange(collective.chunks) % collective.share
    turned = (target - source) % ranks
    yield (lap * ranks + turned).astype(float)
    node_of = nodes_of(network)
    nodes = int(node_of.max()) + 1
    between = (node_of[target] - node_of[source]) % nodes
    by_host = (between * collective.share + lap) * ranks + turned
    yield by_host.astype(float)
    yield ((lap * nodes + between) * ranks + turned).astype(float)
    ahead = _longest_queue(network, chunk_bytes, routes)
    for first in (by_host, lap * ranks + turned):
        yield np.argsort(np.lexsort((first, -ahead)), kind="stable").astype(float)


def _longest_queue(network: Network, chunk_bytes: int, routes: Routes) -> Floats:
    """Return for each chunk the load of the busiest link or port on its route."""
    hold_s = network.hold_s(chunk_bytes)
    queue_s: dict[int, float] = defaultdict(float)
    used = [[at for link in links for at in network.resources_of(link)] for links in routes.links]
    for links, resources in zip(routes.links, used, strict=True):
        for at in resources:
            queue_s[at] += float(hold_s[list(links)].max())
    return np.array([max((queue_s[at] for at in resources), default=0.0) for resources in used])


class _Router:
    """Finds paths from rank to rank along given edges between nodes, with shortest paths in between."""

    def __init__(self, network: Network, node_of: Indices, chunk_bytes: int) -> None:
        self.network = network
        self.node_of = node_of
        self.rows = fastest_links(network, chunk_bytes)
        self.paths = shortest_paths(network.ranks, network.src, network.dst, network.travel_s(chunk_bytes))

    def links(self, src: int, dst: int, path: tuple[Edge, ...]) -> list[int]:
        """Return the links from rank ``src`` to rank ``dst`` along the edges of ``path``."""
        place = int((self.node_of[:src] == self.node_of[src]).sum())
        taken: list[int] = []
        at = src
        for edge in path:
            direct = self.rows.get((at, dst)) if edge is path[-1] else None
            link = edge.links[place % len(edge.links)] if direct is None else direct
            taken += self.paths.edges(at, int(self.network.src[link]))
            taken.append(link)
            at = int(self.network.dst[link])
        return taken + self.paths.edges(at, dst)
