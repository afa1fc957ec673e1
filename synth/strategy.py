"""AdapCC's strategy as a linear integer program (Sec. IV-D): one in-tree for each sub-collective.

Columns, for each sub-collective m: the bytes it carries (a share of the tensor), the root r, and for
each edge whether it is routed over (x), its flows f from every node, and the load N. All are scaled
by the share, which makes the program linear and its relaxation the fractional packing of trees:

- (1) every flow leaves its source, arrives at the root, and is conserved between;
- a node that aggregates (a = 1) sends one sum, of the size of the share, over its one outgoing edge;
  a node that does not (a = 0) sends every flow that reaches it;
- (2) a node is ready when the last of those below it is: a chunk's time from the leaves to the root;
- (3) bandwidth is shared: sub-collectives on one link or port add up;
- (4)–(6) what is minimised is the time of the first chunk, and then of the busiest link or port.

a = 1 is never slower in this model, and a sum that passed unaggregated would be a chunk of its own, so
schedules aggregate wherever flows meet.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from probes.columns import Floats
from synth.milp import Model
from synth.node_graph import Edge, NodeGraph

__all__ = ["Demand", "Strategy", "Tree", "plan"]

_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Demand:
    """A tree that is wanted: with a given root or any, for a given share of the bytes or any.

    ``numbers`` are the sub-collectives that take turns on it, and so the links it may use.
    """

    numbers: tuple[int, ...]
    root: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Tree:
    """``above[n]`` is the edge that leads from node n towards the root, None at the root."""

    root: int
    above: tuple[Edge | None, ...]
    share: float


@dataclass(frozen=True, eq=False)
class Strategy:
    """A tree for each demand, and the time of the model.

    ``time_s`` is the busiest resource's load and the first chunk's time to the root (and back);
    ``bound_s`` is its proven least, among strategies with as many trees.
    """

    trees: tuple[Tree, ...]
    busy_s: float
    time_s: float
    bound_s: float
    seconds: float

    @property
    def gap(self) -> float:
        """How far ``time_s`` may be from the least possible, as a part of it."""
        return max(0.0, self.time_s - self.bound_s) / self.time_s if self.time_s else 0.0


@dataclass(eq=False)
class _Columns:
    """The columns of one sub-collective."""

    share: int
    root: list[int]
    root_share: list[int]
    routed: list[int]
    load: list[int]
    aggregates: list[int]


@dataclass(eq=False)
class _Program:
    graph: NodeGraph
    demands: Sequence[Demand]
    total_bytes: int
    chunk_bytes: int
    floor_s: float
    model: Model = field(default_factory=Model)
    parts: list[_Columns] = field(default_factory=list)
    busy: int = -1
    first: int = -1
    unit_s: float = 1.0


def plan(
    graph: NodeGraph,
    demands: Sequence[Demand],
    total_bytes: int,
    chunk_bytes: int,
    *,
    floor_s: float = 0.0,
    solver: str = "cbc",
    time_limit_s: float = 40.0,
    gap: float = 0.02,
    seed: int = 0,
) -> Strategy | None:
    """The trees that finish ``total_bytes`` soonest; None where no tree reaches all nodes.

    ``floor_s`` is time that is spent elsewhere at the same time: loads below it do not count.
    """
    begun_s = time.perf_counter()
    trees = _nearest_trees(graph, demands, chunk_bytes)
    if trees is None:
        return None
    program = _Program(graph, demands, total_bytes, chunk_bytes, floor_s)
    _build(program)
    ways = 2.0 if graph.both else 1.0
    bound = 0.0
    best, best_s = trees, _time_s(program, trees)
    # Loads alone are soon proven; with the first chunk's time, which rarely decides, they are not.
    steps = (({program.busy: 1.0}, 0.6, gap / 4), ({program.busy: 1.0, program.first: ways}, 1.0, gap))
    for cost, part, enough in steps:
        if best_s <= bound * (1 + gap):
            break
        program.model.cost = cost
        _begin(program, best)
        left_s = (time_limit_s - (time.perf_counter() - begun_s)) * part
        solution = program.model.solve(solver=solver, time_limit_s=max(0.5, left_s), gap=enough, seed=seed)
        found = best if solution.values is None else _trees(program, solution.values)
        if _time_s(program, found) < best_s:
            best, best_s = found, _time_s(program, found)
        first_s = ways * _radius_s(graph, demands, chunk_bytes) if len(cost) == 1 else 0.0
        bound = max(bound, floor_s + first_s, solution.bound * program.unit_s + first_s)
    busy_s = _busy_s(graph, demands, best, total_bytes)
    return Strategy(tuple(best), busy_s, best_s, min(bound, best_s), time.perf_counter() - begun_s)


def _build(program: _Program) -> None:
    graph, model = program.graph, program.model
    steps = [graph.step_s(edge, 0, program.chunk_bytes) for edge in graph.edges]
    program.unit_s = max(graph.load(edge, 0).popitem()[1] for edge in graph.edges) * program.total_bytes
    program.busy = model.number(low=program.floor_s / program.unit_s)
    program.first = model.number()
    for demand in program.demands:
        part = _part(program, demand)
        program.parts.append(part)
        _route(program, part)
        _aggregate(program, part)
        _wait(program, part, [step_s / program.unit_s for step_s in steps])
    shares = [part.share for part in program.parts]
    model.row(shares, [1.0] * len(shares), 1.0, 1.0)
    _share_bandwidth(program)
    alike = [
        part for part, demand in zip(program.parts, program.demands, strict=True) if demand.share is None
    ]
    for larger, smaller in pairwise(alike):
        model.row([larger.share, smaller.share], [1.0, -1.0], low=0.0)


def _part(program: _Program, demand: Demand) -> _Columns:
    model, graph = program.model, program.graph
    given = demand.share
    part = _Columns(
        model.number(given or 0.0, 1.0 if given is None else given),
        [model.binary() for _ in range(graph.nodes)],
        [model.number(0.0, 1.0) for _ in range(graph.nodes)],
        [model.binary() for _ in graph.edges],
        [model.number() for _ in graph.edges],
        [model.binary() for _ in range(graph.nodes)],
    )
    if demand.root is not None:
        model.low[part.root[demand.root]] = 1.0
    model.row(part.root, [1.0] * graph.nodes, 1.0, 1.0)
    model.row([*part.root_share, part.share], [*[1.0] * graph.nodes, -1.0], 0.0, 0.0)
    for chosen, share in zip(part.root, part.root_share, strict=True):
        model.row([share, chosen], [1.0, -1.0], high=0.0)
    return part


def _route(program: _Program, part: _Columns) -> None:
    """(1): one flow from every node to the root, over edges that are routed; one edge out of each node."""
    model, graph = program.model, program.graph
    leaving: list[list[int]] = [[] for _ in range(graph.nodes)]
    entering: list[list[int]] = [[] for _ in range(graph.nodes)]
    for at, edge in enumerate(graph.edges):
        leaving[edge.src].append(at)
        entering[edge.dst].append(at)
        model.row([part.load[at], part.routed[at]], [1.0, -float(graph.nodes)], high=0.0)
    for node in range(graph.nodes):
        routed = [part.routed[at] for at in leaving[node]]
        model.row([*routed, part.root[node]], [1.0] * (len(routed) + 1), 1.0, 1.0)
    carried: list[list[int]] = [[] for _ in graph.edges]
    for source in range(graph.nodes):
        flow = [model.number(0.0, 1.0) for _ in graph.edges]
        for at, column in enumerate(flow):
            carried[at].append(column)
            model.row([column, part.load[at]], [1.0, -1.0], high=0.0)
            model.row([column, part.routed[at]], [1.0, -1.0], high=0.0)
        for node in range(graph.nodes):
            ways = [flow[at] for at in leaving[node]] + [flow[at] for at in entering[node]]
            signs = [1.0] * len(leaving[node]) + [-1.0] * len(entering[node])
            own = [part.share] if node == source else []
            model.row([*ways, part.root_share[node], *own], [*signs, 1.0, *[-1.0] * len(own)], 0.0, 0.0)
    for at, edge in enumerate(graph.edges):
        # Without aggregation at its tail the edge carries every flow by itself.
        model.row(
            [part.load[at], part.aggregates[edge.src], *carried[at]],
            [1.0, float(graph.nodes), *[-1.0] * len(carried[at])],
            low=0.0,
        )


def _aggregate(program: _Program, part: _Columns) -> None:
    """What a node sends on is at least its share: all of it over its one outgoing edge."""
    model, graph = program.model, program.graph
    for node in range(graph.nodes):
        out = [part.load[at] for at, edge in enumerate(graph.edges) if edge.src == node]
        model.row([*out, part.root_share[node], part.share], [*[1.0] * (len(out) + 1), -1.0], low=0.0)


def _wait(program: _Program, part: _Columns, steps: Sequence[float]) -> None:
    """(2): when the first chunk is ready at each node, and so at the root."""
    model, graph = program.model, program.graph
    ready = [model.number() for _ in range(graph.nodes)]
    late = sum(sorted(steps)[-graph.nodes :])
    for at, edge in enumerate(graph.edges):
        model.row(
            [ready[edge.dst], ready[edge.src], part.routed[at]], [1.0, -1.0, -late], low=steps[at] - late
        )
    for column in ready:
        model.row([program.first, column], [1.0, -1.0], low=0.0)


def _share_bandwidth(program: _Program) -> None:
    """(3): what all sub-collectives put on a link or a port adds up, and the busiest decides."""
    graph, model = program.graph, program.model
    used: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for part, demand in zip(program.parts, program.demands, strict=True):
        for at, edge in enumerate(graph.edges):
            for number in demand.numbers:
                for resource, busy in graph.load(edge, number).items():
                    scaled = busy * program.total_bytes / program.unit_s / len(demand.numbers)
                    used[resource][part.load[at]] += scaled
    rows = {tuple(sorted(columns.items())) for columns in used.values()}
    for row in sorted(rows):
        columns, coefficients = zip(*row, strict=True)
        model.row([*columns, program.busy], [*coefficients, -1.0], high=0.0)


def _begin(program: _Program, trees: Sequence[Tree]) -> None:
    """Trees to begin with; what follows from them the solver completes."""
    for part, tree in zip(program.parts, trees, strict=True):
        for node, column in enumerate(part.root):
            program.model.start[column] = float(node == tree.root)
        for at, edge in enumerate(program.graph.edges):
            program.model.start[part.routed[at]] = float(tree.above[edge.src] is edge)
        program.model.start.update(dict.fromkeys(part.aggregates, 1.0))


def _trees(program: _Program, values: Floats) -> list[Tree]:
    trees = []
    for part in program.parts:
        above: list[Edge | None] = [None] * program.graph.nodes
        for at, edge in enumerate(program.graph.edges):
            if values[part.routed[at]] > 0.5:
                above[edge.src] = edge
        share = float(values[part.share])
        trees.append(
            Tree(int(np.argmax(values[part.root])), tuple(above), share if share > _LEAST_SHARE else 0.0)
        )
    return trees


def _nearest_trees(graph: NodeGraph, demands: Sequence[Demand], chunk_bytes: int) -> list[Tree] | None:
    """Shortest paths to the root of each demand; without one, to nodes in turn, the best connected first."""
    into = np.zeros(graph.nodes)
    for edge in graph.edges:
        into[edge.dst] += 1.0 / graph.step_s(edge, 0, chunk_bytes)
    preferred = np.argsort(-into, kind="stable").tolist()
    open_shares = sum(demand.share is None for demand in demands)
    rest = (1.0 - sum(demand.share or 0.0 for demand in demands)) / max(1, open_shares)
    trees = []
    for at, demand in enumerate(demands):
        root = demand.root if demand.root is not None else preferred[at % graph.nodes]
        above = _shortest(graph, root, chunk_bytes)
        if above is None:
            return None
        trees.append(Tree(root, above, rest if demand.share is None else demand.share))
    return trees


def _shortest(graph: NodeGraph, root: int, chunk_bytes: int) -> tuple[Edge | None, ...] | None:
    """Bellman and Ford's paths from every node to the root; None if a node has none."""
    above: list[Edge | None] = [None] * graph.nodes
    reach_s = np.full(graph.nodes, np.inf)
    reach_s[root] = 0.0
    for _ in range(graph.nodes):
        for edge in graph.edges:
            time_s = reach_s[edge.dst] + graph.step_s(edge, 0, chunk_bytes)
            if time_s < reach_s[edge.src] * (1 - 1e-9):
                reach_s[edge.src], above[edge.src] = time_s, edge
    return tuple(above) if np.isfinite(reach_s).all() else None


def _busy_s(graph: NodeGraph, demands: Sequence[Demand], trees: Sequence[Tree], total_bytes: int) -> float:
    busy: dict[int, float] = defaultdict(float)
    for demand, tree in zip(demands, trees, strict=True):
        for edge in filter(None, tree.above):
            for number in demand.numbers:
                for resource, s_per_byte in graph.load(edge, number).items():
                    busy[resource] += s_per_byte * total_bytes * tree.share / len(demand.numbers)
    return max(busy.values(), default=0.0)


def _time_s(program: _Program, trees: Sequence[Tree]) -> float:
    """(4)–(6): the first chunk's time, there and back, and the busiest link or port."""
    busy_s = _busy_s(program.graph, program.demands, trees, program.total_bytes)
    return max(program.floor_s, busy_s) + (2 if program.graph.both else 1) * _first_s(program, trees)


def _first_s(program: _Program, trees: Sequence[Tree]) -> float:
    """(2): the time of the first chunk from the farthest node to the root, over all trees in use."""
    graph = program.graph
    slowest_s = 0.0
    for tree in trees:
        for node in range(graph.nodes) if tree.share else ():
            time_s, edge = 0.0, tree.above[node]
            while edge is not None:
                time_s += graph.step_s(edge, 0, program.chunk_bytes)
                edge = tree.above[edge.dst]
            slowest_s = max(slowest_s, time_s)
    return slowest_s


def _radius_s(graph: NodeGraph, demands: Sequence[Demand], chunk_bytes: int) -> float:
    """The least that the first chunk can take: no tree is lower than shortest paths to its root."""
    edges = [(edge.src, edge.dst, graph.step_s(edge, 0, chunk_bytes)) for edge in graph.edges]
    reach_s = np.where(np.eye(graph.nodes, dtype=bool), 0.0, np.inf)
    for _ in range(graph.nodes):
        for src, dst, step_s in edges:
            reach_s[src] = np.minimum(reach_s[src], step_s + reach_s[dst])
    farthest_s = reach_s.max(axis=0)
    # A tree of no share needs no time: only the demands that must carry something count.
    given = [farthest_s[demand.root] for demand in demands if demand.root is not None and demand.share]
    return float(max(given, default=farthest_s.min()))
