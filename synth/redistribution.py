"""Redistribution: tensors that lie on some ranks in one layout move to other ranks or another layout.

A layout is a mesh of ranks and a placement for each axis of the mesh, which cuts tensors along one of their
axes or replicates them. This is the layout of PyTorch's DTensor, with the same uneven cuts: if n rows are cut
into k parts, each part has ceil(n / k) until none are left. Examples are M trainers that feed N generators,
tensor parallelism that changes its degree, and checkpoints that load on another mesh.

A box is a range of indices along each axis of a tensor. A target rank lacks the overlap of its box with each
source box that it does not hold. Overlaps with the same holders and the same lacking ranks travel as one
block, even from several tensors. Any holder may send the block, and all other ranks may relay it. Data that a
rank already holds stays there and does not appear in the plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from probes.base import UsageError
from synth.collective import of_blocks
from synth.errors import NotApplicableError
from synth.methods import direct
from synth.portfolio import CollectiveRequest, cut_request
from synth.rank_sets import of_sets
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = [
    "Box",
    "MeshLayout",
    "Moved",
    "Piece",
    "Redistribution",
    "direct_time_s",
    "overlap_of",
    "redistribution",
]

# The first index and the end along each axis of a tensor.
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MeshLayout:
    """A mesh of ``ranks`` in row-major order; mesh axis i cuts tensors along their axis ``cuts[i]``.

    If ``cuts[i]`` is None, mesh axis i replicates tensors. As in DTensor, a later mesh axis cuts the parts
    that earlier axes have cut.
    """

    ranks: tuple[int, ...]
    mesh: tuple[int, ...]
    cuts: tuple[int | None, ...]

    def problems(self, axes: int) -> list[str]:
        """Return every problem of the layout for tensors with this many axes."""
        found = []
        if math.prod(self.mesh) != len(self.ranks) or len(set(self.ranks)) != len(self.ranks):
            found.append(
                f"ranks: expected {math.prod(self.mesh)} different ranks, one for each place of the mesh"
            )
        if len(self.cuts) != len(self.mesh):
            found.append(f"placements: expected {len(self.mesh)}, one for each axis of the mesh")
        for axis in self.cuts:
            if axis is not None and not 0 <= axis < axes:
                found.append(f"placements: there is no axis {axis} in a tensor of {axes}")
        return found

    def boxes(self, shape: Sequence[int]) -> dict[Box, set[int]]:
        """Return the ranks that hold each box of a tensor; empty boxes are left out."""
        found: dict[Box, set[int]] = defaultdict(set)
        for place, rank in enumerate(self.ranks):
            box = [(0, length) for length in shape]
            left = len(self.ranks)
            for size, axis in zip(self.mesh, self.cuts, strict=True):
                left //= size
                if axis is not None:
                    low, end = box[axis]
                    part = -(-(end - low) // size)
                    at = place // left % size
                    box[axis] = min(end, low + at * part), min(end, low + (at + 1) * part)
            if all(low < end for low, end in box):
                found[tuple(box)].add(rank)
        return dict(found)

    def box_of(self, rank: int, shape: Sequence[int]) -> Box | None:
        """Return the box that ``rank`` holds of a tensor; None if it is empty."""
        return next((box for box, ranks in self.boxes(shape).items() if rank in ranks), None)


def overlap_of(one: Box, other: Box) -> Box:
    """Return the overlap of two boxes; along an axis without overlap its end is not above its start."""
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


@dataclass(frozen=True)
class Moved:
    """``count`` tensors of one shape that move from one layout to another."""

    shape: tuple[int, ...]
    element_bytes: int
    source: MeshLayout
    target: MeshLayout
    count: int = 1


@dataclass(frozen=True)
class Piece:
    """A box of tensor number ``copy`` of the `Moved` in row ``row``."""

    row: int
    copy: int
    box: Box


@dataclass(frozen=True)
class Redistribution:
    """The blocks of a redistribution, in the order in which they lie in the buffers of ranks.

    Block b goes from ``sources[b]``, which all hold it, to ``targets[b]``, which lack it. It has
    ``size_bytes[b]`` and consists of ``pieces[b]``, one after the other, each in row-major order.
    """

    ranks: int
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    size_bytes: tuple[int, ...]
    pieces: tuple[tuple[Piece, ...], ...]

    def request(self, chunk_bytes: int | None = None) -> tuple[CollectiveRequest, int]:
        """Return the request to the planner, and the size of its largest buffer in whole chunks.

        Raises UsageError if nothing has to move.
        """
        if not self.sources:
            raise UsageError("nothing has to move: every rank already holds all that it must have")
        sides = of_sets(self.sources), of_sets(self.targets)
        made = partial(of_blocks, self.ranks, self.size_bytes, *sides, [False] * len(self.sources))
        return cut_request(made, max(self.size_bytes), chunk_bytes)

    def packed(self, rank: int) -> list[Piece]:
        """Return the pieces of a rank's input buffer, in order: what it holds and others lack."""
        return [piece for ranks, pieces in self._of(self.sources) if rank in ranks for piece in pieces]

    def unpacked(self, rank: int) -> list[Piece]:
        """Return the pieces of a rank's output buffer, in order: what it lacks."""
        return [piece for ranks, pieces in self._of(self.targets) if rank in ranks for piece in pieces]

    def _of(self, side: tuple[tuple[int, ...], ...]) -> Iterable[tuple[tuple[int, ...], tuple[Piece, ...]]]:
        return zip(side, self.pieces, strict=True)


def redistribution(ranks: int, moved: Sequence[Moved]) -> Redistribution:
    """Return the blocks that have to move; raises UsageError if layouts are wrong.

    O(tensors · source boxes · target boxes).
    """
    blocks: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Piece]] = defaultdict(list)
    sizes: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = defaultdict(int)
    for row, one in enumerate(moved):
        for side, layout in (("source", one.source), ("target", one.target)):
            found = layout.problems(len(one.shape))
            found += [f"ranks: there is no rank {rank}" for rank in layout.ranks if not 0 <= rank < ranks]
            if found:
                raise UsageError(f"tensor {row}: {side}.{found[0]}")
        wanted = one.target.boxes(one.shape)
        for held, holders in one.source.boxes(one.shape).items():
            for box, takers in wanted.items():
                overlap = overlap_of(held, box)
                volume = math.prod(max(0, end - low) for low, end in overlap)
                if volume and takers - holders:
                    key = tuple(sorted(holders)), tuple(sorted(takers - holders))
                    blocks[key] += [Piece(row, copy, overlap) for copy in range(one.count)]
                    sizes[key] += volume * one.element_bytes * one.count
    order = sorted(blocks)
    return Redistribution(
        ranks,
        tuple(sources for sources, _ in order),
        tuple(targets for _, targets in order),
        tuple(sizes[key] for key in order),
        tuple(tuple(blocks[key]) for key in order),
    )


def direct_time_s(schedule: Schedule) -> float | None:
    """Return the simulated time of the same data sent directly from holders; None if links are missing."""
    try:
        return replay(direct.synthesize(schedule.network, schedule.collective, schedule.chunk_bytes)).time_s
    except NotApplicableError:
        return None
