"""The layout of slots in a rank's buffers; chunks may differ in size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import UsageError
from synth.collective import Collective
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["Layout", "count_of", "size_bytes_of"]


@dataclass(frozen=True, eq=False)
class Layout:
    """The elements that each slot of a program holds.

    ``count`` is the number of elements of a block, as nccl-tests counts them. A block is the whole buffer
    in all_reduce, broadcast and reduce; one rank's share in all_gather, reduce_scatter, gather and scatter;
    the data of one pair in all_to_all and all_to_next; and one chunk in custom collectives and in several
    collectives at once. A block is divided into chunks as evenly as whole elements allow, the same way on
    all ranks.
    """

    program: Program
    count: int

    @property
    def even(self) -> bool:
        """Whether all chunks are equal, so that adjacent slots are adjacent memory in every buffer."""
        return self.count % self.program.collective.share == 0

    @cached_property
    def largest(self) -> int:
        """The number of elements of the largest chunk and of every scratch slot."""
        return -(-self.count // self.program.collective.share)

    @cached_property
    def _cuts(self) -> list[int]:
        share = self.program.collective.share
        cuts: list[int] = (np.arange(share + 1) * self.count // share).tolist()
        return cuts

    @cached_property
    def _sizes(self) -> tuple[list[int], list[int]]:
        """The number of input slots and of output slots of each rank."""
        collective = self.program.collective
        inputs, outputs = (
            sets.per_rank(collective.ranks).tolist() for sets in (collective.sources, collective.targets)
        )
        return inputs, outputs

    def start(self, buffer: int, slot: int) -> int:
        """Return the first element of a slot."""
        if buffer == SCRATCH:
            return slot * self.largest
        block, part = divmod(slot, self.program.collective.share)
        return block * self.count + self._cuts[part]

    def length(self, slot: int) -> int:
        """Return the number of elements of an input or output slot."""
        part = slot % self.program.collective.share
        return self._cuts[part + 1] - self._cuts[part]

    def elements(self, rank: int, buffer: int) -> int:
        """Return the number of elements of a whole buffer of ``rank``."""
        if buffer == SCRATCH:
            return self.program.scratch_chunks[rank] * self.largest
        return self._sizes[buffer == OUTPUT][rank] // self.program.collective.share * self.count

    def sums(self, rank: int) -> list[tuple[int, int, int]]:
        """Return (first element, end, number of summands) for each reduced stretch of ``rank``'s output."""
        collective = self.program.collective
        found: list[tuple[int, int, int]] = []
        if not collective.reduces:
            return []
        summands, reduced = collective.sources.sizes().tolist(), collective.reduced.tolist()
        for slot, chunk in enumerate(np.flatnonzero(collective.targets.has(rank)).tolist()):
            if reduced[chunk]:
                start = self.start(OUTPUT, slot)
                stop = start + self.length(slot)
                if found and found[-1][1:] == (start, summands[chunk]):
                    start = found.pop()[0]
                found.append((start, stop, summands[chunk]))
        return found

    def in_place(self, rank: int) -> tuple[int, slice, slice]:
        """Return (elements, input, output): the shared buffer's size, and the two slices of it.

        Raises UsageError for a collective that cannot run in place.
        """
        collective = self.program.collective
        if not collective.in_place:
            raise UsageError(
                f"{collective.label} cannot run in place: input and output slots hold different chunks"
            )
        whole_in, whole_out = (self.elements(rank, buffer) for buffer in (INPUT, OUTPUT))
        place = int(np.searchsorted(collective.participants, rank))
        offset = place * self.count if whole_in and whole_out and whole_in != whole_out else 0
        first_in = offset if whole_in < whole_out else 0
        first_out = offset if whole_out < whole_in else 0
        total = max(whole_in, whole_out)
        return total, slice(first_in, first_in + whole_in), slice(first_out, first_out + whole_out)


def count_of(collective: Collective, size_bytes: int, itemsize: int) -> int:
    """Return the ``count`` at which the larger buffer has about ``size_bytes``; at least 1."""
    return max(1, size_bytes // itemsize // _blocks(collective))


def size_bytes_of(collective: Collective, count: int, itemsize: int) -> int:
    """Return the size that nccl-tests prints: the larger of a rank's send and receive buffer."""
    return count * itemsize * _blocks(collective)


def _blocks(collective: Collective) -> int:
    return collective.total_bytes(1) // collective.share
