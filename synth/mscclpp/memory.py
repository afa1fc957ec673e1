"""The memory layout of a plan: the cells in which the chunks of every buffer lie.

A chunk is cut into ``cells`` pieces, as many as its slices and pipeline units need. In place, input and
output share cells as the collective defines. Packets have cells of their own, because they use other bytes of
scratch than plain chunks do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from synth.mscclpp.plan import BUFFERS, ExecutionPlan, Operand, Operation, PlanRank

__all__ = ["UNITS", "PlanMemory", "expected", "finenesses", "known", "slice_of"]

# The pieces of a pipeline that are modelled: two, so that one is in flight while the next is produced.
UNITS = 2


def known(collective: str) -> bool:
    """Return whether ``expected`` knows the result of a collective of this name."""
    return collective in ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


def expected(plan: ExecutionPlan, rank: int, chunk: int) -> list[tuple[int, int]]:
    """Return the (rank, input chunk) pairs that add up to output chunk ``chunk`` of ``rank``."""
    size, gpu = plan.ranks, plan.gpus[rank]
    match plan.collective:
        case "allreduce":
            return [(source, chunk) for source in range(size)]
        case "allgather":
            return [divmod(chunk, gpu.input_chunks)]
        case "reducescatter":
            return [(source, rank * gpu.output_chunks + chunk) for source in range(size)]
        case "alltoall":
            share = gpu.input_chunks // size
            return [(chunk // share, rank * share + chunk % share)]
        case "broadcast":
            return [(0, chunk)]
    raise AssertionError(plan.collective)


def finenesses(plan: ExecutionPlan) -> tuple[int, ...]:
    """Return the numbers of cells per chunk with which to judge a plan.

    For a plan with slices there are two: slices divide the first evenly, and the second leaves a remainder.
    """
    every = [one for gpu in plan.gpus for block in gpu.threadblocks for one in block.operations]
    slices = {one.slices for one in every if one.slices > 1}
    units = UNITS if any(one.name == "pipeline" for one in every) else 1
    if not slices:
        return (units,)
    fine = units * math.lcm(*slices)
    return (fine, fine + 1)


def slice_of(size: int, at: int, slices: int) -> tuple[int, int]:
    """Return (begin, end) of slice ``at`` of ``size`` cells; the first slices share the remainder."""
    least, more = divmod(size, slices)
    return at * least + min(at, more), (at + 1) * least + min(at + 1, more)


@dataclass(frozen=True)
class PlanMemory:
    """Cells by rank, in six regions: input, output, two scratch halves, and two for packets."""

    plan: ExecutionPlan
    cells: int

    @cached_property
    def span(self) -> int:
        """Cells of one region, enough for the longest buffer of any rank."""
        longest = max(max(gpu.chunks(buffer) for buffer in BUFFERS) for gpu in self.plan.gpus)
        return longest * self.cells

    def first_cell(self, rank: int, buffer: str, launch: int, *, packets: bool = False) -> int:
        """Return the first cell of a buffer in this launch.

        With double scratch, the launches use its halves in turn.
        """
        half = launch % 2 if self.plan.double_scratch else 0
        region, offset = {"i": 0, "o": 1, "s": 2 + half}[buffer], 0
        if packets:
            region = 4 + half
        elif self.plan.in_place and buffer in "io":
            gpu = self.plan.gpus[rank]
            region = 0
            if buffer == self.plan.part():
                offset = rank * gpu.chunks(buffer)
        return (rank * 6 + region) * self.span + offset * self.cells

    def part(self, gpu: PlanRank) -> int:
        """Return the number of chunks in a run of input or output that the collective moves as a whole."""
        if self.plan.collective in ("allreduce", "broadcast"):
            return max(gpu.input_chunks, gpu.output_chunks)
        whole = math.gcd(gpu.input_chunks, gpu.output_chunks)
        return (
            math.gcd(whole, max(1, whole // self.plan.ranks)) if self.plan.collective == "alltoall" else whole
        )

    def total(self) -> int:
        return self.plan.ranks * 6 * self.span

    def name(self, cell: int) -> str:
        """Return the name of a cell, such as ``rank 1 s[3]``."""
        place, at = divmod(cell, self.span)
        rank, region = divmod(place, 6)
        whole = "o" if self.plan.part() == "i" else "i"
        return f"rank {rank} {(whole, *'ossss')[region]}[{at // self.cells}]"

    def range(self, operation: Operation, operand: Operand, unit: int) -> tuple[int, int]:
        """Return (begin, end) in the buffer of the cells of an operand's slice or pipeline unit."""
        first, size = operand.index * self.cells, operand.size * self.cells
        if unit >= 0:
            low, high = slice_of(size, unit, UNITS)
        else:
            low, high = slice_of(size, operation.slice, operation.slices)
        return first + low, first + high
