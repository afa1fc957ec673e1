"""The memory, counters and proxies of all ranks that execute a plan, launch by launch.

The machine shares only the plan with the judge in ``synth.mscclpp``, so that each can be checked against the
other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from exec.runtimes import Numbers, expected_output
from exec.runtimes.mscclpp.ordering import Ordering
from synth.mscclpp import ExecutionPlan

__all__ = ["UNITS", "Atom", "BufferSpan", "Channel", "PlanMachine", "cells_of"]

# Units of a pipeline in this model; the executor makes as many as the data needs.
UNITS = 2
Channel = tuple[int, str, int, int]
"""One end of a connection: rank, type, peer, and its number among the rank's channels to that peer."""
# Collectives by the names that plans have; the results of other collectives are not known.
_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
}
# The content of memory that nobody has written.
_POISON = -(1 << 40)
# The chunks of an allocation in front of a buffer: most buffers of PyTorch lie within an allocation.
_BEFORE = 1


@dataclass(slots=True, eq=False)
class Atom:
    """A step of one thread: ``acts`` run one after the other once ``ready`` returns True.

    ``thread`` is -1 for any thread. ``what`` says where the atom is in the plan, and what it waits for.
    """

    thread: int
    acts: tuple[Callable[[], None], ...]
    ready: Callable[[], bool] | None
    what: str


@dataclass(slots=True)
class _Packets:
    """Scratch memory as packets: data, and the number of the launch that wrote it."""

    data: Numbers
    flag: Numbers


@dataclass(slots=True)
class _Rank:
    """The memory of a rank; ``allocated`` are the allocations in which input and output lie.

    ``offset`` are the chunks in front of each in its allocation.
    """

    input: Numbers
    output: Numbers
    allocated: dict[str, Numbers]
    offset: dict[str, int]
    scratch: list[Numbers]
    packets: list[_Packets]
    semaphores: list[int] = field(default_factory=list)


class PlanMachine:
    """The buffers, counters and proxies of all ranks of a plan.

    Packets that a port channel carries are copied with their flags, so both ends must be scratch.
    """

    def __init__(self, plan: ExecutionPlan, seed: int) -> None:
        slices = [step.slices for gpu in plan.gpus for block in gpu.threadblocks for step in block.operations]
        self.plan = plan
        # The numbers of a chunk.
        self.length = UNITS * math.lcm(*slices, 1) + (max(slices, default=1) > 1)
        self.random = np.random.default_rng(seed)
        self.named = plan.collective in _KINDS
        self.ranks = [self._rank(rank) for rank in range(plan.ranks)]
        self.sent: dict[Channel, int] = {}
        self.received: dict[Channel, int] = {}
        self.proxies: dict[Channel, deque[Atom]] = {}
        self.inputs: dict[tuple[int, int], Numbers] = {}
        self.outputs: dict[tuple[int, int], Numbers] = {}
        self.ordering = Ordering(plan)
        self.elements = 0

    def _rank(self, rank: int) -> _Rank:
        gpu, length = self.plan.gpus[rank], self.length
        halves = 2 if self.plan.double_scratch else 1
        shape = {"i": gpu.input_chunks, "o": gpu.output_chunks}
        offset = {name: _BEFORE for name in shape}
        if not self.plan.in_place:
            allocated = {name: np.full((_BEFORE + size, length), _POISON) for name, size in shape.items()}
        else:
            allocated = dict.fromkeys(shape, np.full((_BEFORE + max(shape.values()), length), _POISON))
            if part := self.plan.part():
                offset[part] += rank * shape[part]
        first, second = (allocated[name][offset[name] : offset[name] + shape[name]] for name in "io")
        return _Rank(
            first,
            second,
            allocated,
            offset,
            [np.full((gpu.scratch_chunks, length), _POISON) for _ in range(halves)],
            [
                _Packets(
                    np.full((gpu.scratch_chunks, length), _POISON), np.full((gpu.scratch_chunks, length), -1)
                )
                for _ in range(halves)
            ],
            list(gpu.semaphores),
        )

    def begin(self, rank: int, launch: int) -> None:
        """Prepare a launch as the caller would: clear the output, and draw a new input."""
        here = self.ranks[rank]
        caller = self.ordering.thread("caller", rank)
        for buffer in (here.output, here.input):
            self.ordering.cells.write(cells_of(buffer), caller, f"the caller of rank {rank}")
        known = self.ordering.release(caller)
        for block in range(len(self.plan.gpus[rank].threadblocks)):
            number = self.ordering.thread("block", rank, block)
            self.ordering.take_over(number, known)
        here.output[:] = _POISON
        here.input[:] = self.random.integers(0, 1 << 30, here.input.shape)
        self.inputs[launch, rank] = here.input.copy()

    def end(self, rank: int, launch: int) -> None:
        """Keep a rank's output until all ranks have begun the launch.

        With a wrong plan, a rank may end before others begin.
        """
        self.outputs[launch, rank] = self.ranks[rank].output.copy()
        caller, blocks = self.ordering.thread("caller", rank), range(len(self.plan.gpus[rank].threadblocks))
        ended = [self.ordering.thread("block", rank, block) for block in blocks]
        ended += [self.proxy(channel) for channel in self.proxies if channel[0] == rank]
        for number in ended:
            self.ordering.meet(number)
        self.ordering.join(caller, ended)
        self.ordering.cells.read(cells_of(self.ranks[rank].output), caller, f"the caller of rank {rank}")

    def proxy(self, channel: Channel) -> int:
        """Return the number of the thread that carries out a port channel's requests."""
        rank, _, peer, number = channel
        return self.ordering.thread("proxy", rank, peer, number)

    def wrong(self) -> int:
        """Check and drop outputs of launches begun by all ranks; count the wrong numbers."""
        found = 0
        kind = _KINDS.get(self.plan.collective)
        if kind is None:
            return 0
        for launch, rank in list(self.outputs):
            keys = [(launch, source) for source in range(self.plan.ranks)]
            if all(key in self.inputs for key in keys):
                flat = [self.inputs[key].reshape(-1) for key in keys]
                output = self.outputs.pop((launch, rank)).reshape(-1)
                found += int((output != expected_output(kind, flat, rank)).sum())
                self.elements += len(output)
        return found


@dataclass(slots=True)
class BufferSpan:
    """Numbers ``begin`` to ``end`` of a buffer of a rank, or of the allocation in which it lies."""

    machine: PlanMachine
    rank: int
    buffer: str
    half: int
    begin: int
    end: int
    of_allocation: bool = False

    def _of(self, array: Numbers) -> Numbers:
        return array.reshape(-1)[self.begin : self.end]

    def plain(self) -> Numbers:
        here = self.machine.ranks[self.rank]
        if self.buffer == "s":
            return self._of(here.scratch[self.half])
        if self.of_allocation:
            return self._of(here.allocated[self.buffer])
        return self._of(here.input if self.buffer == "i" else here.output)

    def packet(self) -> tuple[Numbers, Numbers]:
        """Return the data and the flags of the numbers as packets, which lie in scratch."""
        packets = self.machine.ranks[self.rank].packets[self.half]
        return self._of(packets.data), self._of(packets.flag)


def cells_of(array: Numbers) -> range:
    """Return the cells of an array: places in memory, so that buffers which share memory share cells."""
    first = int(array.__array_interface__["data"][0]) // array.itemsize
    return range(first, first + array.size)
