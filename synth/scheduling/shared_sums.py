"""All_reduces on a grid that sum up along some axes, exchange sums along the others, and hand results out.

With no axis summed, ranks exchange their whole buffers; with more axes, smaller shares. So hops are traded
for bytes (van de Geijn's hybrids).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import distances_s, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.block_exchange import least_bandwidth
from synth.scheduling.justification import justified
from synth.scheduling.list_scheduling import SendsOfParts
from synth.scheduling.step_trees import Grid, StepTrees

__all__ = ["Known", "SharedSums", "chunk_counts", "pays", "suits", "summed_axes", "trees_pay"]

# The most ranks for which auto tries these methods.
_MOST_RANKS = 256
# The row of a rank's own contribution among the addends of a send.
_OWN = -1

# The largest buffers for which these methods may win, by exchange and by reduce_scatter and all_gather. The
# unit is the bytes that a rank receives during the latency to the farthest rank (benchmarks/sizes.py on
# torus:4x4x4 and torus:8x8; benchmarks/published_and_ours.py trivance).
_MOST_BYTES, _MOST_BYTES_OF_TREES = 0.6, 8.0
# The numbers of chunks tried for each way, and for each way and rank; the most sends of the latter.
_FEW, _LAPS, _MOST_SENDS = (1, 4), (1, 2, 4), 600_000

Known = dict[int, list[int]]
"""The rows that make up the sum at each rank that takes part in an exchange."""


def suits(network: Network, collective: Collective) -> bool:
    """Return whether this is an all_reduce on a grid of few enough ranks that are not all linked."""
    if collective.kind != "all_reduce" or not collective.whole or network.queues:
        return False
    return 4 <= network.ranks <= _MOST_RANKS and network.links < network.ranks * (network.ranks - 1)


def pays(network: Network, collective: Collective, chunk_bytes: int) -> bool:
    """Return whether the buffer is so short that latency counts about as much as its bytes."""
    return _over_latency(network, collective, chunk_bytes) <= _MOST_BYTES


def trees_pay(network: Network, collective: Collective, chunk_bytes: int) -> bool:
    """Return the same as `pays`; with at least a chunk a rank, longer buffers pay, too."""
    most = _MOST_BYTES_OF_TREES if collective.chunks >= network.ranks else _MOST_BYTES
    return _over_latency(network, collective, chunk_bytes) <= most


def _over_latency(network: Network, collective: Collective, chunk_bytes: int) -> float:
    """Return the buffer's bytes over the bytes that a rank receives during the longest latency."""
    farthest_s = float(distances_s(network, network.alpha_s, np.zeros(1, np.int64)).max())
    passing = farthest_s * least_bandwidth(network)
    return collective.chunks * chunk_bytes / passing if passing else math.inf


def summed_axes(
    network: Network, grid: Grid, chunks: int, chunk_bytes: int, ways: int, costs: Sequence[tuple[int, int]]
) -> int:
    """Return the number of axes to sum up before the exchange that is expected to take least time.

    ``costs`` has, for each axis, (steps of an exchange along it, messages that a rank then receives). Every
    share needs a chunk of each of the ``ways``.
    """
    alpha_s, rate = float(np.median(network.alpha_s)), least_bandwidth(network)
    found = []
    for axes in range(len(grid.sizes)):
        shares = math.prod(grid.sizes[:axes])
        hops = sum(steps for steps, _ in costs) + sum(steps for steps, _ in costs[:axes])
        messages = 2 * (shares - 1) + sum(received for _, received in costs[axes:])
        if axes == 0 or chunks >= ways * math.prod(sorted(grid.sizes)[-axes:]):
            found.append((hops * alpha_s + messages / shares * chunks * chunk_bytes / rate, axes))
    return min(found)[1]


def chunk_counts(grid: Grid, ways: int) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer of an all_reduce, in ascending order.

    They are a few for each of the ``ways``, one for each way and share of some axes, and one or more for each
    way and rank.
    """
    ranks = math.prod(grid.sizes)
    few = {ways * lap for lap in _FEW}
    few |= {ways * math.prod(sorted(grid.sizes)[-axes:]) for axes in range(1, len(grid.sizes))}
    many = [ranks * ways * lap for lap in _LAPS if 2 * ranks**2 * ways * lap <= _MOST_SENDS]
    return [*sorted(count for count in few if count < ranks * ways), *many]


@dataclass(frozen=True)
class SharedSums:
    """Collector of the sends of an all_reduce, chunk by chunk."""

    network: Network
    grid: Grid
    table: Ints
    method: str
    sends: SendsOfParts

    def add(
        self,
        chunk: int,
        share: int,
        axes: Sequence[int],
        trees: StepTrees | None,
        exchange: Callable[[int, Known], Known],
    ) -> None:
        """Add a chunk: its sums along ``axes`` by ``trees``, ``exchange`` of these, and the way back.

        The ranks whose coordinates along the axes are the digits of ``share`` make the sums. ``exchange``
        takes the rows that each of these ranks has, and returns the rows of the result.

        Raises NotApplicableError if a tree needs a rank of another tree on the way, after that rank has sent
        its sum, or before it has the result.
        """
        owner: Indices = np.arange(self.network.ranks)
        for axis in axes:
            size = self.grid.sizes[axis]
            digit, share = share % size, share // size
            owner = self.grid.moved(axis, digit - self.grid.place(axis))[owner]
        known = {rank: [_OWN] for rank in range(self.network.ranks)}
        below = [] if trees is None else list(self._by_moments(trees, owner))
        for ranks, above in reversed(below):
            for rank, link in zip(ranks.tolist(), self._links(ranks, above), strict=True):
                row, parent = (
                    self.sends.add(chunk, link, REDUCE, known.pop(rank)),
                    int(self.network.dst[link]),
                )
                if parent not in known:
                    raise NotApplicableError(
                        f"{self.method}: the trees of several ranks cross at rank {parent}"
                    )
                known[parent].append(row)
        known = exchange(chunk, known)
        reached = set(known)
        for ranks, above in below:
            if lost := set(above.tolist()) - reached:
                raise NotApplicableError(
                    f"{self.method}: the trees of several ranks cross at rank {min(lost)}"
                )
            reached.update(ranks.tolist())
            for source, link in zip(above.tolist(), self._links(above, ranks), strict=True):
                # A copy replaces all that was there, and is passed on whole.
                self.sends.add(chunk, link, COPY, known.get(source, []))

    def send(self, chunk: int, src: Indices, dst: Indices, parts: Iterable[list[int]]) -> list[int]:
        """Add sends of sums, each with the rows it consists of, and return their rows."""
        links = self._links(src, dst)
        return [self.sends.add(chunk, link, REDUCE, rows) for link, rows in zip(links, parts, strict=True)]

    def _by_moments(self, trees: StepTrees, owner: Indices) -> Iterable[tuple[Indices, Indices]]:
        """Yield (ranks, their parents) in the order in which trees from the owners reach them."""
        rank = np.arange(len(owner))
        moment, parent = trees.moment[owner, rank], trees.parent[owner, rank]
        for at in range(trees.moments):
            ranks = np.flatnonzero(moment == at)
            yield ranks, parent[ranks]

    def _links(self, src: Indices, dst: Indices) -> list[int]:
        found: list[int] = links_between(self.table, src, dst, self.method).tolist() if len(src) else []
        return found

    def schedule(self, collective: Collective, chunk_bytes: int, seed: int) -> Schedule:
        made = self.sends.schedule(self.network, collective, chunk_bytes, self.method, seed)
        return justified(made)
