"""The cost of averaging per iteration: DS-Sync's groups and other methods (DS-Sync, Tables I and II).

All methods use the same cost model, alpha and beta of their links. A transfer of c bytes holds its link and
its ports for beta·c, and the times of one link or port add up. Each message is sent once for each of L
layers, so a latency counts L times. On a network with a single beta these are Table I's formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Floats, Indices, Ints
from synth.errors import NotApplicableError
from synth.groups.artifact import Division
from synth.network import Network
from synth.networks import link_table

__all__ = ["AveragingCosts", "require_all_pairs"]

# (from, to, bytes)
_Flow = tuple[int, int, float]
# The most chunks of a tree's messages. Without latency, more chunks are always faster, but beyond this number
# they gain less than 0.03 % (depth / chunks, with at most 16 levels).
_MOST_CHUNKS = 1 << 16


def require_all_pairs(network: Network) -> None:
    """Raise NotApplicableError unless every rank has a link to every other."""
    joined = np.eye(network.ranks, dtype=np.bool_)
    joined[network.src, network.dst] = True
    if not joined.all():
        src, dst = (int(ends[0]) for ends in np.nonzero(~joined))
        raise NotApplicableError(
            f"{network.name}: expected a link from each rank to each other, found none from {src} to {dst}",
            hint="Groups change, so any two ranks may meet: a profile has all links, and so has a switch.",
        )


@dataclass(frozen=True, eq=False)
class AveragingCosts:
    """Times of averaging ``size_bytes`` in ``layers`` messages; rings follow the order of ``racks``."""

    network: Network
    racks: tuple[tuple[int, ...], ...]
    size_bytes: int
    layers: int = 1

    def __post_init__(self) -> None:
        require_all_pairs(self.network)

    def division_s(self, division: Division) -> tuple[float, ...]:
        """Return the time of each group if all groups average at once, each by a ring in the order of racks.

        A ring of n takes 2(n − 1) messages of 1/n of the bytes, all paced by its slowest link. Links and
        ports that groups share, such as a trunk, carry the load of all of them.
        """
        rings = [self._ring(group) for group in division]
        load = self._load([flow for ring in rings for flow in ring])
        return tuple(
            2 * (len(group) - 1) * self._latency_s(ring) + self._most(load, ring)
            for group, ring in zip(division, rings, strict=True)
        )

    def iteration_s(self, division: Division) -> float:
        """Return the time of an iteration, which is the time of its slowest group (Sec. IV-A)."""
        return max(self.division_s(division))

    def mean_s(self, iterations: Sequence[Division]) -> float:
        """Return the mean time of an iteration of the period."""
        return math.fsum(map(self.iteration_s, iterations)) / len(iterations)

    def peers_s(self) -> dict[str, float]:
        """Return the time of an iteration of each other method, by name, such as "ps" and "ring"."""
        return {
            "ps": self.parameter_server_s(),
            "ring": self.ring_s(),
            "double_tree": self.double_tree_s(),
            "hierarchical": self.hierarchical_s(),
            "gossip": self.gossip_s(),
            "asp": self.asp_s(),
        }

    def ring_s(self) -> float:
        """Return the time of a ring all_reduce of all ranks that crosses from each rack to the next once."""
        return self.iteration_s((tuple(self._in_order),))

    def double_tree_s(self) -> float:
        """Return the time of two complementary binary trees with half of the bytes each, in k chunks.

        There are 2(log N + k) steps, each of 1/k of the load of the busiest link or port in one direction
        (Table I). The number k is chosen to take the least time.
        """
        order = self._in_order
        if len(order) < 2:
            return 0.0
        # The second tree rotates the ranks within each rack: other ranks are its leaves, and as many edges
        # cross racks.
        turned = [rank for rack in self.racks for rank in (*rack[1:], rack[0])]
        edges = [pair for tree in (order, turned) for pair in _tree(tree)]
        up = [(child, parent, self.size_bytes / 2) for child, parent in edges]
        busiest_s, latency_s = float(self._load(up).max()), self._latency_s(up)
        depth = math.ceil(math.log2(len(order)))
        best = math.sqrt(depth * busiest_s / latency_s) if latency_s else _MOST_CHUNKS
        chunks = min(_MOST_CHUNKS, max(1, round(best)))
        return 2 * (depth + chunks) * (latency_s + busiest_s / chunks)

    def hierarchical_s(self) -> float:
        """Return the time of a reduce within racks, an all_reduce of their first ranks, and a broadcast.

        The three follow one another; reduce and broadcast together take as long as a ring within racks.
        """
        firsts = tuple(rack[0] for rack in self.racks)
        return self.iteration_s(self.racks) + self.iteration_s((firsts,))

    def parameter_server_s(self) -> float:
        """Return the time to push to and pull from parameter servers, one per rank, with equal shares."""
        flows = self._to_servers()
        return 2 * (self.network.ranks - 1) * self._latency_s(flows) + 2 * self._most(
            self._load(flows), flows
        )

    def asp_s(self) -> float:
        """Return the time of the fastest rank's push and pull, as asynchronous ranks wait for no other."""
        flows = self._to_servers()
        load = self._load(flows)
        rank_flows = ([flow for flow in flows if flow[0] == rank] for rank in range(self.network.ranks))
        return min(2 * self._latency_s(mine) + 2 * self._most(load, mine) for mine in rank_flows)

    def gossip_s(self) -> float:
        """Return the mean time of a step of a dynamic exponential graph: each rank sends to rank + 2^k."""
        ranks = self.network.ranks
        steps = [1 << power for power in range((ranks - 1).bit_length())]
        times = []
        for step in steps:
            flows = [(rank, (rank + step) % ranks, float(self.size_bytes)) for rank in range(ranks)]
            times.append(2 * self._latency_s(flows) + self._most(self._load(flows), flows))
        return math.fsum(times) / len(times) if times else 0.0

    @cached_property
    def _in_order(self) -> list[int]:
        return [rank for rack in self.racks for rank in rack]

    @cached_property
    def _link(self) -> Ints:
        return link_table(self.network, max(1, self.size_bytes // self.layers))

    def _rows(self, flows: Iterable[_Flow]) -> Indices:
        """Return the link of each flow."""
        ends = np.array([flow[:2] for flow in flows], dtype=np.int64).reshape(-1, 2)
        return self._link[ends[:, 0], ends[:, 1]]

    def _ring(self, group: Sequence[int]) -> list[_Flow]:
        if len(group) < 2:
            return []
        place = {rank: at for at, rank in enumerate(self._in_order)}
        ring = sorted(group, key=place.__getitem__)
        each = 2 * (len(ring) - 1) / len(ring) * self.size_bytes
        return [(src, dst, each) for src, dst in zip(ring, ring[1:] + ring[:1], strict=True)]

    def _to_servers(self) -> list[_Flow]:
        ranks = self.network.ranks
        share = self.size_bytes / ranks
        return [(src, dst, share) for src in range(ranks) for dst in range(ranks) if src != dst]

    def _latency_s(self, flows: Sequence[_Flow]) -> float:
        """Return the latency of one step in which all ``flows`` send, layer by layer."""
        return self.layers * float(self.network.alpha_s[self._rows(flows)].max()) if flows else 0.0

    def _load(self, flows: Sequence[_Flow]) -> Floats:
        """Return the seconds for which ``flows`` hold each link, then each port."""
        load: Floats = np.zeros(self.network.links + len(self.network.ports))
        if not flows:
            return load
        rows = self._rows(flows)
        held = self.network.beta_s_per_byte[rows] * np.array([flow[2] for flow in flows])
        np.add.at(load, rows, held)
        flow, port = self.network.ports_along(rows)
        np.add.at(load, self.network.links + port, held[flow])
        return load

    def _most(self, load: Floats, flows: Sequence[_Flow]) -> float:
        """Return the largest load of a link or port that ``flows`` use."""
        if not flows:
            return 0.0
        rows = self._rows(flows)
        ports = self.network.links + self.network.ports_along(rows)[1]
        return float(max(load[rows].max(), load[ports].max(initial=0.0)))


def _tree(order: Sequence[int]) -> list[tuple[int, int]]:
    """Return (child, parent) edges of a binary tree: place 0 is the root, odd places are leaves."""
    edges = []
    for place in range(1, len(order)):
        bit = place & -place
        above = place - bit
        parent = above | 2 * bit
        edges.append((order[place], order[parent if parent < len(order) else above]))
    return edges
