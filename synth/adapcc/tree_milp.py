"""AdapCC's strategy as a linear integer program (Sec. IV-D): one in-tree for each sub-collective.

Each sub-collective m has columns for its share of the tensor and for its root r, and for each edge columns
for the edge's use x, for the flows f from every node, and for the load N. Flows and loads are scaled by the
share, so the program is linear, and its relaxation is the fractional packing of trees. The rows, with the
paper's numbers:

- (1) every flow leaves its source, arrives at the root, and is conserved between;
- a node that aggregates (a = 1) sends one sum, of the size of the share, over its one outgoing edge; a node
  that does not (a = 0) sends every flow that reaches it;
- (2) a node is ready after the last node below it, which gives a chunk's time from the leaves to the root;
- (3) bandwidth is shared: sub-collectives on one link or port add up;
- (4)–(6) the objective is the time of the first chunk plus that of the busiest link or port.

In this model a = 1 is never slower, and contributions that pass a node unaggregated would have to be separate
chunks. So schedules aggregate wherever flows meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from probes.base import Floats
from synth.adapcc.logical_graph import Edge, NodeGraph
from synth.milp import IntegerProgram

__all__ = ["Demand", "StrategyProgram", "Tree", "begin", "build", "trees_of"]

# A smaller share is within a solver's usual tolerances and counts as none.
_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Demand:
    """A requested tree, with an optional root and an optional share of the bytes.

    Its bytes are split equally over the sub-collectives ``numbers``, each of which uses its own links.
    """

    numbers: tuple[int, ...]
    root: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Tree:
    """A tree; ``above[n]`` is the edge from node n towards the root, None at the root."""

    root: int
    above: tuple[Edge | None, ...]
    share: float


@dataclass(eq=False)
class _Columns:
    share: int
    root: list[int]
    root_share: list[int]
    routed: list[int]
    load: list[int]
    aggregates: list[int]


@dataclass(eq=False)
class StrategyProgram:
    """The model; ``busy`` and ``first`` are the columns of the busiest load and the first chunk's time.

    ``unit_s`` is the number of seconds that a time of 1 in the model stands for.
    """

    graph: NodeGraph
    demands: Sequence[Demand]
    total_bytes: int
    chunk_bytes: int
    floor_s: float
    model: IntegerProgram = field(default_factory=IntegerProgram)
    parts: list[_Columns] = field(default_factory=list)
    busy: int = -1
    first: int = -1
    unit_s: float = 1.0


def build(program: StrategyProgram) -> None:
    """Add all columns and rows to the model."""
    graph, model = program.graph, program.model
    steps = graph.steps_s(program.chunk_bytes).tolist()
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
    open_parts = [
        part for part, demand in zip(program.parts, program.demands, strict=True) if demand.share is None
    ]
    for larger, smaller in pairwise(open_parts):
        model.row([larger.share, smaller.share], [1.0, -1.0], low=0.0)


def _part(program: StrategyProgram, demand: Demand) -> _Columns:
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


def _route(program: StrategyProgram, part: _Columns) -> None:
    """Add (1): a flow from every node to the root over routed edges, with one edge out of each node."""
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
            columns = [flow[at] for at in leaving[node]] + [flow[at] for at in entering[node]]
            signs = [1.0] * len(leaving[node]) + [-1.0] * len(entering[node])
            supply = [part.share] if node == source else []
            model.row(
                [*columns, part.root_share[node], *supply], [*signs, 1.0, *[-1.0] * len(supply)], 0.0, 0.0
            )
    for at, edge in enumerate(graph.edges):
        # Without aggregation at its tail the edge carries every flow separately.
        model.row(
            [part.load[at], part.aggregates[edge.src], *carried[at]],
            [1.0, float(graph.nodes), *[-1.0] * len(carried[at])],
            low=0.0,
        )


def _aggregate(program: StrategyProgram, part: _Columns) -> None:
    """Require each node but the root to send at least its share over its one outgoing edge."""
    model, graph = program.model, program.graph
    for node in range(graph.nodes):
        out = [part.load[at] for at, edge in enumerate(graph.edges) if edge.src == node]
        model.row([*out, part.root_share[node], part.share], [*[1.0] * (len(out) + 1), -1.0], low=0.0)


def _wait(program: StrategyProgram, part: _Columns, steps: Sequence[float]) -> None:
    """Add (2): the time at which the first chunk is ready at each node, and so at the root."""
    model, graph = program.model, program.graph
    ready = [model.number() for _ in range(graph.nodes)]
    # No path takes longer than this sum, so the row of an unused edge limits nothing.
    longest = sum(sorted(steps)[-graph.nodes :])
    for at, edge in enumerate(graph.edges):
        columns = [ready[edge.dst], ready[edge.src], part.routed[at]]
        model.row(columns, [1.0, -1.0, -longest], low=steps[at] - longest)
    for column in ready:
        model.row([program.first, column], [1.0, -1.0], low=0.0)


def _share_bandwidth(program: StrategyProgram) -> None:
    """Add (3): loads of all sub-collectives add up on a link or port, and the busiest one counts."""
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


def begin(program: StrategyProgram, trees: Sequence[Tree]) -> None:
    """Set these trees as the model's first solution; the solver derives all other columns."""
    for part, tree in zip(program.parts, trees, strict=True):
        for node, column in enumerate(part.root):
            program.model.start[column] = float(node == tree.root)
        for at, edge in enumerate(program.graph.edges):
            program.model.start[part.routed[at]] = float(tree.above[edge.src] is edge)
        program.model.start.update(dict.fromkeys(part.aggregates, 1.0))


def trees_of(program: StrategyProgram, values: Floats) -> list[Tree]:
    """Return the trees of a solution; shares within rounding of zero become 0."""
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
