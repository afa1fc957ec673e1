"""AdapCC's strategy if every chunk has one source and one target: a path for each flow (Sec. IV-D).

A flow is the data from one node to another; a binary column routes it over an edge. Flows carry different
data, so the load of an edge is the sum of the flows over it. The objective is the load of the busiest link or
port, plus a small cost for each hop. The numbers (1), (3) and (4) are the paper's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.adapcc.logical_graph import Edge, NodeGraph
from synth.milp import IntegerProgram, relative_gap

__all__ = ["Flow", "FlowPaths", "plan_paths"]

# The cost of a hop of all flows, relative to the busiest load of the first paths. It is so small that hops
# decide only between paths that load links alike.
_PER_HOP = 1e-4
# A plan within 1 % of the bound is good enough; proving the rest may take the whole time limit.
_GAP = 0.01


@dataclass(frozen=True)
class Flow:
    """A flow of ``size_bytes`` from node ``src`` to node ``dst``."""

    src: int
    dst: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class FlowPaths:
    """The edges of each flow's path; ``busy_s`` is the load of the busiest resource."""

    paths: tuple[tuple[Edge, ...], ...]
    busy_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """The gap of the busiest resource's load to the proven bound, relative to the load."""
        return relative_gap(self.busy_s, self.bound_s)


def plan_paths(
    graph: NodeGraph,
    numbers: int,
    flows: Sequence[Flow],
    *,
    solver: str = "cbc",
    time_limit_s: float = 40.0,
    seed: int = 0,
) -> FlowPaths | None:
    """Return a path for every flow; None if a flow has no path.

    Loads are spread over ``numbers`` sub-collectives.
    """
    nearest = {size: graph.paths_from(size) for size in {flow.size_bytes for flow in flows}}
    if any(np.isinf(nearest[flow.size_bytes].cost[flow.src, flow.dst]) for flow in flows):
        return None
    rows = [nearest[flow.size_bytes].edges(flow.src, flow.dst) for flow in flows]
    paths = [tuple(graph.edges[row] for row in path) for path in rows]
    loads = [_load(graph, edge, numbers) for edge in graph.edges]
    unit_s = _busy_s(graph, loads, paths, flows)
    if not unit_s:
        return FlowPaths(tuple(paths), 0.0, 0.0)
    model, routed = _program(graph, loads, flows, paths, unit_s)
    solution = model.solve(solver=solver, time_limit_s=time_limit_s, gap=_GAP, seed=seed)
    if solution.values is not None:
        for at, (flow, columns) in enumerate(zip(flows, routed, strict=True)):
            taken = [
                edge
                for edge, column in zip(graph.edges, columns, strict=True)
                if solution.values[column] > 0.5
            ]
            paths[at] = _ordered(flow, taken)
    found_s = _busy_s(graph, loads, paths, flows)
    # Each flow uses at most one edge out of each node, so all hops together cost at most this much.
    bound_s = max(0.0, solution.bound - _PER_HOP * graph.nodes) * unit_s
    return FlowPaths(tuple(paths), found_s, min(found_s, bound_s))


def _program(
    graph: NodeGraph,
    loads: Sequence[dict[int, float]],
    flows: Sequence[Flow],
    paths: Sequence[tuple[Edge, ...]],
    unit_s: float,
) -> tuple[IntegerProgram, list[list[int]]]:
    """Return the model, started from ``paths``, and each flow's columns, one for each edge."""
    model = IntegerProgram()
    busy = model.number()
    model.cost[busy] = 1.0
    per_hop = _PER_HOP / len(flows)
    routed: list[list[int]] = []
    used: dict[int, dict[int, float]] = defaultdict(dict)
    for flow, path in zip(flows, paths, strict=True):
        columns = [model.binary() for _ in graph.edges]
        routed.append(columns)
        _conserve(model, graph, flow, columns)
        # The cost of hops avoids detours that gain nothing.
        model.cost.update(dict.fromkeys(columns, per_hop))
        for column, edge, load in zip(columns, graph.edges, loads, strict=True):
            model.start[column] = float(edge in path)
            for resource, s_per_byte in load.items():
                used[resource][column] = s_per_byte * flow.size_bytes / unit_s
    for terms in used.values():
        model.row([*terms, busy], [*terms.values(), -1.0], high=0.0)
    return model, routed


def _conserve(model: IntegerProgram, graph: NodeGraph, flow: Flow, columns: list[int]) -> None:
    """Add (1): the flow leaves its source, arrives at its target, and is conserved between."""
    for node in range(graph.nodes):
        out = [column for column, edge in zip(columns, graph.edges, strict=True) if edge.src == node]
        into = [column for column, edge in zip(columns, graph.edges, strict=True) if edge.dst == node]
        more = float(node == flow.src) - float(node == flow.dst)
        model.row([*out, *into], [*[1.0] * len(out), *[-1.0] * len(into)], more, more)


def _load(graph: NodeGraph, edge: Edge, numbers: int) -> dict[int, float]:
    """Return an edge's seconds per byte on each resource, averaged over the sub-collectives."""
    busy: dict[int, float] = defaultdict(float)
    for number in range(numbers):
        for resource, s_per_byte in graph.load(edge, number).items():
            busy[resource] += s_per_byte / numbers
    return busy


def _busy_s(
    graph: NodeGraph,
    loads: Sequence[dict[int, float]],
    paths: Sequence[tuple[Edge, ...]],
    flows: Sequence[Flow],
) -> float:
    load_of = dict(zip(graph.edges, loads, strict=True))
    busy: dict[int, float] = defaultdict(float)
    for flow, path in zip(flows, paths, strict=True):
        for edge in path:
            for resource, s_per_byte in load_of[edge].items():
                busy[resource] += s_per_byte * flow.size_bytes
    return max(busy.values(), default=0.0)


def _ordered(flow: Flow, edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """Return the flow's path among ``edges``, without the cycles that a solver may leave."""
    next_edge = {edge.src: edge for edge in edges}
    path: list[Edge] = []
    node = flow.src
    while node != flow.dst:
        path.append(next_edge[node])
        node = path[-1].dst
    return tuple(path)
