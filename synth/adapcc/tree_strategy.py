"""AdapCC's strategy for a tensor (Sec. IV-D): the trees that finish soonest, and a bound that proves it.

The integer program is built by ``synth.adapcc.tree_milp``. Its solver starts from shortest-path trees or from
chains, whichever finish sooner. This module computes the times of the trees.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.adapcc.logical_graph import Edge, NodeGraph
from synth.adapcc.tree_milp import Demand, StrategyProgram, Tree, begin, build, trees_of
from synth.milp import relative_gap

__all__ = ["Strategy", "plan"]

# Trees within 2 % of the bound are good enough; proving the rest may take the whole time limit.
_GAP = 0.02


@dataclass(frozen=True, eq=False)
class Strategy:
    """A tree for each demand, and its time in the model.

    ``time_s`` is the load of the busiest resource plus the first chunk's time to the root (and back).
    ``bound_s`` is a proven lower bound on the time of any strategy with as many trees.
    """

    trees: tuple[Tree, ...]
    busy_s: float
    time_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """The gap of ``time_s`` to the bound, relative to ``time_s``."""
        return relative_gap(self.time_s, self.bound_s)


def plan(
    graph: NodeGraph,
    demands: Sequence[Demand],
    total_bytes: int,
    chunk_bytes: int,
    *,
    floor_s: float = 0.0,
    solver: str = "cbc",
    time_limit_s: float = 40.0,
    seed: int = 0,
) -> Strategy | None:
    """Return the trees that finish ``total_bytes`` soonest; None if no tree reaches all nodes.

    ``floor_s`` is the time of concurrent work elsewhere: loads below it do not count.
    """
    begun_s = time.perf_counter()
    trees = _nearest_trees(graph, demands, chunk_bytes)
    if trees is None:
        return None
    program = StrategyProgram(graph, demands, total_bytes, chunk_bytes, floor_s)
    build(program)
    directions = 2.0 if graph.both else 1.0
    bound = 0.0
    starts = [trees, _chains(graph, trees, chunk_bytes)]
    best_s, best = min(((_time_s(program, start), start) for start in starts), key=lambda pair: pair[0])
    # The first step minimizes the load alone, which is proven quickly. The second step adds the first chunk's
    # time, which rarely decides and slows the proof.
    steps = (
        ({program.busy: 1.0}, 0.6, _GAP / 4),
        ({program.busy: 1.0, program.first: directions}, 1.0, _GAP),
    )
    for cost, part, enough in steps:
        if best_s <= bound * (1 + _GAP):
            break
        program.model.cost = cost
        begin(program, best)
        left_s = (time_limit_s - (time.perf_counter() - begun_s)) * part
        solution = program.model.solve(solver=solver, time_limit_s=max(0.5, left_s), gap=enough, seed=seed)
        found = best if solution.values is None else trees_of(program, solution.values)
        if _time_s(program, found) < best_s:
            best, best_s = found, _time_s(program, found)
        first_s = directions * _radius_s(graph, demands, chunk_bytes) if len(cost) == 1 else 0.0
        bound = max(bound, floor_s + first_s, solution.bound * program.unit_s + first_s)
    busy_s = _busy_s(graph, demands, best, total_bytes)
    return Strategy(tuple(best), busy_s, best_s, min(bound, best_s))


def _nearest_trees(graph: NodeGraph, demands: Sequence[Demand], chunk_bytes: int) -> list[Tree] | None:
    """Return a shortest-path tree for each demand; without a given root, well connected nodes are roots."""
    into = np.zeros(graph.nodes)
    for edge, step_s in zip(graph.edges, graph.steps_s(chunk_bytes).tolist(), strict=True):
        into[edge.dst] += 1.0 / step_s
    preferred = np.argsort(-into, kind="stable").tolist()
    open_shares = sum(demand.share is None for demand in demands)
    open_share = (1.0 - sum(demand.share or 0.0 for demand in demands)) / max(1, open_shares)
    paths = graph.paths_to(chunk_bytes)
    trees = []
    for at, demand in enumerate(demands):
        root = demand.root if demand.root is not None else preferred[at % graph.nodes]
        if np.isinf(paths.cost[root]).any():
            return None
        above = tuple(graph.edges[edge] if edge >= 0 else None for edge in paths.edge[root].tolist())
        trees.append(Tree(root, above, open_share if demand.share is None else demand.share))
    return trees


def _chains(graph: NodeGraph, trees: Sequence[Tree], chunk_bytes: int) -> list[Tree]:
    """Return for each tree a chain of all nodes to its root, built greedily from the fastest edges.

    In a chain each node receives from at most one other, while shortest-path trees concentrate traffic at the
    root. A chain that does not reach all nodes is replaced by the given tree.
    """
    steps_s = graph.steps_s(chunk_bytes).tolist()
    into: list[list[int]] = [[] for _ in range(graph.nodes)]
    for at, edge in enumerate(graph.edges):
        into[edge.dst].append(at)
    chains = []
    for tree in trees:
        above: list[Edge | None] = [None] * graph.nodes
        reached, node = {tree.root}, tree.root
        while fresh := [at for at in into[node] if graph.edges[at].src not in reached]:
            edge = graph.edges[min(fresh, key=lambda at: steps_s[at])]
            above[edge.src] = edge
            node = edge.src
            reached.add(node)
        chains.append(Tree(tree.root, tuple(above), tree.share) if len(reached) == graph.nodes else tree)
    return chains


def _busy_s(graph: NodeGraph, demands: Sequence[Demand], trees: Sequence[Tree], total_bytes: int) -> float:
    busy: dict[int, float] = defaultdict(float)
    for demand, tree in zip(demands, trees, strict=True):
        for edge in filter(None, tree.above):
            for number in demand.numbers:
                for resource, s_per_byte in graph.load(edge, number).items():
                    busy[resource] += s_per_byte * total_bytes * tree.share / len(demand.numbers)
    return max(busy.values(), default=0.0)


def _time_s(program: StrategyProgram, trees: Sequence[Tree]) -> float:
    """Return the paper's (4)–(6): the first chunk's time to the root (and back) plus the busiest load."""
    busy_s = _busy_s(program.graph, program.demands, trees, program.total_bytes)
    return max(program.floor_s, busy_s) + (2 if program.graph.both else 1) * _first_s(program, trees)


def _first_s(program: StrategyProgram, trees: Sequence[Tree]) -> float:
    """Return the paper's (2): the longest time of a first chunk to its root, over all trees in use."""
    graph = program.graph
    step_s = dict(zip(graph.edges, graph.steps_s(program.chunk_bytes).tolist(), strict=True))
    slowest_s = 0.0
    for tree in trees:
        for node in range(graph.nodes) if tree.share else ():
            time_s, edge = 0.0, tree.above[node]
            while edge is not None:
                time_s += step_s[edge]
                edge = tree.above[edge.dst]
            slowest_s = max(slowest_s, time_s)
    return slowest_s


def _radius_s(graph: NodeGraph, demands: Sequence[Demand], chunk_bytes: int) -> float:
    """Return a lower bound on the first chunk's time to its root, by shortest paths."""
    farthest_s = graph.paths_to(chunk_bytes).cost.max(axis=1)
    # A tree with no share takes no time, so only demands with a share count.
    given = [farthest_s[demand.root] for demand in demands if demand.root is not None and demand.share]
    return float(max(given, default=farthest_s.min()))
