"""Bine trees: binomial trees and butterflies of negabinary distances (De Sensi and others, arXiv 2508.17311).

In step s of a butterfly, rank r exchanges with the rank at distance 1 − 2 + 4 − … ± 2^s: even ranks at r +
distance, odd ranks at r − distance. So consecutive steps go in opposite directions, and the distances 1, 1,
3, 5, 11 are about two thirds of those of recursive doubling: neighbours in the numbering, and so in the
network, exchange more often. The tree of a rank is the way of its data through the butterfly with the
farthest step first. The tree of an odd rank is the mirror image of an even rank's tree.

On a grid, such as a torus, the axes take turns, and each axis has its own distances. Chunks start at
different axes, and in either direction, so that all links of a rank work at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import (
    Grid,
    Known,
    Sends,
    SendsOfParts,
    SharedSums,
    StepTrees,
    grids,
    in_turn,
    routed,
    shared_sums,
    step_trees,
    summed_axes,
)
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


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the faster of two schedules on 2^k ranks: over a line of all ranks, and over their grid.

    An all_reduce is a reduce_scatter and an all_gather. If there are too few chunks for these, ranks exchange
    sums along all axes, or sum up some axes and then exchange sums along the others. Where partners have no
    link, trees go through other ranks. Raises NotApplicableError for other collectives, for other numbers of
    ranks, and if a tree needs an opposite link that is missing. O(ranks · chunks) sends, times k in
    exchanges, scatter, gather and all_to_all.
    """
    if collective.kind not in _SERVED or not collective.whole:
        raise NotApplicableError(f"bine does not serve {collective.label}")
    ranks = network.ranks
    if ranks < 2 or ranks & (ranks - 1):
        raise NotApplicableError(f"bine is for 2, 4, 8 … ranks; {network.name} has {ranks}")
    found: list[Schedule] = []
    reason = ""
    for grid in grids(network):
        job = _Job(network, collective, chunk_bytes, seed, grid)
        try:
            found.append(job.schedule())
        except NotApplicableError as error:
            reason = error.message
    if not found:
        raise NotApplicableError(reason)
    return min(found, key=lambda schedule: replay(schedule).time_s)


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer of an all_reduce."""
    if network.ranks & (network.ranks - 1):
        return [1]
    grid = next(grids(network))
    return shared_sums.chunk_counts(grid, len(_ways(network, grid)))


def _ways(network: Network, grid: Grid) -> list[tuple[list[int], bool]]:
    """Return (axes, mirrored) of each butterfly; mirror images pay only if links share no ports."""
    return grid.ways(mirrored=not network.ports)


def _partners(grid: Grid, axes: Sequence[int], mirrored: bool) -> list[Indices]:
    """Return the partner of every rank in each step along these axes, the nearest partners first."""
    found = []
    for axis, step in in_turn({axis: grid.sizes[axis].bit_length() - 1 for axis in axes}):
        distance = (1 - (-2) ** (step + 1)) // 3
        sign = np.where(grid.place(axis) % 2 == mirrored, 1, -1)
        found.append(grid.moved(axis, sign * distance))
    return found


@dataclass(frozen=True)
class _Job:
    """The request for one schedule; its butterflies take the chunks, or each owner's chunks, in turn."""

    network: Network
    collective: Collective
    chunk_bytes: int
    seed: int
    grid: Grid

    @cached_property
    def table(self) -> Ints:
        return link_table(self.network, self.chunk_bytes)

    @cached_property
    def ways(self) -> list[tuple[list[int], bool]]:
        return _ways(self.network, self.grid)

    def schedule(self) -> Schedule:
        chunks = self.collective.chunks
        if self.collective.kind == "all_reduce" and chunks < self.network.ranks * len(self.ways):
            with suppress(NotApplicableError):
                steps = [size.bit_length() - 1 for size in self.grid.sizes]
                costs = list(zip(steps, steps, strict=True))
                return self._by_exchange(
                    summed_axes(self.network, self.grid, chunks, self.chunk_bytes, len(self.ways), costs)
                )
        return self._by_trees()

    def _trees(self, axes: Sequence[int], mirrored: bool) -> StepTrees:
        partners = _partners(self.grid, axes, mirrored)
        steps = [[routed(self.network, self.table, to, self.chunk_bytes)] for to in reversed(partners)]
        return step_trees(steps, self.network.ranks)

    def _by_trees(self) -> Schedule:
        """Return the schedule in which each chunk goes along the tree of its owner or root."""
        network, kind = self.network, self.collective.kind
        sends = Sends()
        owner, lap = self.collective.owner_of()
        source, target = self.collective.source_of(), self.collective.target_of()
        for number, way in enumerate(self.ways):
            trees = self._trees(*way)
            mine = np.flatnonzero(lap % len(self.ways) == number)
            turn = lap[mine] // len(self.ways)
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

    def _by_exchange(self, summed: int) -> Schedule:
        """Return the all_reduce in which partners exchange sums, after ``summed`` axes are summed up."""
        sums = SharedSums(self.network, self.grid, self.table, "bine", SendsOfParts())
        plans = [
            (
                axes[:summed],
                self._trees(axes[:summed], mirrored) if summed else None,
                partial(self._exchange, sums, _partners(self.grid, axes[summed:], mirrored)),
            )
            for axes, mirrored in self.ways
        ]
        for chunk in range(self.collective.chunks):
            share, way = divmod(chunk, len(plans))
            sums.add(chunk, share, *plans[way])
        return sums.schedule(self.collective, self.chunk_bytes, self.seed)

    def _exchange(self, sums: SharedSums, steps: Sequence[Indices], chunk: int, known: Known) -> Known:
        """Add the exchanges of a chunk's sums, and return the rows of the result at each rank."""
        for partner in steps:
            ranks = np.array(list(known))
            rows = sums.send(chunk, ranks, partner[ranks], [known[rank] for rank in ranks.tolist()])
            for to, row in zip(partner[ranks].tolist(), rows, strict=True):
                known[to] = [*known[to], row]
        return known
