"""Trivance: rings and tori in steps of both directions at once (Jürß, Addanki, Schmid; arXiv 2602.17254).

In each step of a ring, every rank exchanges with one rank on either side, and adds up both. So the window of
ranks whose sum it has grows threefold, and a ring of n ranks takes ⌈log₃ n⌉ steps at distances 1, 3, 9 … The
last step is as far as the rest of the ring is wide.

The latency-optimal algorithm exchanges the sums of whole windows. If the window that is left is narrower than
those that ranks have, they send a part of theirs, as each keeps the summands. The bandwidth-optimal algorithm
is a reduce_scatter and an all_gather by the same steps. The all_gather takes the farthest step first, while
ranks have little to send.

On a torus the axes take turns, and chunks begin at different axes, so that all links of a rank work at once.
The exchange of windows finishes one axis before it begins the next.

A message over several hops needs a link of its own, whose ports are the wires that it passes. Where ranks are
linked to their neighbours alone, it stops at every rank on its way, which keeps what it needs. Windows then
grow by a rank on either side, and the bandwidth-optimal algorithm is that of rings both ways round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Grid, Sends, SendsOfParts, grids, in_turn, justified, step_trees

__all__ = ["chunk_counts", "synthesize"]

# The row of a rank's own contribution among the addends of a send.
_OWN = -1
# All_reduces are tried with so many chunks for each axis, and with so many for each of its owners.
_LAPS = (1, 2, 4)
# Finer cuts with more sends than this are not tried.
_MOST_SENDS = 600_000


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_gather, reduce_scatter or all_reduce on a ring or torus.

    An all_reduce in fewer chunks than ranks is latency-optimal, in more chunks bandwidth-optimal. Raises
    NotApplicableError for other collectives, and unless each rank is linked to the next and to the one before
    along every axis. O(ranks · chunks) sends; in exchanges of windows times the number of steps.
    """
    if collective.kind not in ("all_gather", "reduce_scatter", "all_reduce") or not collective.whole:
        raise NotApplicableError(f"trivance does not serve {collective.label}")
    grid = _torus(network, link_table(network, chunk_bytes))
    job = _Job(network, collective, chunk_bytes, seed, grid)
    whole_sums = collective.kind == "all_reduce" and collective.chunks < network.ranks
    return job.by_windows() if whole_sums else job.by_trees()


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer of an all_reduce.

    They are a chunk for each axis of the torus, or one of every rank for each, and multiples of these.
    """
    axes = len(next(grids(network)).sizes)
    few = [axes * lap for lap in _LAPS]
    many = [network.ranks * count for count in few if 2 * network.ranks**2 * count <= _MOST_SENDS]
    return [*(count for count in few if count < network.ranks), *many]


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

    Every rank can send the sum of any consecutive ones of its ``parts``.
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
    """One schedule to make: the chunks of each owner, or all chunks, begin at the axes in turn."""

    network: Network
    collective: Collective
    chunk_bytes: int
    seed: int
    grid: Grid

    @cached_property
    def table(self) -> Ints:
        return link_table(self.network, self.chunk_bytes)

    def by_trees(self) -> Schedule:
        """Return the bandwidth-optimal algorithm."""
        network, kind, axes = self.network, self.collective.kind, len(self.grid.sizes)
        distances = [_distances(size) for size in self.grid.sizes]
        sends = Sends()
        owner, lap = self.collective.owner_of()
        # Ranks that are equally far both ways are reached one way by some chunks, the other way by others.
        for variant in range(2 * axes):
            order = in_turn(list(map(len, distances)), variant % axes)[::-1]
            ways = (1, -1) if variant < axes else (-1, 1)
            moves = [self._moves(axis, distances[axis][step], ways) for axis, step in order]
            trees = step_trees(moves, network.ranks)
            mine = np.flatnonzero(lap % (2 * axes) == variant)
            turn = lap[mine] // axes
            if self.collective.reduces:
                trees.add(sends, self.table, mine, owner[mine], REDUCE, turn, "trivance")
                turn = turn + trees.moments
            if kind != "reduce_scatter":
                trees.add(sends, self.table, mine, owner[mine], COPY, turn, "trivance")
        return sends.schedule(network, self.collective, self.chunk_bytes, "trivance", self.seed)

    def _moves(self, axis: int, distance: int, ways: tuple[int, int]) -> list[Indices]:
        """Return the moves both ways, each over one link if all ranks have it, else over all hops."""
        found = []
        for way in ways:
            hops = [self.grid.moved(axis, way * hop) for hop in range(distance + 1)]
            linked = (self.table[hops[0], hops[-1]] >= 0).all()
            found.append(np.stack([hops[0], hops[-1]] if linked else hops))
        return found

    def by_windows(self) -> Schedule:
        """Return the latency-optimal algorithm, with windows that grow by one rank if links are missing."""
        try:
            return self._by_windows(3)
        except NotApplicableError:
            return self._by_windows(1)

    def _by_windows(self, factor: int) -> Schedule:
        """Return the exchange in which windows grow by ``factor``, or by one rank on either side for 1."""
        axes, ranks = len(self.grid.sizes), range(self.network.ranks)
        # For each chunk and rank: the rows of sends that brought each part of its window.
        known = [[{(0, 0): [_OWN]} for _ in ranks] for _ in range(self.collective.chunks)]
        sends = SendsOfParts()
        plans = [
            [
                (axis, pieces)
                for axis in [*range(first, axes), *range(first)]
                for pieces in [*_growth(self.grid.sizes[axis], factor), None]
            ]
            for first in range(axes)
        ]
        for step in range(len(plans[0])):
            for chunk, windows in enumerate(known):
                axis, pieces = plans[chunk % axes][step]
                if pieces is None:
                    # The axis is done: all that a rank has counts as its own along the next one.
                    known[chunk] = [{(0, 0): list(chain.from_iterable(one.values()))} for one in windows]
                else:
                    self._exchange(sends, chunk, windows, axis, pieces, mirrored=chunk // axes % 2 > 0)
        made = sends.schedule(self.network, self.collective, self.chunk_bytes, "trivance", self.seed)
        return justified(made)

    def _exchange(
        self,
        sends: SendsOfParts,
        chunk: int,
        windows: list[dict[tuple[int, int], list[int]]],
        axis: int,
        pieces: Sequence[_Piece],
        *,
        mirrored: bool,
    ) -> None:
        """Add the sends of one step of a chunk, and add what they bring to the ``windows`` of all ranks.

        If ``mirrored``, what would come from below comes from above.
        """
        brought = []
        for piece in pieces:
            source = self.grid.moved(axis, -piece.away if mirrored else piece.away)
            link = links_between(self.table, source, np.arange(len(source)), "trivance").tolist()
            rows = []
            for rank, sender in enumerate(source.tolist()):
                parts = [
                    row
                    for (first, last), held in windows[sender].items()
                    if piece.first <= first and last <= piece.last
                    for row in held
                ]
                rows.append(sends.add(chunk, link[rank], REDUCE, parts))
            brought.append(((piece.away + piece.first, piece.away + piece.last), rows))
        for part, rows in brought:
            for rank, row in enumerate(rows):
                windows[rank][part] = [row]
