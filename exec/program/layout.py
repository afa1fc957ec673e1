"""The layout of slots in a rank's buffers; chunks may differ in size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from probes.base import Indices, UsageError, offsets
from synth.collective import Collective, UnevenBlocks
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["Layout", "count_fitting", "count_of", "size_bytes_of"]


@dataclass(frozen=True, eq=False)
class Layout:
    """The elements that each slot of a program holds.

    ``count`` is the number of elements of a block, as nccl-tests counts them. A block is the whole buffer
    in all_reduce, broadcast and reduce; one rank's share in all_gather, reduce_scatter, gather and scatter;
    the data of one pair in all_to_all and all_to_next; the largest block in uneven collectives, whose other
    blocks are in proportion; and one chunk in other custom collectives and in several collectives at once. A
    block is divided into chunks as evenly as whole elements allow, the same way on all ranks.
    """

    program: Program
    count: int

    @property
    def even(self) -> bool:
        """Whether all chunks are equal, so that adjacent slots are adjacent memory in every buffer."""
        collective = self.program.collective
        return collective.blocks is None and self.count % collective.share == 0

    @cached_property
    def largest(self) -> int:
        """The number of elements of the largest chunk and of every scratch slot."""
        if self.program.collective.blocks is not None:
            return int(self._chunk_lengths.max())
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

    @cached_property
    def _chunk_lengths(self) -> Indices:
        """The number of elements of each chunk of an uneven collective."""
        blocks = self.program.collective.blocks
        assert blocks is not None
        block = blocks.of_chunk()
        elements, chunks = _block_elements(blocks, self.count)[block], blocks.chunks[block]
        part = np.arange(len(block)) - offsets(blocks.chunks)[block]
        return (part + 1) * elements // chunks - part * elements // chunks

    @cached_property
    def _starts(self) -> dict[tuple[int, int], list[int]]:
        """The first element of each slot of (rank, buffer), and the end; filled when asked for."""
        return {}

    def _uneven_starts(self, rank: int, buffer: int) -> list[int]:
        found = self._starts.get((rank, buffer))
        if found is None:
            collective = self.program.collective
            here = (collective.targets if buffer == OUTPUT else collective.sources).has(rank)
            found = self._starts[rank, buffer] = offsets(self._chunk_lengths[here]).tolist()
        return found

    def start(self, rank: int, buffer: int, slot: int) -> int:
        """Return the first element of a slot."""
        if buffer == SCRATCH:
            return slot * self.largest
        if self.program.collective.blocks is not None:
            return self._uneven_starts(rank, buffer)[slot]
        block, part = divmod(slot, self.program.collective.share)
        return block * self.count + self._cuts[part]

    def length(self, rank: int, buffer: int, slot: int) -> int:
        """Return the number of elements of an input or output slot."""
        if self.program.collective.blocks is not None:
            starts = self._uneven_starts(rank, buffer)
            return starts[slot + 1] - starts[slot]
        part = slot % self.program.collective.share
        return self._cuts[part + 1] - self._cuts[part]

    def elements(self, rank: int, buffer: int) -> int:
        """Return the number of elements of a whole buffer of ``rank``."""
        if buffer == SCRATCH:
            return self.program.scratch_chunks[rank] * self.largest
        if self.program.collective.blocks is not None:
            return self._uneven_starts(rank, buffer)[-1]
        return self._sizes[buffer == OUTPUT][rank] // self.program.collective.share * self.count

    def block_elements(self) -> Indices:
        """Return the number of elements of each block of an uneven collective."""
        blocks = self.program.collective.blocks
        assert blocks is not None
        return _block_elements(blocks, self.count)

    def sums(self, rank: int) -> list[tuple[int, int, int]]:
        """Return (first element, end, number of summands) for each reduced stretch of ``rank``'s output."""
        collective = self.program.collective
        found: list[tuple[int, int, int]] = []
        if not collective.reduces:
            return []
        summands, reduced = collective.sources.sizes().tolist(), collective.reduced.tolist()
        for slot, chunk in enumerate(np.flatnonzero(collective.targets.has(rank)).tolist()):
            if reduced[chunk]:
                start = self.start(rank, OUTPUT, slot)
                stop = start + self.length(rank, OUTPUT, slot)
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
    return max(1, int(size_bytes // itemsize / _blocks(collective)))


def size_bytes_of(collective: Collective, count: int, itemsize: int) -> int:
    """Return the size that nccl-tests prints: the larger of a rank's send and receive buffer."""
    return int(count * itemsize * _blocks(collective))


def count_fitting(program: Program, elements: Sequence[int]) -> int | None:
    """Return the ``count`` at which the input of each rank has ``elements[rank]`` elements, or None."""
    single = Layout(program, 1)
    rank = next((rank for rank in range(program.ranks) if single.elements(rank, INPUT)), None)
    if rank is None:
        return None
    blocks = program.collective.blocks
    if blocks is None:
        near = elements[rank] // single.elements(rank, INPUT)
        candidates = [near]
    else:
        near = elements[rank] * blocks.largest_bytes // int(program.collective.buffer_bytes()[0][rank])
        # Each block is rounded to whole elements, so the count may lie beside the quotient.
        candidates = list(range(near - len(blocks.chunks), near + len(blocks.chunks) + 1))
    for count in sorted((count for count in candidates if count > 0), key=lambda count: abs(count - near)):
        layout = Layout(program, count)
        if all(layout.elements(rank, INPUT) == given for rank, given in enumerate(elements)):
            return count
    return None


def _blocks(collective: Collective) -> Fraction:
    """Return the size of the larger buffer of any rank, in blocks (uneven: in largest blocks)."""
    blocks = collective.blocks
    if blocks is None:
        return Fraction(collective.total_bytes(1) // collective.share)
    return Fraction(int(collective.buffer_bytes().max()), blocks.largest_bytes)


@lru_cache(maxsize=64)
def _block_elements(blocks: UnevenBlocks, count: int) -> Indices:
    """Return the elements of each block, rounded to the nearest; the largest block has ``count``."""
    largest = blocks.largest_bytes
    # Python's integers: the product of bytes and elements can exceed 64 bits.
    return np.array([(size * count + largest // 2) // largest for size in blocks.size_bytes.tolist()])
