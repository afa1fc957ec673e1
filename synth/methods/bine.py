"""Bine trees: binomial trees and butterflies of negabinary distances (De Sensi and others, arXiv 2508.17311).

In step s of a butterfly, rank r exchanges with the rank at distance 1 − 2 + 4 − … ± 2^s: even ranks at
r + distance, odd ranks at r − distance. So each step goes the other way than the one before, and the
distances 1, 1, 3, 5, 11 are about two thirds of those of recursive doubling: neighbours in the numbering, and
so in the network, exchange more often. The tree of a rank is the way of its data through the butterfly with
the farthest step first. The tree of an odd rank is the mirror image of that of an even one.

On a grid, such as a torus, the axes take turns, and each axis has its own distances. Chunks start at
different axes, and in either direction, so that all links of a rank work at once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Grid, Sends, SendsOfParts, grids, in_turn, justified, routed, step_trees
from synth.simulation import replay

__all__ = ["chunk_counts", "synthesize"]

_SERVED = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
)
# The row of a rank's own contribution among the addends of a send.
_OWN = -1
# All_reduces are tried with so many chunks for each butterfly, and with so many for each of its owners.
_LAPS = (1, 2, 4)
# Finer cuts with more sends than this are not tried.
_MOST_SENDS = 600_000


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the faster of two schedules on 2^k ranks: over a line of all ranks, and over their grid.

    An all_reduce is a reduce_scatter and an all_gather, or in fewer chunks than ranks an exchange of whole
    sums. Where partners have no link, trees go through other ranks. Raises NotApplicableError for other
    collectives, other numbers of ranks, and if trees need a link back that is missing. O(ranks · chunks)
    sends, times k in exchanges, scatter, gather and all_to_all.
    """
    if collective.kind not in _SERVED or not collective.whole:
        raise NotApplicableError(f"bine does not serve {collective.label}")
    ranks = network.ranks
    if ranks < 2 or ranks & (ranks - 1):
        raise NotApplicableError(f"bine is for 2, 4, 8 … ranks; {network.name} has {ranks}")
    found: list[Schedule] = []
    reason = ""
    for grid in grids(network):
        job = _Job(network, collective, chunk_bytes, seed, _orders(network, grid))
        try:
            found.append(job.schedule())
        except NotApplicableError as error:
            reason = error.message
    if not found:
        raise NotApplicableError(reason)
    return min(found, key=lambda schedule: replay(schedule).time_s)


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer of an all_reduce.

    They are a chunk for each butterfly, or one of every rank for each, and multiples of these.
    """
    if network.ranks & (network.ranks - 1):
        return [1]
    ways = max(len(_orders(network, grid)) for grid in grids(network))
    few = [ways * lap for lap in _LAPS]
    many = [network.ranks * count for count in few if 2 * network.ranks**2 * count <= _MOST_SENDS]
    return [*(count for count in few if count < network.ranks), *many]


def _orders(network: Network, grid: Grid) -> list[list[Indices]]:
    """Return butterflies, each as the partner of every rank in each step, the nearest partners first.

    There is one for each axis to begin with, and if links share no ports a mirror image of each.
    """
    steps = [size.bit_length() - 1 for size in grid.sizes]
    found = []
    for mirrored in (False, True)[: 1 if network.ports else 2]:
        for first in range(len(steps)):
            order = []
            for axis, step in in_turn(steps, first):
                distance = (1 - (-2) ** (step + 1)) // 3
                sign = np.where(grid.place(axis) % 2 == mirrored, 1, -1)
                order.append(grid.moved(axis, sign * distance))
            found.append(order)
    return found


@dataclass(frozen=True)
class _Job:
    """A schedule to make: its butterflies take the chunks, or those of each owner, in turn."""

    network: Network
    collective: Collective
    chunk_bytes: int
    seed: int
    orders: list[list[Indices]]

    @cached_property
    def table(self) -> Ints:
        return link_table(self.network, self.chunk_bytes)

    def schedule(self) -> Schedule:
        if self.collective.kind == "all_reduce" and self.collective.chunks < self.network.ranks:
            with suppress(NotApplicableError):
                return self._by_exchange()
        return self._by_trees()

    def _by_trees(self) -> Schedule:
        """Return the schedule in which each chunk goes along the tree of its owner or root."""
        network, kind = self.network, self.collective.kind
        sends = Sends()
        owner, lap = self.collective.owner_of()
        source, target = self.collective.source_of(), self.collective.target_of()
        for number, order in enumerate(self.orders):
            steps = [[routed(network, self.table, to, self.chunk_bytes)] for to in reversed(order)]
            trees = step_trees(steps, network.ranks)
            mine = np.flatnonzero(lap % len(self.orders) == number)
            turn = lap[mine] // len(self.orders)
            if kind in ("scatter", "all_to_all"):
                trees.add_paths(
                    sends, self.table, mine, source[mine], target[mine], COPY, False, turn, "bine"
                )
                continue
            if kind == "gather":
                trees.add_paths(sends, self.table, mine, target[mine], source[mine], COPY, True, turn, "bine")
                continue
            if self.collective.reduces:
                trees.add(sends, self.table, mine, owner[mine], REDUCE, turn, "bine")
                turn = turn + trees.moments
            if kind not in ("reduce_scatter", "reduce"):
                trees.add(sends, self.table, mine, owner[mine], COPY, turn, "bine")
        return sends.schedule(network, self.collective, self.chunk_bytes, "bine", self.seed)

    def _by_exchange(self) -> Schedule:
        """Return the all_reduce in which partners exchange their whole sums."""
        ranks, chunks = self.network.ranks, self.collective.chunks
        sends = SendsOfParts()
        known = [[[_OWN] for _ in range(ranks)] for _ in range(chunks)]
        for step in range(len(self.orders[0])):
            for chunk, sums in enumerate(known):
                to = self.orders[chunk % len(self.orders)][step]
                link = links_between(self.table, np.arange(ranks), to, "bine").tolist()
                rows = [sends.add(chunk, link[rank], REDUCE, sums[rank]) for rank in range(ranks)]
                for rank, partner in enumerate(to.tolist()):
                    sums[partner].append(rows[rank])
        made = sends.schedule(self.network, self.collective, self.chunk_bytes, "bine", self.seed)
        return justified(made)
