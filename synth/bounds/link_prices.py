"""The routes of a step of several collectives, and what a faster link, NIC or trunk would save.

A linear program routes all collectives of a step at once, in arbitrarily fine pieces, over trees and paths,
so that the step ends soonest. Its dual values say how much the end depends on each resource. Column
generation adds the trees that are cheapest at the current dual values, until they no longer shorten the step.
A greedy search builds each tree by adding the nearest rank first, and may miss the cheapest tree. So the time
is an estimate, not a proven bound. Latency is ignored.

Collectives with different release times share resources only while both run. So time is cut into intervals at
the releases, and each piece of data moves in an interval after its own release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from scipy.sparse import csc_array

from probes.base import Floats, Indices, floats
from synth.bounds.packing_lp import ALIKE, resource_load
from synth.collective import Collective
from synth.network import Network
from synth.networks import ShortestPaths, shortest_paths

__all__ = [
    "NetworkPart",
    "Route",
    "StepDemand",
    "StepFlow",
    "Upgrade",
    "parts_of",
    "step_flow",
    "upgraded",
    "upgrades",
]

# These limits were tried on 14 steps of one to three collectives, on networks drawn as for the steps of
# benchmarks/demands.py: a search took 3 to 6 rounds, and larger limits changed no time and no saving.
#
# The most rounds of new trees.
_MOST_ROUNDS = 40
# A round gains if the step ends sooner by a thousandth. The search ends in the fourth idle round in a row.
_IDLE_ROUNDS, _GAIN = 3, 1e-3
# Upgrades are computed for this many parts with the largest dual values, each by a program of its own.
_CANDIDATES = 10
# Trees are also searched at prices that rise exponentially with load. Then an idle resource costs exp(-8) =
# 1/3000 of a full one, so a detour over idle links is cheap, and a short detour is cheaper than a long one.
# With exponents from 2 to 16 the steps ended at the same times.
_STEEPNESS = 8.0
# The weight of the time that trees take on all links beside the end of the step.
_SHORTER = 1e-5
# A tree with a smaller share of its block is a rounding error.
_LEAST_SHARE = 1e-6
# A word in a port's name that tells its direction; both directions of a port are one part.
_DIRECTION = re.compile(r"\s*\b(?:egress|ingress|up|down|out|in|tx|rx)\b(?=(\s+\d)?)")


@dataclass(frozen=True)
class StepDemand:
    """A collective of a step, in chunks of ``chunk_bytes``, that may start at ``release_s``."""

    collective: Collective
    chunk_bytes: int
    release_s: float = 0.0


@dataclass(frozen=True)
class NetworkPart:
    """A link, NIC, port or trunk, with its ``resources`` in both directions.

    Resources are numbered as in ``Network.link_resources``.
    """

    name: str
    resources: tuple[int, ...]
    bytes_per_s: float


def parts_of(network: Network) -> list[NetworkPart]:
    """Return the parts that can limit a transfer: ports, and links that are slower than their ports."""
    used, _ = resource_load(network)
    names: dict[str, list[int]] = {}
    port_s = network.port_s_per_byte
    for resource in used.tolist():
        if resource < network.links:
            ends = sorted((int(network.src[resource]), int(network.dst[resource])))
            name = f"link {ends[0]}-{ends[1]}"
        else:
            port = network.ports[resource - network.links]
            name = _DIRECTION.sub(lambda match: " port" if match[1] else "", port)
        names.setdefault(name, []).append(resource)
    return [
        NetworkPart(name, tuple(rows), min(1.0 / _s_per_byte(network, port_s, row) for row in rows))
        for name, rows in names.items()
    ]


def _s_per_byte(network: Network, port_s: Floats, resource: int) -> float:
    return float(
        network.beta_s_per_byte[resource] if resource < network.links else port_s[resource - network.links]
    )


def upgraded(network: Network, part: NetworkPart | None, more_bytes_per_s: float) -> Network:
    """Return the network with a part faster by ``more_bytes_per_s``; None upgrades nothing.

    A link that was as fast as one of its ports gets the new rate of its slowest port. No link is faster than
    its slowest port. The result states the time per byte of each port. A network with ports ``queues``:
    otherwise a link slower than its port would hold the port for the whole transfer.
    """
    port_s = network.port_s_per_byte.copy()
    beta = network.beta_s_per_byte.copy()
    for resource in part.resources if part is not None else ():
        if resource >= network.links:
            port = resource - network.links
            port_s[port] = 1.0 / (1.0 / port_s[port] + more_bytes_per_s)
        else:
            beta[resource] = 1.0 / (1.0 / beta[resource] + more_bytes_per_s)
    if len(network.ports):
        limited = network.beta_s_per_byte[network.port_user] <= (
            network.port_s_per_byte[network.link_port] * ALIKE
        )
        slowest = np.zeros(network.links)
        np.maximum.at(slowest, network.port_user, port_s[network.link_port])
        at_port = np.zeros(network.links, dtype=bool)
        at_port[network.port_user[limited]] = True
        beta = np.where(at_port, np.minimum(beta, slowest), np.maximum(beta, slowest))
    plain = Network(**{each.name: getattr(network, each.name) for each in fields(Network)})
    return replace(
        plain,
        beta_s_per_byte=floats(beta),
        port_beta_s_per_byte=floats(port_s),
        queues=network.queues or bool(len(network.ports)),
    )


@dataclass(frozen=True, eq=False)
class Route:
    """A tree for a share of the ``chunks`` of a collective, used from the time ``start_s`` on.

    Chunks are summed over the links ``into`` towards a root, and copied over the links ``out``. Links stand
    in the order in which they lead away from the root.
    """

    chunks: Indices
    share: float
    start_s: float
    into: tuple[int, ...]
    out: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StepFlow:
    """When a step ends at the earliest, and the routes of each of its collectives, the earliest first."""

    end_s: float
    routes: tuple[tuple[Route, ...], ...]


@dataclass(frozen=True, eq=False)
class Upgrade:
    """The flow of a step on a ``network`` with one part that is faster."""

    part: NetworkPart
    network: Network
    flow: StepFlow


def step_flow(network: Network, demands: Sequence[StepDemand]) -> StepFlow:
    """Return the routes by which a step ends soonest.

    O(rounds · (ranks² · links of a tree + the program)).
    """
    program = _Program(upgraded(network, None, 0.0), _blocks(demands))
    program.solve()
    return program.flow(len(demands))


def upgrades(
    network: Network, demands: Sequence[StepDemand], more_bytes_per_s: float = 1e9
) -> tuple[StepFlow, list[Upgrade]]:
    """Return the flow of a step, and the flow with each part faster that a dual value names.

    The upgrade after which the step ends soonest is first.
    """
    program = _Program(upgraded(network, None, 0.0), _blocks(demands))
    program.solve()
    slack_s = program.weights_s()
    parts = parts_of(network)
    worth = [sum(slack_s.get(r, 0.0) for r in part.resources) / part.bytes_per_s for part in parts]
    found = []
    for at in sorted(range(len(parts)), key=lambda at: -worth[at])[:_CANDIDATES]:
        if worth[at] > 0.0:
            fast = upgraded(network, parts[at], more_bytes_per_s)
            found.append(Upgrade(parts[at], fast, step_flow(fast, demands)))
    return program.flow(len(demands)), sorted(found, key=lambda one: one.flow.end_s)


@dataclass(frozen=True, eq=False)
class _Block:
    """Chunks that go to all ``targets``, from any one of ``sources``, or as the sum over all of them.

    ``demand`` is the place of their collective in the step.
    """

    demand: int
    chunks: Indices
    sources: Indices
    targets: Indices
    reduced: bool
    size_bytes: float
    release_s: float


def _blocks(demands: Sequence[StepDemand]) -> list[_Block]:
    return [block for at, demand in enumerate(demands) for block in _blocks_of(at, demand)]


def _blocks_of(at: int, demand: StepDemand) -> Iterator[_Block]:
    sources, targets = demand.collective.sources, demand.collective.targets
    keys = np.stack((sources.group, targets.group, demand.collective.reduced), axis=1)
    found, of_key = np.unique(keys, axis=0, return_inverse=True)
    for number, key in enumerate(found):
        chunks = np.flatnonzero(of_key.ravel() == number)
        holders, takers = sources.of(int(chunks[0])), targets.of(int(chunks[0]))
        if (key[2] and len(holders) > 1) or len(np.setdiff1d(takers, holders)):
            size_bytes = float(len(chunks) * demand.chunk_bytes)
            yield _Block(at, chunks, holders, takers, bool(key[2]), size_bytes, demand.release_s)


_Tree = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(eq=False)
class _Program:
    """The linear program on one network; ``trees`` are (block, links to its root, links from it)."""

    network: Network
    blocks: Sequence[_Block]
    trees: dict[_Tree, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used, self.load = resource_load(self.network)
        self.releases = np.unique([block.release_s for block in self.blocks])
        self.price = np.ones((len(self.releases), len(self.used)))
        self.tried = [self.price]
        self.last_s = 0.0
        # The interval, the tree and the share of each variable.
        self.variables: list[tuple[int, int]] = []
        self.shares = np.zeros(0)

    def solve(self) -> None:
        """Add trees until the end of the step hardly changes."""
        best_s, idle = np.inf, 0
        for _ in range(_MOST_ROUNDS):
            known = len(self.trees)
            self._grow()
            if len(self.trees) == known:
                break
            self._solve()
            idle = 0 if self.end_s < best_s * (1 - _GAIN) else idle + 1
            best_s = min(best_s, self.end_s)
            if idle > _IDLE_ROUNDS:
                break

    @property
    def end_s(self) -> float:
        return float(self.releases[-1]) + self.last_s

    def weights_s(self) -> dict[int, float]:
        """Return the derivative of the step's end by each resource's relative speed, in seconds."""
        lengths_s = np.append(np.diff(self.releases), self.last_s)
        return dict(zip(self.used.tolist(), (lengths_s @ self.price).tolist(), strict=True))

    def flow(self, demands: int) -> StepFlow:
        """Return the end of the step, and the routes of each demand."""
        trees = list(self.trees)
        routes: list[list[Route]] = [[] for _ in range(demands)]
        for (interval, tree), share in zip(self.variables, self.shares.tolist(), strict=True):
            if share > _LEAST_SHARE:
                number, into, out = trees[tree]
                block, start_s = self.blocks[number], float(self.releases[interval])
                routes[block.demand].append(Route(block.chunks, share, start_s, into, out))
        return StepFlow(self.end_s, tuple(map(tuple, routes)))

    def _grow(self) -> None:
        """Add the cheapest trees at the current prices, for each interval that a block may use."""
        network = self.network
        for prices in self.tried:
            for interval, release_s in enumerate(self.releases):
                # The small addition keeps trees from detours over links that cost nothing.
                length = floats(self.load.T @ prices[interval] + 1e-9 * network.beta_s_per_byte)
                forward = shortest_paths(network.ranks, network.src, network.dst, length)
                backward = shortest_paths(network.ranks, network.dst, network.src, length)
                for number, block in enumerate(self.blocks):
                    if block.release_s <= release_s:
                        for into, out in _trees(block, forward, backward, network):
                            self.trees[number, into, out] = None

    def _solve(self) -> None:
        """Solve for the shares of the trees; set the prices and the length of the last interval."""
        keys = list(self.trees)
        block = np.array([number for number, *_ in keys])
        size = np.array([self.blocks[number].size_bytes for number in block])
        lengths = [len(into) + len(out) for _, into, out in keys]
        link = np.concatenate([np.array(into + out, dtype=np.int64) for _, into, out in keys])
        member = csc_array(
            (np.ones(len(link)), (link, np.repeat(np.arange(len(keys)), lengths))),
            shape=(self.network.links, len(keys)),
        )
        seconds = (self.load @ member) * size
        unit_s = float(seconds.max())
        intervals, resources = len(self.releases), len(self.used)
        release_s = np.array([self.blocks[number].release_s for number in block])
        columns, rows, shares, owner, self.variables = [], [], [], [], []
        count = 0
        coo = (seconds / unit_s).tocoo()
        for interval, start_s in enumerate(self.releases):
            usable = np.flatnonzero(release_s <= start_s)
            place = np.full(len(keys), -1)
            place[usable] = count + np.arange(len(usable))
            kept = place[coo.col] >= 0
            rows.append(coo.row[kept] + interval * resources)
            columns.append(place[coo.col[kept]])
            shares.append(coo.data[kept])
            owner.append(block[usable])
            self.variables += [(interval, tree) for tree in usable.tolist()]
            count += len(usable)
        last = np.arange(resources) + (intervals - 1) * resources
        matrix = csc_array(
            (
                np.concatenate([*shares, -np.ones(resources)]),
                (np.concatenate([*rows, last]), np.concatenate([*columns, np.full(resources, count)])),
            ),
            shape=(intervals * resources, count + 1),
        )
        most = np.repeat(np.append(np.diff(self.releases), 0.0) / unit_s, resources)
        whole = csc_array(
            (np.ones(count), (np.concatenate(owner), np.arange(count))), shape=(len(self.blocks), count + 1)
        )
        # Imported only here, because the import takes a tenth of a second.
        from scipy.optimize import linprog

        # Short trees win among equally good shares, because their chunks wait less for each other.
        whole_s = np.asarray((seconds / unit_s).sum(axis=0)).ravel()
        cost = np.append(_SHORTER * whole_s[[tree for _, tree in self.variables]], 1.0)
        solved = linprog(
            cost, A_ub=matrix, b_ub=most, A_eq=whole, b_eq=np.ones(len(self.blocks)), method="highs"
        )
        self.price = np.maximum(-solved.ineqlin.marginals, 0.0).reshape(intervals, resources)
        self.last_s, self.shares = float(solved.x[-1]) * unit_s, solved.x[:-1]
        # The dual values of most resources are 0, so trees are also searched at prices that rise with load.
        most[-resources:] = solved.x[-1]
        loaded = (matrix[:, :-1] @ solved.x[:-1]) / np.maximum(most, 1e-12)
        softened = np.exp(_STEEPNESS * (loaded - 1.0)).reshape(intervals, resources)
        self.tried = [self.price, softened]


def _trees(
    block: _Block, forward: ShortestPaths, backward: ShortestPaths, network: Network
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (links to the root, links from it) of cheap trees; of a sum, one for each target as root."""
    if not block.reduced:
        yield (), _grown(block.sources, block.targets, forward, network.dst)
        return
    for root in block.targets.tolist():
        into = _grown(np.array([root]), block.sources, backward, network.src)
        out = _grown(np.array([root]), block.targets, forward, network.dst) if len(block.targets) > 1 else ()
        yield into, out


def _grown(seeds: Indices, targets: Indices, paths: ShortestPaths, ends: Indices) -> tuple[int, ...]:
    """Return the links of a tree from ``seeds`` to all ``targets``, in the order of growth.

    The tree grows by one shortest path at a time, always to the nearest target. ``ends`` is the rank to which
    each link leads.
    """
    inside = np.zeros(len(paths.cost), dtype=bool)
    inside[seeds] = True
    nearest = seeds[paths.cost[seeds].argmin(axis=0)]
    distance = paths.cost[seeds].min(axis=0)
    left = targets[~inside[targets]]
    links: list[int] = []
    while len(left):
        target = int(left[distance[left].argmin()])
        for link in paths.edges(int(nearest[target]), target):
            node = int(ends[link])
            if not inside[node]:
                links.append(link)
                inside[node] = True
                closer = paths.cost[node] < distance
                distance[closer], nearest[closer] = paths.cost[node][closer], node
        left = left[~inside[left]]
    return tuple(links)
