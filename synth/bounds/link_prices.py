"""Prices of links, NICs and trunks: what a faster part would save in a step of several collectives.

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

__all__ = ["NetworkPart", "Price", "StepDemand", "part_prices", "parts_of", "upgraded"]

# These limits were tried on 14 steps of one to three collectives, on networks drawn as for the steps of
# benchmarks/demands.py: a search took 3 to 6 rounds, and larger limits changed no time and no saving.
#
# The most rounds of new trees.
_MOST_ROUNDS = 40
# A round gains if the step ends sooner by a thousandth. The search ends in the fourth idle round in a row.
_IDLE_ROUNDS, _GAIN = 3, 1e-3
# The most rounds on an upgraded network. Its search starts with the trees found for the present network,
# which nearly always include the useful ones.
_MORE_ROUNDS = 8
# The saving is computed for this many parts with the largest dual values, each by a program of its own.
_CANDIDATES = 10
# Trees are also searched at prices that rise exponentially with load. Then an idle resource costs exp(-8) =
# 1/3000 of a full one, so a detour over idle links is cheap, and a short detour is cheaper than a long one.
# With exponents from 2 to 16 the steps ended at the same times.
_STEEPNESS = 8.0
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


@dataclass(frozen=True)
class Price:
    """The seconds that a step would end earlier if the part were faster by ``more_bytes_per_s``."""

    part: NetworkPart
    more_bytes_per_s: float
    saves_s: float


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


def part_prices(
    network: Network, demands: Sequence[StepDemand], more_bytes_per_s: float = 1e9
) -> tuple[float, list[Price]]:
    """Return (end of the step in seconds, prices of parts, largest saving first).

    Parts that would save nothing are left out. O(rounds · (ranks² · links of a tree + the program)).
    """
    blocks = [block for demand in demands for block in _blocks(demand)]
    program = _Program(upgraded(network, None, 0.0), blocks)
    end_s = program.solved(_MOST_ROUNDS)
    slack_s = program.weights_s()
    parts = parts_of(network)
    worth = [sum(slack_s.get(r, 0.0) for r in part.resources) / part.bytes_per_s for part in parts]
    found = []
    for at in sorted(range(len(parts)), key=lambda at: -worth[at])[:_CANDIDATES]:
        if worth[at] <= 0.0:
            break
        faster = _Program(upgraded(network, parts[at], more_bytes_per_s), blocks, program.trees)
        saves_s = end_s - faster.solved(_MORE_ROUNDS)
        if saves_s > 1e-4 * end_s:
            found.append(Price(parts[at], more_bytes_per_s, saves_s))
    return end_s, sorted(found, key=lambda price: -price.saves_s)


@dataclass(frozen=True, eq=False)
class _Block:
    """Data that goes to all ``targets``, from any one of ``sources``, or as the sum over all of them."""

    sources: Indices
    targets: Indices
    reduced: bool
    size_bytes: float
    release_s: float


def _blocks(demand: StepDemand) -> Iterator[_Block]:
    sources, targets = demand.collective.sources, demand.collective.targets
    keys = np.stack((sources.group, targets.group, demand.collective.reduced), axis=1)
    found, first, count = np.unique(keys, axis=0, return_index=True, return_counts=True)
    for chunk, key, chunks in zip(first.tolist(), found, count.tolist(), strict=True):
        holders, takers = sources.of(chunk), targets.of(chunk)
        if (key[2] and len(holders) > 1) or len(np.setdiff1d(takers, holders)):
            size_bytes = float(chunks * demand.chunk_bytes)
            yield _Block(holders, takers, bool(key[2]), size_bytes, demand.release_s)


@dataclass(eq=False)
class _Program:
    """The linear program on one network; ``trees`` are (block, links), where a link may occur twice."""

    network: Network
    blocks: Sequence[_Block]
    trees: dict[tuple[int, tuple[int, ...]], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trees = dict(self.trees)
        self.used, self.load = resource_load(self.network)
        self.releases = np.unique([block.release_s for block in self.blocks])
        self.price = np.ones((len(self.releases), len(self.used)))
        self.tried = [self.price]
        self.last_s = 0.0

    def solved(self, rounds: int) -> float:
        """Add trees until the end of the step hardly changes; return the end in seconds."""
        best_s, idle = np.inf, 0
        for _ in range(rounds):
            known = len(self.trees)
            self._grow()
            if len(self.trees) > known or not np.isfinite(best_s):
                self._solve()
            end_s = float(self.releases[-1]) + self.last_s
            idle = 0 if end_s < best_s * (1 - _GAIN) else idle + 1
            best_s = min(best_s, end_s)
            if idle > _IDLE_ROUNDS or len(self.trees) == known:
                break
        return float(best_s)

    def weights_s(self) -> dict[int, float]:
        """Return the derivative of the step's end by each resource's relative speed, in seconds."""
        lengths_s = np.append(np.diff(self.releases), self.last_s)
        return dict(zip(self.used.tolist(), (lengths_s @ self.price).tolist(), strict=True))

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
                        for links in _trees(block, forward, backward, network):
                            self.trees[number, links] = None

    def _solve(self) -> None:
        """Solve for the shares of the trees; set the prices and the length of the last interval."""
        keys = list(self.trees)
        block = np.array([number for number, _ in keys])
        size = np.array([self.blocks[number].size_bytes for number, _ in keys])
        lengths = [len(links) for _, links in keys]
        link = np.concatenate([np.array(links, dtype=np.int64) for _, links in keys])
        member = csc_array(
            (np.ones(len(link)), (link, np.repeat(np.arange(len(keys)), lengths))),
            shape=(self.network.links, len(keys)),
        )
        seconds = (self.load @ member) * size
        unit_s = float(seconds.max())
        intervals, resources = len(self.releases), len(self.used)
        release_s = np.array([self.blocks[number].release_s for number in block])
        columns, rows, shares, owner = [], [], [], []
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

        cost = np.append(np.zeros(count), 1.0)
        solved = linprog(
            cost, A_ub=matrix, b_ub=most, A_eq=whole, b_eq=np.ones(len(self.blocks)), method="highs"
        )
        self.price = np.maximum(-solved.ineqlin.marginals, 0.0).reshape(intervals, resources)
        self.last_s = float(solved.x[-1]) * unit_s
        # The dual values of most resources are 0, so trees are also searched at prices that rise with load.
        most[-resources:] = solved.x[-1]
        loaded = (matrix[:, :-1] @ solved.x[:-1]) / np.maximum(most, 1e-12)
        softened = np.exp(_STEEPNESS * (loaded - 1.0)).reshape(intervals, resources)
        self.tried = [self.price, softened]


def _trees(
    block: _Block, forward: ShortestPaths, backward: ShortestPaths, network: Network
) -> Iterator[tuple[int, ...]]:
    """Yield the links of a cheap tree for a block; for a sum, one tree with its root at each target."""
    if not block.reduced:
        yield tuple(sorted(_grown(block.sources, block.targets, forward, network.dst)))
        return
    for root in block.targets.tolist():
        into = _grown(np.array([root]), block.sources, backward, network.src)
        out = (
            _grown(np.array([root]), block.targets, forward, network.dst) if len(block.targets) > 1 else set()
        )
        yield tuple(sorted([*into, *out]))


def _grown(seeds: Indices, targets: Indices, paths: ShortestPaths, ends: Indices) -> set[int]:
    """Return the links of a tree from ``seeds`` to all ``targets``.

    The tree grows by one shortest path at a time, always to the nearest target. ``ends`` is the rank to which
    each link leads.
    """
    inside = np.zeros(len(paths.cost), dtype=bool)
    inside[seeds] = True
    nearest = seeds[paths.cost[seeds].argmin(axis=0)]
    distance = paths.cost[seeds].min(axis=0)
    left = targets[~inside[targets]]
    links: set[int] = set()
    while len(left):
        target = int(left[distance[left].argmin()])
        way = paths.edges(int(nearest[target]), target)
        for link in way:
            links.add(link)
            node = int(ends[link])
            if not inside[node]:
                inside[node] = True
                closer = paths.cost[node] < distance
                distance[closer], nearest[closer] = paths.cost[node][closer], node
        left = left[~inside[left]]
    return links
