"""Trivance: rings and tori in steps of both directions at once (Jürß, Addanki, Schmid; arXiv 2602.17254).

In each step of a ring, every rank exchanges with one rank on either side, and adds up both. So each rank's
window, the ranks whose sum it has, grows threefold, and a ring of n ranks takes ⌈log₃ n⌉ steps at distances
1, 3, 9 … The distance of the last step is at most half of what is left of the ring.

The latency-optimal algorithm exchanges the sums of whole windows. In the last step ranks may send only the
part of their windows that is still missing, because each keeps the summands. The bandwidth-optimal algorithm
is a reduce_scatter and an all_gather by the same steps. The all_gather takes the farthest step first, while
ranks have little to send.

On a torus the axes take turns, and chunks begin at different axes, so that all links of a rank work at once.
The exchange of windows finishes one axis before it begins the next.

A message over several hops needs a link of its own, whose ports are the wires on the way. Where ranks are
linked to their neighbours alone, the message stops at every rank on its way, and each keeps what it needs.
Windows then grow by a rank on either side, and the bandwidth-optimal algorithm is the bidirectional ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import NamedTuple

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
    shared_sums,
    step_trees,
    summed_axes,
)

__all__ = ["chunk_counts", "synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_gather, reduce_scatter or all_reduce on a ring or torus.

    An all_reduce in few chunks is latency-optimal, in many bandwidth-optimal. In between, some axes are
    summed up, and windows are exchanged along the others. Raises NotApplicableError for other collectives,
    and if a rank has no link to a neighbour along an axis. O(ranks · chunks) sends; times the number of steps
    in exchanges of windows.
    """
    if collective.kind not in ("all_gather", "reduce_scatter", "all_reduce") or not collective.whole:
        raise NotApplicableError(f"trivance does not serve {collective.label}")
    grid = _torus(network, link_table(network, chunk_bytes))
    return _Job(network, collective, chunk_bytes, seed, grid).schedule()


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer of an all_reduce."""
    grid = next(grids(network))
    return shared_sums.chunk_counts(grid, len(grid.ways(mirrored=True)))


def _torus(network: Network, table: Ints) -> Grid:
    """Return the coordinates of the ranks; raise NotApplicableError if this is no ring and no torus."""
    rank = np.arange(network.ranks)
    for grid in grids(network):
        neighbours = (grid.moved(axis, by) for axis in range(len(grid.sizes)) for by in (1, -1))
        if network.ranks > 1 and all((table[rank, to] >= 0).all() for to in neighbours):
            return grid
    raise NotApplicableError(
        "trivance is for rings and tori, whose ranks are linked to both neighbours along every axis: "
        f"{network.name} is none, or its ranks are not numbered along its axes"
    )


class _Piece(NamedTuple):
    """A part of a window that a rank receives: the sum over offsets ``first`` to ``last`` of the sender.

    The sender is ``away`` places farther along the axis.
    """

    away: int
    first: int
    last: int


@lru_cache(maxsize=64)
def _growth(size: int, factor: int) -> tuple[tuple[_Piece, ...], ...]:
    """Return for each step what every rank of a ring of ``size`` receives, until it has all contributions.

    A window of w ranks grows by up to w ranks on either side, or by one if ``factor`` is 1.
    """
    steps: list[tuple[_Piece, ...]] = []
    parts = [(0, 0)]
    while (width := parts[-1][1] - parts[0][0] + 1) < size:
        more = min(2 * (width if factor > 1 else 1), size - width)
        low, high = parts[0][0], parts[-1][1]
        lower = _cover(parts, low - more // 2, low - 1, size)
        upper = _cover(parts, high + 1, high + more - more // 2, size)
        steps.append((*lower, *upper))
        received = [(piece.away + piece.first, piece.away + piece.last) for piece in steps[-1]]
        parts = sorted([*parts, *received])
    return tuple(steps)


def _cover(parts: Sequence[tuple[int, int]], first: int, last: int, size: int) -> list[_Piece]:
    """Return the fewest pieces found that cover offsets ``first`` to ``last``, each from the nearest sender.

    Every rank can send the sum of any consecutive ``parts`` that it has.
    """
    runs = [(one[0], other[1]) for at, one in enumerate(parts) for other in parts[at:]]
    found = []
    while first <= last:
        width = max(high - low + 1 for low, high in runs if high - low <= last - first)
        alike = [(first - low, low, high) for low, high in runs if high - low + 1 == width]
        piece = _Piece(*min(alike, key=lambda one: (min(one[0] % size, -one[0] % size), one)))
        found.append(piece)
        first += width
    return found


def _distances(size: int) -> list[int]:
    """Return the distance of each step on a ring of ``size``."""
    found, width = [], 1
    while width < size:
        found.append(min(width, (size - width + 1) // 2))
        width *= 3
    return found


@dataclass(frozen=True)
class _Job:
    """The request for one schedule; the chunks of each owner, or all chunks, begin at the axes in turn."""

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
        """The axes, in turn and both ways round, along which the chunks go."""
        return self.grid.ways(mirrored=True)

    def schedule(self) -> Schedule:
        """Return the bandwidth-optimal schedule, or the latency-optimal one if the chunks are too few."""
        chunks, ways = self.collective.chunks, len(self.ways)
        if self.collective.kind != "all_reduce" or chunks >= self.network.ranks * ways:
            return self._by_trees()
        try:
            return self._by_windows(3)
        except NotApplicableError:
            return self._by_windows(1)

    def _by_trees(self) -> Schedule:
        network = self.network
        sends = Sends()
        owner, lap = self.collective.owner_of()
        for number, (axes, mirrored) in enumerate(self.ways):
            trees = self._trees(axes, mirrored)
            mine = np.flatnonzero(lap % len(self.ways) == number)
            turn = lap[mine] // len(self.ways)
            if self.collective.reduces:
                trees.add(sends, self.table, mine, owner[mine], REDUCE, turn, "trivance")
                turn = turn + trees.moments
            if self.collective.kind != "reduce_scatter":
                trees.add(sends, self.table, mine, owner[mine], COPY, turn, "trivance")
        return sends.schedule(network, self.collective, self.chunk_bytes, "trivance", self.seed)

    def _trees(self, axes: Sequence[int], mirrored: bool) -> StepTrees:
        """Return the trees along these axes, which take turns; the farthest steps are the first."""
        distances = {axis: _distances(self.grid.sizes[axis]) for axis in axes}
        order = in_turn({axis: len(steps) for axis, steps in distances.items()})[::-1]
        moves = [self._moves(axis, distances[axis][step], mirrored) for axis, step in order]
        return step_trees(moves, self.network.ranks)

    def _moves(self, axis: int, distance: int, mirrored: bool) -> list[Indices]:
        """Return the moves both ways, each over one link if all ranks have it, else over all hops."""
        found = []
        for way in (-1, 1) if mirrored else (1, -1):
            hops = [self.grid.moved(axis, way * hop) for hop in range(distance + 1)]
            linked = (self.table[hops[0], hops[-1]] >= 0).all()
            found.append(np.stack([hops[0], hops[-1]] if linked else hops))
        return found

    def _by_windows(self, factor: int) -> Schedule:
        """Return an exchange of windows along all axes, or along some once the others are summed up.

        Windows grow by ``factor``, or by one rank on either side if it is 1.
        """
        growth = [_growth(size, factor) for size in self.grid.sizes]
        costs = [(len(steps), sum(map(len, steps))) for steps in growth]
        summed = summed_axes(
            self.network, self.grid, self.collective.chunks, self.chunk_bytes, len(self.ways), costs
        )
        sums = SharedSums(self.network, self.grid, self.table, "trivance", SendsOfParts())
        plans = [
            (
                axes[:summed],
                self._trees(axes[:summed], mirrored) if summed else None,
                partial(self._exchange, sums, axes[summed:], factor, mirrored),
            )
            for axes, mirrored in self.ways
        ]
        for chunk in range(self.collective.chunks):
            share, way = divmod(chunk, len(plans))
            sums.add(chunk, share, *plans[way])
        return sums.schedule(self.collective, self.chunk_bytes, self.seed)

    def _exchange(
        self, sums: SharedSums, axes: Sequence[int], factor: int, mirrored: bool, chunk: int, known: Known
    ) -> Known:
        """Add the exchanges of a chunk along one axis after the other, and return the rows of the result.

        If ``mirrored``, data that would come from lower places comes from higher places.
        """
        ranks = np.array(list(known))
        for axis in axes:
            # The rows of each part of each rank's window; at first all that a rank has is its own part.
            windows = {rank: {(0, 0): rows} for rank, rows in known.items()}
            for pieces in _growth(self.grid.sizes[axis], factor):
                received = []
                for away, low, high in pieces:
                    source = self.grid.moved(axis, -away if mirrored else away)[ranks]
                    parts = [
                        [
                            row
                            for (first, last), rows in windows[sender].items()
                            if low <= first and last <= high
                            for row in rows
                        ]
                        for sender in source.tolist()
                    ]
                    received.append(((away + low, away + high), sums.send(chunk, source, ranks, parts)))
                for part, rows in received:
                    for rank, row in zip(ranks.tolist(), rows, strict=True):
                        windows[rank][part] = [row]
            known = {rank: list(chain.from_iterable(window.values())) for rank, window in windows.items()}
        return known
