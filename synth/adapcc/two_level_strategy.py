"""AdapCC's strategy for a whole network: between hosts first, then inside each host.

The integer program of ``synth.adapcc.tree_milp`` grows with nodes times edges, so its nodes are the hosts, if
there are several. The links chosen between hosts then determine the roots of the trees inside each host.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from probes.base import Indices
from synth.adapcc.logical_graph import NodeGraph, node_graph
from synth.adapcc.tree_milp import Demand, Tree
from synth.adapcc.tree_strategy import Strategy, plan
from synth.collective import Kind
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import strong_components

__all__ = ["Planner", "TwoLevelPlan", "nodes_of", "require_size"]

# The most flow columns of a program. A larger one would take too much memory, however long the time limit.
_MOST_FLOWS = 40_000
# The number of flow columns, with their rows, that can be passed to a solver in a second.
_FLOWS_PER_S = 2_000
# The share of the time limit that is kept for the trees inside hosts, which are smaller programs.
_INSIDE_SHARE = 0.2
# The chunk size for which the time from the leaves to the root is computed. It is smaller for a tensor of
# fewer than 16 such chunks in each sub-collective.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class TwoLevelPlan:
    """The strategy between hosts, and those inside them.

    In sub-collective m, ``up[m][rank]`` is the rank's link towards the root, −1 at the root; ``share[m]`` is
    the share of the bytes.
    """

    between: Strategy
    inside: tuple[Strategy, ...]
    up: tuple[Indices, ...]
    share: tuple[float, ...]

    @property
    def gap(self) -> float:
        """The largest gap of the programs solved."""
        return max(strategy.gap for strategy in (self.between, *self.inside))


@dataclass(frozen=True)
class _Sub:
    """A sub-collective: its number, the index of its tree between hosts, and its root if given."""

    number: int
    tree: int
    root: int | None = None


class Planner:
    """Plans trees between hosts, then inside each; the links of ``self.network`` lead towards the roots."""

    def __init__(
        self,
        network: Network,
        kind: Kind,
        root: int,
        total_bytes: int,
        sub_collectives: int,
        *,
        solver: str = "cbc",
        time_limit_s: float = 60.0,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.root = root
        self.both = kind == "all_reduce"
        self.network = network.transposed() if kind in ("broadcast", "all_gather") else network
        self.total_bytes = total_bytes
        self.chunk_bytes = max(1, min(_CHUNK_BYTES, total_bytes // (16 * sub_collectives)))
        self.sub_collectives = sub_collectives
        self.solver = solver
        self.seed = seed
        self.time_limit_s = time_limit_s
        self.deadline_s = time.perf_counter() + time_limit_s
        self.node_of = nodes_of(network)
        members = [np.flatnonzero(self.node_of == node) for node in range(int(self.node_of.max()) + 1)]
        self.members = [ranks.tolist() for ranks in members]

    def plan(self) -> TwoLevelPlan:
        subs, demands = self._demands()
        graph = node_graph(
            self.network, self.node_of, numbers=1 + max(s.number for s in subs), both=self.both
        )
        require_size(self.network, len(demands) * graph.nodes * len(graph.edges), self.time_limit_s)
        between = self._solve(graph, demands, 0.0, 1.0 - _INSIDE_SHARE)
        ups: list[Indices] = [np.full(self.network.ranks, -1, dtype=np.int64) for _ in subs]
        roots = [
            self._between_hosts(sub, between.trees[sub.tree], up) for sub, up in zip(subs, ups, strict=True)
        ]
        shares = [between.trees[sub.tree].share / len(demands[sub.tree].numbers) for sub in subs]
        inside = []
        for node, ranks in enumerate(self.members):
            if len(ranks) > 1:
                left = 1.0 / (len(self.members) - node)
                inside.append(
                    self._inside(node, [root[node] for root in roots], shares, ups, between.busy_s, left)
                )
        return TwoLevelPlan(between, tuple(inside), tuple(ups), tuple(shares))

    def _demands(self) -> tuple[list[_Sub], list[Demand]]:
        """Return the sub-collectives, and the trees between hosts that they share."""
        if self.kind in ("all_gather", "reduce_scatter"):
            subs, demands = [], []
            for node, ranks in enumerate(self.members):
                numbers = tuple(range(len(ranks)))
                demands.append(Demand(numbers, node, len(ranks) / self.network.ranks))
                subs += [_Sub(place, node, rank) for place, rank in enumerate(ranks)]
            return sorted(subs, key=lambda sub: sub.root or 0), demands
        given = None if self.both else self.root
        home = None if given is None else int(self.node_of[given])
        count = range(self.sub_collectives)
        return [_Sub(m, m, given) for m in count], [Demand((m,), home) for m in count]

    def _solve(self, graph: NodeGraph, demands: list[Demand], floor_s: float, part: float) -> Strategy:
        found = plan(
            graph,
            demands,
            self.total_bytes,
            self.chunk_bytes,
            floor_s=floor_s,
            solver=self.solver,
            time_limit_s=max(0.5, (self.deadline_s - time.perf_counter()) * part),
            seed=self.seed,
        )
        if found is None:
            raise NotApplicableError(f"adapcc: {self.network.name}: no tree of links reaches all ranks")
        return found

    def _between_hosts(self, sub: _Sub, tree: Tree, up: Indices) -> list[int]:
        """Set the links between hosts in ``up``; return the root rank inside each host."""
        roots = []
        for node, edge in enumerate(tree.above):
            ranks = self.members[node]
            if edge is None:
                roots.append(ranks[sub.number % len(ranks)] if sub.root is None else sub.root)
                continue
            link = edge.links[sub.number]
            roots.append(int(self.network.src[link]))
            up[roots[-1]] = link
        return roots

    def _inside(
        self,
        node: int,
        roots: list[int],
        shares: list[float],
        ups: list[Indices],
        floor_s: float,
        part: float,
    ) -> Strategy:
        """Plan the trees inside one host; sub-collectives with the same root share a tree."""
        ranks = self.members[node]
        place = {rank: at for at, rank in enumerate(ranks)}
        node_of = np.full(self.network.ranks, -1)
        node_of[ranks] = np.arange(len(ranks))
        distinct = sorted(set(roots))
        share: dict[int, float] = defaultdict(float)
        for root, one in zip(roots, shares, strict=True):
            share[root] += one
        graph = node_graph(self.network, node_of, numbers=len(distinct), both=self.both)
        demands = [Demand((at,), place[root], share[root]) for at, root in enumerate(distinct)]
        found = self._solve(graph, demands, floor_s, part)
        for root, up in zip(roots, ups, strict=True):
            number = distinct.index(root)
            for at, edge in enumerate(found.trees[number].above):
                if edge is not None:
                    up[ranks[at]] = edge.links[number]
        return found


def nodes_of(network: Network) -> Indices:
    """Return each rank's host number; the rank's own number if there is one host or a host is unconnected."""
    parts = strong_components(network, network.within_host)
    hosts = len(set(network.hosts))
    return parts if parts.max() + 1 == hosts > 1 else np.arange(network.ranks)


def require_size(network: Network, flows: int, time_limit_s: float) -> None:
    """Raise NotApplicableError if an integer program with ``flows`` flow columns is too large."""
    most = min(_MOST_FLOWS, int(time_limit_s * _FLOWS_PER_S))
    if flows > most:
        raise NotApplicableError(
            f"adapcc: {network.name}: its integer program would have {flows} columns for flows; "
            f"up to {most} can be solved in {time_limit_s:.3g} s"
        )
