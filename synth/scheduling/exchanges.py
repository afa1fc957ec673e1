"""All_reduces by exchange: blocks of ranks that hold their own sum send it to one another, level by level.

Recursive doubling is this with two blocks at a time; one-shot with every rank as a block of its own, all
at once. Each sum takes the way on which it comes first: straight, or through ranks that want it, too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from probes.columns import Floats, Ints, bytes_of, ints, offsets
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks.shortest_paths import distances_s
from synth.networks.subnetwork import link_table
from synth.schedule import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import in_start_order

__all__ = ["Blocks", "Exchanges", "nearest_blocks"]

Blocks = list[list[int]]
"""All ranks, each in one block."""
_OWN = -1


class Exchanges:
    """Collects the sends of an all_reduce; each takes the link on which it is expected to arrive first."""

    def __init__(self, network: Network, chunks: int, chunk_bytes: int) -> None:
        ranks = network.ranks
        self.network, self.chunk_bytes = network, chunk_bytes
        table = link_table(network, chunk_bytes)
        self.link = table
        there = table >= 0
        self._travel_s = np.where(there, network.travel_s(chunk_bytes)[table], np.inf)
        self._hold_s = network.hold_s(chunk_bytes)
        self._port_hold_s = network.port_hold_s(chunk_bytes)
        # When each pair's link can take a send next, and which pairs a port is on the way of.
        self._free_s = np.zeros(ranks * ranks)
        pair = np.full(network.links, -1)
        pair[table[there]] = np.flatnonzero(there)
        users = pair[network.port_user]
        order = np.argsort(network.link_port, kind="stable")
        start = offsets(np.bincount(network.link_port, minlength=len(network.ports)))
        self._pairs_of_port = [
            users[order[low:high]][users[order[low:high]] >= 0]
            for low, high in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        ]
        self._ready_s = np.zeros((chunks, ranks))
        self._known: list[list[list[int]]] = [[[_OWN] for _ in range(ranks)] for _ in range(chunks)]
        self._rows: list[tuple[int, int, int]] = []
        self._addends: list[list[int]] = []

    @property
    def time_s(self) -> float:
        """When the last rank is expected to have all."""
        return float(self._ready_s.max())

    def exchange(self, chunk: int, nodes: Sequence[Blocks], ranks: frozenset[int] | None = None) -> None:
        """In each node every block's sum of ``chunk`` goes to all ranks of the other blocks.

        Of each block only ``ranks`` take part, if they are given. Raises NotApplicableError where no links
        lead from a block to another within their node.
        """
        known = [list(one) for one in self._known[chunk]]
        ready_s = self._ready_s[chunk].copy()
        spreads = []
        for blocks in nodes:
            taking_part = [_among(block, ranks) for block in blocks]
            for turn, block in enumerate(taking_part):
                others = [rank for at, one in enumerate(taking_part) if at != turn for rank in one]
                spreads.append(_Spread(block, others, ready_s))
        for rank, row, arrival_s in self._carry_out(chunk, spreads, REDUCE):
            known[rank].append(row)
            ready_s[rank] = max(ready_s[rank], arrival_s)
        self._known[chunk], self._ready_s[chunk] = known, ready_s

    def collect(self, chunk: int, block: list[int], owner: int) -> None:
        """The contributions of ``block`` to ``chunk`` are summed up on their way to ``owner``."""
        way_s = np.full(self.network.ranks, np.inf)
        way_s[owner] = 0.0
        towards: dict[int, int] = {}
        left = [rank for rank in block if rank != owner]
        inside = [owner]
        while left:
            cost_s = self._travel_s[np.ix_(left, inside)] + way_s[inside]
            at, to = np.unravel_index(int(np.argmin(cost_s)), cost_s.shape)
            rank, next_one = left[at], inside[to]
            if cost_s[at, to] == np.inf:
                raise NotApplicableError(f"exchange needs links within the block of rank {rank}")
            way_s[rank], towards[rank] = cost_s[at, to], next_one
            left.pop(at)
            inside.append(rank)
        for rank in reversed(inside[1:]):
            target = towards[rank]
            row, arrival_s = self._send(chunk, rank, target, REDUCE, self._known[chunk][rank])
            self._known[chunk][target] = [*self._known[chunk][target], row]
            self._ready_s[chunk, target] = max(self._ready_s[chunk, target], arrival_s)

    def hand_out(self, chunk: int, owner: int, block: list[int]) -> None:
        """The result of ``chunk`` goes from ``owner`` to all of ``block``."""
        others = [rank for rank in block if rank != owner]
        spread = _Spread([owner], others, self._ready_s[chunk])
        for rank, _, arrival_s in self._carry_out(chunk, [spread], COPY):
            self._ready_s[chunk, rank] = max(self._ready_s[chunk, rank], arrival_s)

    def schedule(self, collective: Collective, method: str, seed: int) -> Schedule:
        """The sends in the order in which they start."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 3)
        flat = [part for parts in self._addends for part in parts]
        return in_start_order(
            Schedule(
                self.network,
                collective,
                self.chunk_bytes,
                method,
                seed,
                ints(table[:, 0]),
                ints(table[:, 1]),
                bytes_of(table[:, 2]),
                addend_start=ints(offsets([len(parts) for parts in self._addends])),
                addend=ints(flat),
            )
        )

    def _carry_out(self, chunk: int, spreads: list[_Spread], op: int) -> list[tuple[int, int, float]]:
        """(rank, row, arrival) of all sends, of which the one that arrives first always goes first."""
        found = []
        # Links are only ever taken later than was thought, so the soonest of what was thought is looked at.
        heap = [(0.0, at) for at, spread in enumerate(spreads) if spread.left]
        while heap:
            at = heap[0][1]
            spread = spreads[at]
            thought_s, source, target, since_s = spread.soonest(self._free_s, self._travel_s)
            if thought_s == np.inf:
                raise NotApplicableError(f"exchange needs a link to rank {target} from ranks that have a sum")
            if len(heap) > 1 and thought_s > min(heap[1:3])[0]:
                heapq.heapreplace(heap, (thought_s, at))
                continue
            parts = spread.brought.get(source, self._known[chunk][source])
            row, arrival_s = self._send(chunk, source, target, op, parts, since_s)
            # What was overwritten is passed on as it is.
            spread.served(target, arrival_s, [row] if op == REDUCE else [])
            found.append((target, row, arrival_s))
            heapq.heappop(heap)
            if spread.left:
                heapq.heappush(heap, (thought_s, at))
        return found

    def _send(
        self, chunk: int, source: int, target: int, op: int, parts: list[int], since_s: float | None = None
    ) -> tuple[int, float]:
        ranks, network = self.network.ranks, self.network
        pair, link = source * ranks + target, int(self.link[source, target])
        ready_s = float(self._ready_s[chunk, source]) if since_s is None else since_s
        begin_s = max(ready_s, float(self._free_s[pair]))
        self._free_s[pair] = max(self._free_s[pair], begin_s + self._hold_s[link])
        for at in range(network.link_port_start[link], network.link_port_start[link + 1]):
            users = self._pairs_of_port[network.link_port[at]]
            self._free_s[users] = np.maximum(self._free_s[users], begin_s + self._port_hold_s[at])
        self._rows.append((chunk, link, op))
        self._addends.append(list(parts))
        return len(self._rows) - 1, begin_s + float(self._travel_s[source, target])


class _Spread:
    """One sum on its way: which ranks have it and since when, and which are left."""

    def __init__(self, block: list[int], others: list[int], ready_s: Floats) -> None:
        self.held, self.held_s = list(block), ready_s[block].tolist()
        self.left = list(others)
        self.brought: dict[int, list[int]] = {}

    def soonest(self, free_s: Floats, travel_s: Floats) -> tuple[float, int, int, float]:
        """(arrival, source, target, since when the source has it) of the send that would arrive first."""
        pairs = np.asarray(self.held)[:, None] * len(travel_s) + np.asarray(self.left)
        comes_s = np.maximum(free_s[pairs], np.asarray(self.held_s)[:, None])
        comes_s += travel_s.ravel()[pairs]
        at, to = divmod(int(np.argmin(comes_s)), len(self.left))
        return float(comes_s[at, to]), self.held[at], self.left[to], self.held_s[at]

    def served(self, target: int, arrival_s: float, brought: list[int]) -> None:
        self.left.remove(target)
        self.held.append(target)
        self.held_s.append(arrival_s)
        self.brought[target] = brought


def _among(block: list[int], ranks: frozenset[int] | None) -> list[int]:
    return block if ranks is None else [rank for rank in block if rank in ranks]


def nearest_blocks(network: Network, chunk_bytes: int, used: list[Floats]) -> list[Blocks]:
    """Levels of blocks, from single ranks to one of all; each pairs blocks of the one below, near ones first.

    Those of different hosts are only paired when each host is one block.
    ``used[level]`` counts how often each link was taken there, each of which makes it longer by what a
    chunk holds it; the links of these levels are added. Raises NotApplicableError where ranks are apart.
    """
    travel_s, hold_s = network.travel_s(chunk_bytes), network.hold_s(chunk_bytes)
    table = link_table(network, chunk_bytes)
    plain_s: Floats | None = None
    levels: list[Blocks] = [[[rank] for rank in range(network.ranks)]]
    while len(levels[-1]) > 1:
        at = len(levels) - 1
        if at == len(used):
            used.append(np.zeros(network.links))
        if plain_s is None or used[at].any():
            distance_s = distances_s(network, travel_s + used[at] * hold_s, np.arange(network.ranks))
            plain_s = distance_s if not used[at].any() else plain_s
        else:
            distance_s = plain_s
        levels.append(_paired(levels[-1], distance_s, table, used[at], _hosts_of(network, levels[-1])))
    return levels


def _hosts_of(network: Network, blocks: Blocks) -> Ints:
    """The host of each block, while a host has several of them; then all blocks are alike."""
    number = {host: at for at, host in enumerate(dict.fromkeys(network.hosts))}
    hosts = ints([number[network.hosts[block[0]]] for block in blocks])
    return hosts if len(blocks) > len(number) > 1 else ints(np.zeros(len(blocks)))


def _paired(blocks: Blocks, distance_s: Floats, table: Ints, used: Floats, hosts: Ints) -> Blocks:
    order, start = np.concatenate([np.asarray(block) for block in blocks]), offsets(list(map(len, blocks)))
    nearest = np.minimum.reduceat(distance_s[order], start[:-1], axis=0)[:, order]
    farthest = np.maximum.reduceat(nearest, start[:-1], axis=1)
    cost = np.maximum(farthest, farthest.T)
    if not np.isfinite(cost).all():
        raise NotApplicableError("exchange needs ways from every rank to every other")
    # Ways of equal links are equally long, however they were added up.
    one, other = np.triu_indices(len(blocks), 1)
    long = cost[one, other]
    rough = np.round(long / max(float(long.min()), math.ulp(1.0)), 6)
    free = np.ones(len(blocks), bool)
    found: dict[int, list[int]] = {}
    for at in np.lexsort((other, one, rough)).tolist():
        first, second = int(one[at]), int(other[at])
        if free[first] and free[second] and hosts[first] == hosts[second]:
            free[[first, second]] = False
            found[first] = blocks[first] + blocks[second]
            for source, target in ((first, second), (second, first)):
                among = distance_s[np.ix_(blocks[source], blocks[target])].argmin(axis=0)
                links = table[np.asarray(blocks[source])[among], blocks[target]]
                used[links[links >= 0]] += 1
    found |= {at: blocks[at] for at in np.flatnonzero(free).tolist()}
    return [found[at] for at in sorted(found)]
