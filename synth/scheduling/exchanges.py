"""All_reduces by exchange: blocks of ranks send one another their sums, level by level.

With two blocks at a time this is recursive doubling; with every rank as a block of its own, all at once, it
is one-shot. Each sum takes the path on which it arrives first: directly, or through other ranks that also
need it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from probes.base import Floats, Indices, Ints, ints, offsets
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import distances_s, link_table
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import SendsOfParts

__all__ = ["Blocks", "Collect", "Exchange", "ExchangePlanner", "HandOut", "Step", "nearest_blocks"]

Blocks = list[list[int]]
"""Blocks of ranks; each rank is in exactly one."""
# The number of a rank's own part; rows of sends are numbered from 0.
_OWN = -1


@dataclass(frozen=True)
class Collect:
    """A step in which the contributions of ``block`` are summed up on their way to ``owner``."""

    block: list[int]
    owner: int

    @property
    def ranks(self) -> list[int]:
        return self.block


@dataclass(frozen=True)
class Exchange:
    """A step in which every block's sum goes to all ranks of the other blocks."""

    blocks: Blocks

    @property
    def ranks(self) -> list[int]:
        return [rank for block in self.blocks for rank in block]


@dataclass(frozen=True)
class HandOut:
    """A step in which the result goes from ``owner`` to all of ``block``."""

    owner: int
    block: list[int]

    @property
    def ranks(self) -> list[int]:
        return self.block


Step = Collect | Exchange | HandOut


class _Job(Protocol):
    """The transport of one sum; the ranks ``left`` still have to send it, or to receive it."""

    left: list[int]

    def soonest(self, free_s: Floats, travel_s: Floats) -> tuple[float, int, int, float]:
        """Return (arrival, source, target, time from which the source has it) of the send to arrive first."""
        ...


@dataclass(eq=False)
class _Running:
    """A step of one chunk that is being planned.

    ``before`` counts the unfinished steps that it waits for, ``jobs`` its own unfinished jobs. ``after`` are
    the steps that wait for it, ``brought`` is (target, row, arrival) of each of its sends.
    """

    chunk: int
    step: Step
    before: int = 0
    after: list[_Running] = field(default_factory=list)
    jobs: int = 0
    brought: list[tuple[int, int, float]] = field(default_factory=list)


class ExchangePlanner:
    """Planner of an all_reduce's sends; each send takes the link on which it is expected to arrive first."""

    def __init__(self, network: Network, chunks: int, chunk_bytes: int) -> None:
        ranks = network.ranks
        self.network, self.chunk_bytes = network, chunk_bytes
        table = link_table(network, chunk_bytes)
        self.link = table
        there = table >= 0
        self._travel_s = np.where(there, network.travel_s(chunk_bytes)[table], np.inf)
        self._hold_s = network.hold_s(chunk_bytes)
        self._port_hold_s = network.port_hold_s(chunk_bytes)
        # The time from which each pair's link is free, and the pairs whose links use each port.
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
        self._sends = SendsOfParts()

    @property
    def time_s(self) -> float:
        """The expected time at which the last rank has the result."""
        return float(self._ready_s.max())

    def plan(self, levels: Sequence[Sequence[Sequence[Step]]]) -> None:
        """Plan ``levels[chunk][level]``; a step waits for the steps of lower levels that share ranks with it.

        Among the possible sends of all steps and chunks, the one to arrive first is planned next. Raises
        NotApplicableError if a link is missing.
        """
        waiting = deque(
            run for chunk, own in enumerate(levels) for run in _in_order(chunk, own) if not run.before
        )
        # Keys are arrivals as last computed. Arrivals only get later, so recomputing the least is enough.
        heap: list[tuple[float, int, _Job, _Running]] = []
        number = 0
        while waiting or heap:
            while waiting:
                run = waiting.popleft()
                jobs = [job for job in self._jobs(run) if job.left]
                run.jobs = len(jobs)
                for job in jobs:
                    heapq.heappush(heap, (0.0, number, job, run))
                    number += 1
                if not jobs:
                    waiting.extend(self._finish(run))
            if not heap:
                break
            _, at, job, run = heap[0]
            arrival_s, source, target, since_s = job.soonest(self._free_s, self._travel_s)
            if arrival_s == np.inf:
                raise NotApplicableError(f"exchange needs a link to rank {target} from ranks that have a sum")
            if len(heap) > 1 and arrival_s > min(heap[1:3])[0]:
                heapq.heapreplace(heap, (arrival_s, at, job, run))
                continue
            self._carry(run, job, source, target, since_s)
            if job.left:
                heapq.heapreplace(heap, (arrival_s, at, job, run))
                continue
            heapq.heappop(heap)
            run.jobs -= 1
            if not run.jobs:
                waiting.extend(self._finish(run))

    def _jobs(self, run: _Running) -> list[_Job]:
        step, ready_s = run.step, self._ready_s[run.chunk]
        if isinstance(step, Collect):
            return [_Sum(step, self._travel_s, ready_s)]
        if isinstance(step, HandOut):
            return [_Spread([step.owner], [rank for rank in step.block if rank != step.owner], ready_s)]
        return [
            _Spread(
                block, [rank for at, one in enumerate(step.blocks) if at != turn for rank in one], ready_s
            )
            for turn, block in enumerate(step.blocks)
        ]

    def _carry(self, run: _Running, job: _Job, source: int, target: int, since_s: float) -> None:
        """Plan a send; targets add a collected sum at once, an exchanged one at the step's end."""
        known = self._known[run.chunk]
        if isinstance(job, _Spread):
            op = COPY if isinstance(run.step, HandOut) else REDUCE
            parts = job.brought.get(source, known[source])
            row, arrival_s = self._send(run.chunk, source, target, op, parts, since_s)
            # A copy overwrites the target's data and is forwarded unchanged.
            job.served(target, arrival_s, [row] if op == REDUCE else [])
            run.brought.append((target, row, arrival_s))
            return
        assert isinstance(job, _Sum)
        row, arrival_s = self._send(run.chunk, source, target, REDUCE, known[source], since_s)
        known[target] = [*known[target], row]
        job.served(source, target, arrival_s)
        run.brought.append((target, row, arrival_s))

    def _finish(self, run: _Running) -> list[_Running]:
        """Apply the arrivals of a finished step, and return the steps that waited only for it."""
        known, ready_s = self._known[run.chunk], self._ready_s[run.chunk]
        for rank, row, arrival_s in run.brought:
            if isinstance(run.step, Exchange):
                known[rank] = [*known[rank], row]
            ready_s[rank] = max(ready_s[rank], arrival_s)
        for later in run.after:
            later.before -= 1
        return [later for later in run.after if not later.before]

    def schedule(self, collective: Collective, method: str, seed: int) -> Schedule:
        """Return the sends in the order of their starts."""
        return self._sends.schedule(self.network, collective, self.chunk_bytes, method, seed)

    def _send(
        self, chunk: int, source: int, target: int, op: int, parts: list[int], since_s: float
    ) -> tuple[int, float]:
        ranks, network = self.network.ranks, self.network
        pair, link = source * ranks + target, int(self.link[source, target])
        begin_s = max(since_s, float(self._free_s[pair]))
        self._free_s[pair] = max(self._free_s[pair], begin_s + self._hold_s[link])
        for at in range(network.link_port_start[link], network.link_port_start[link + 1]):
            users = self._pairs_of_port[network.link_port[at]]
            self._free_s[users] = np.maximum(self._free_s[users], begin_s + self._port_hold_s[at])
        row = self._sends.add(chunk, link, op, parts)
        return row, begin_s + float(self._travel_s[source, target])


class _Spread:
    """The spreading of one sum: its holders, since when each holds it, and the ranks still to reach."""

    def __init__(self, block: list[int], others: list[int], ready_s: Floats) -> None:
        self.held, self.held_s = list(block), ready_s[block].tolist()
        self.left = list(others)
        self.brought: dict[int, list[int]] = {}
        # The pairs of a holder and a rank to reach, since when each holder holds it, and the times of travel.
        self._pairs: tuple[Indices, Floats, Floats] | None = None

    def soonest(self, free_s: Floats, travel_s: Floats) -> tuple[float, int, int, float]:
        """Return (arrival, source, target, time from which the source has it) of the send to arrive first."""
        if self._pairs is None:
            pairs = np.array(self.held)[:, None] * len(travel_s) + np.array(self.left)
            self._pairs = pairs, np.array(self.held_s)[:, None], travel_s.ravel()[pairs]
        pairs, since_s, takes_s = self._pairs
        comes_s = free_s[pairs]
        np.maximum(comes_s, since_s, out=comes_s)
        comes_s += takes_s
        at, to = divmod(int(comes_s.argmin()), len(self.left))
        return float(comes_s[at, to]), self.held[at], self.left[to], self.held_s[at]

    def served(self, target: int, arrival_s: float, brought: list[int]) -> None:
        self._pairs = None
        self.left.remove(target)
        self.held.append(target)
        self.held_s.append(arrival_s)
        self.brought[target] = brought


class _Sum:
    """The contributions of a block on their way to its owner, along a shortest path tree."""

    def __init__(self, step: Collect, travel_s: Floats, ready_s: Floats) -> None:
        self.left = [rank for rank in step.block if rank != step.owner]
        self._towards: dict[int, int] = {}
        self._waits = dict.fromkeys(step.block, 0)
        self._ready_s = {rank: float(ready_s[rank]) for rank in step.block}
        way_s = np.full(len(travel_s), np.inf)
        way_s[step.owner] = 0.0
        outside, inside = list(self.left), [step.owner]
        while outside:
            cost_s = travel_s[np.ix_(outside, inside)] + way_s[inside]
            at, to = np.unravel_index(int(np.argmin(cost_s)), cost_s.shape)
            rank, target = outside[at], inside[to]
            if cost_s[at, to] == np.inf:
                raise NotApplicableError(f"exchange needs links within the block of rank {rank}")
            way_s[rank], self._towards[rank] = cost_s[at, to], target
            self._waits[target] += 1
            outside.pop(at)
            inside.append(rank)

    def soonest(self, free_s: Floats, travel_s: Floats) -> tuple[float, int, int, float]:
        """Return the send to arrive first, as `_Job` does, from ranks that wait for no contribution."""
        found = (math.inf, -1, -1, 0.0)
        for rank in self.left:
            if self._waits[rank]:
                continue
            target, since_s = self._towards[rank], self._ready_s[rank]
            begin_s = max(since_s, float(free_s[rank * len(travel_s) + target]))
            arrival_s = begin_s + float(travel_s[rank, target])
            if arrival_s < found[0]:
                found = (arrival_s, rank, target, since_s)
        return found

    def served(self, source: int, target: int, arrival_s: float) -> None:
        self.left.remove(source)
        self._waits[target] -= 1
        self._ready_s[target] = max(self._ready_s[target], arrival_s)


def _in_order(chunk: int, levels: Sequence[Sequence[Step]]) -> list[_Running]:
    """Return the steps of a chunk; each waits for the last step of a lower level at any of its ranks."""
    found: list[_Running] = []
    last: dict[int, _Running] = {}
    for level in levels:
        runs = [_Running(chunk, step) for step in level]
        for run in runs:
            for before in {id(last[rank]): last[rank] for rank in run.step.ranks if rank in last}.values():
                before.after.append(run)
                run.before += 1
        for run in runs:
            last |= dict.fromkeys(run.step.ranks, run)
        found += runs
    return found


def nearest_blocks(network: Network, chunk_bytes: int, used: list[Floats]) -> list[Blocks]:
    """Return levels of blocks, from single ranks to all; each level pairs the nearest blocks of the last.

    Blocks of different hosts are paired only when each host is one block. ``used[level]`` counts how often
    each link was taken at that level; each use makes the link longer by a chunk's hold time. This call adds
    the links of its own levels to ``used``. Raises NotApplicableError if links do not join the ranks.
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
    """Return the host of each block; 0 for all if each host is one block, or with one host."""
    number = {host: at for at, host in enumerate(dict.fromkeys(network.hosts))}
    hosts = ints([number[network.hosts[block[0]]] for block in blocks])
    return hosts if len(blocks) > len(number) > 1 else ints(np.zeros(len(blocks)))


def _paired(blocks: Blocks, distance_s: Floats, table: Ints, used: Floats, hosts: Ints) -> Blocks:
    order, start = np.concatenate([np.asarray(block) for block in blocks]), offsets(list(map(len, blocks)))
    nearest = np.minimum.reduceat(distance_s[order], start[:-1], axis=0)[:, order]
    farthest = np.maximum.reduceat(nearest, start[:-1], axis=1)
    cost = np.maximum(farthest, farthest.T)
    if not np.isfinite(cost).all():
        raise NotApplicableError("exchange needs a path from every rank to every other")
    # Round the lengths: sums of equal link times, added up in another order, differ in the last bits.
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
