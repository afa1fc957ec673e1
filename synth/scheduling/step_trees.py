"""Trees that grow in steps: in each step, every rank that has the data sends it along the step's moves.

The trees of all owners together are a butterfly, such as recursive doubling. A step is a list of moves. A
move takes every rank to another rank, over one link or over several hops. Ranks on the way keep what passes
them, so every rank of a tree receives once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Indices, Ints
from synth.network import Network
from synth.networks import found_symmetry, links_between, shortest_paths
from synth.schedules import REDUCE
from synth.scheduling.list_scheduling import Sends

__all__ = ["Grid", "StepTrees", "grids", "in_turn", "routed", "step_trees"]


@dataclass(frozen=True)
class Grid:
    """Coordinates of the ranks: a rank is a number with digits of these bases, the lowest first."""

    sizes: tuple[int, ...]

    def moved(self, axis: int, by: int | Indices) -> Indices:
        """Return for each rank the rank whose coordinate along ``axis`` is higher by ``by``, cyclically."""
        rank = np.arange(math.prod(self.sizes))
        place = self.place(axis)
        return np.asarray(rank + ((place + by) % self.sizes[axis] - place) * self._stride(axis))

    def place(self, axis: int) -> Indices:
        """Return the coordinate of each rank along ``axis``."""
        rank = np.arange(math.prod(self.sizes))
        return np.asarray(rank // self._stride(axis) % self.sizes[axis])

    def ways(self, *, mirrored: bool) -> list[tuple[list[int], bool]]:
        """Return (order of the axes, whether mirrored): for each axis the order that begins with it.

        If ``mirrored``, each order comes twice, and the second one reaches ranks that are equally far both
        ways from the other side.
        """
        axes = range(len(self.sizes))
        return [
            ([*axes[first:], *axes[:first]], other)
            for other in ((False, True) if mirrored else (False,))
            for first in axes
        ]

    def _stride(self, axis: int) -> int:
        return math.prod(self.sizes[:axis])


def grids(network: Network) -> Iterator[Grid]:
    """Yield the grid of the network's translations if it has several axes, then all ranks on one line."""
    symmetry = found_symmetry(network)
    if symmetry is not None and len(symmetry.network.sizes) > 1:
        yield Grid(symmetry.network.sizes)
    yield Grid((network.ranks,))


def in_turn(steps: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (axis, step of this axis): the axes take turns, each for its number of ``steps``."""
    return [(axis, step) for step in range(max(steps.values())) for axis in steps if step < steps[axis]]


def routed(network: Network, table: Ints, to: Indices, chunk_bytes: int) -> Indices:
    """Return (hops + 1, ranks): where the data of each rank is at first, and after each hop to ``to[rank]``.

    Each rank takes one hop if links join all ranks to their targets, otherwise the hops of the fastest path;
    the end of a short path is repeated. Data for a rank that cannot be reached stays where it is.
    """
    rank = np.arange(network.ranks)
    if (table[rank, to] >= 0).all():
        return np.stack([rank, to])
    paths = shortest_paths(network.ranks, network.src, network.dst, network.travel_s(chunk_bytes))
    ways = [network.dst[paths.edges(source, target)] for source, target in enumerate(to.tolist())]
    found = np.tile(rank, (1 + max(map(len, ways)), 1))
    for source, way in enumerate(ways):
        found[1 : 1 + len(way), source] = way
        found[1 + len(way) :, source] = found[len(way), source]
    return found


@dataclass(frozen=True, eq=False)
class StepTrees:
    """The tree of each owner: ``parent[owner, rank]`` is -1 at the owner.

    ``moment[owner, rank]`` is the hop with which the rank receives, of ``moments`` hops of all steps.
    """

    parent: Indices
    moment: Indices
    moments: int

    def add(
        self, sends: Sends, table: Ints, chunk: Indices, owner: Indices, op: int, turn: Indices, method: str
    ) -> None:
        """Add sends of each chunk from its owner to all ranks, or of its sum to the owner (``REDUCE``).

        ``turn`` is the turn of the first send of each chunk. Raises NotApplicableError if a link is missing.
        """
        row, rank = np.nonzero(self.parent[owner] >= 0)
        root = owner[row]
        self._send(sends, table, chunk[row], root, rank, op, op == REDUCE, turn[row], method)

    def add_paths(
        self,
        sends: Sends,
        table: Ints,
        chunk: Indices,
        owner: Indices,
        rank: Indices,
        op: int,
        upwards: bool,
        turn: Indices,
        method: str,
    ) -> None:
        """Add sends of each chunk along its owner's tree to ``rank``, or from there to the owner.

        Raises NotApplicableError if a link is missing.
        """
        while len(chunk):
            away = rank != owner
            chunk, owner, rank, turn = chunk[away], owner[away], rank[away], turn[away]
            self._send(sends, table, chunk, owner, rank, op, upwards, turn, method)
            rank = self.parent[owner, rank]

    def _send(
        self,
        sends: Sends,
        table: Ints,
        chunk: Indices,
        owner: Indices,
        rank: Indices,
        op: int,
        upwards: bool,
        turn: Indices,
        method: str,
    ) -> None:
        """Add the send of each chunk between ``rank`` and its parent in the owner's tree."""
        above, moment = self.parent[owner, rank], self.moment[owner, rank]
        src, dst = (rank, above) if upwards else (above, rank)
        moment = self.moments - 1 - moment if upwards else moment
        sends.add(chunk, links_between(table, src, dst, method), op, turn + moment)


def step_trees(steps: Sequence[Sequence[Indices]], ranks: int) -> StepTrees:
    """Return the trees of all owners; ``steps`` lists the moves of each step, each as `routed` returns it.

    Where several moves of a step reach a rank, owners take the first or the last of them in turn, so that
    links share the load. O(hops · ranks²).
    """
    parent, moment = np.full((2, ranks, ranks), -1, np.int64)
    held, moments = np.eye(ranks, dtype=np.bool_), 0
    for moves in steps:
        all_owners, begin = np.nonzero(held)
        for hop in range(max(map(len, moves)) - 1):
            for turn in range(len(moves)):
                kind = (all_owners + turn) % len(moves)
                src, dst = (
                    np.choose(kind, [move[min(at, len(move) - 1)][begin] for move in moves])
                    for at in (hop, hop + 1)
                )
                new = ~held[all_owners, dst]
                owner = all_owners[new]
                parent[owner, dst[new]], moment[owner, dst[new]] = src[new], moments
                held[owner, dst[new]] = True
            moments += 1
    return StepTrees(parent, moment, moments)
