"""The order that signals and barriers impose on a plan's accesses while the plan runs.

The threads of a block meet at a ``nop``; a phase lies between two of these. Within a phase a single thread
may wait or signal. The other threads get the knowledge from its waits when the block meets. A thread's
signals and semaphores hand on what the thread knows, but not what its block has done in the same phase. A
relaxed signal counts like any other here: `synth.mscclpp` judges which relaxed signals order data. A packet
also hands on what its block has done in the phase, although the packet really follows only the accesses of
its own operation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from exec.runtimes import SharedCells, VectorClocks
from probes.base import Ints
from synth.mscclpp import ExecutionPlan

__all__ = ["BlockPlace", "Ordering"]


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A place in a plan; ``proxy`` if the rank's proxy is there on behalf of the threadblock."""

    rank: int
    block: int
    operation: int
    name: str
    unit: int = -1
    proxy: bool = False

    def __str__(self) -> str:
        piece = "" if self.unit < 0 else f" unit {self.unit}"
        by = " by the proxy" if self.proxy else ""
        return f"gpus[{self.rank}].threadblocks[{self.block}].ops[{self.operation}] ({self.name}){piece}{by}"


@dataclass(slots=True)
class _Counter:
    """A counter: ``known[n - 1]`` is the knowledge that its first n increments hand on."""

    known: list[Ints] = field(default_factory=list)
    downs: int = 0


class Ordering:
    """The clocks of all blocks, callers and proxies of a plan, and the cells that they access."""

    def __init__(self, plan: ExecutionPlan) -> None:
        numbers: dict[tuple[Hashable, ...], int] = {}
        for rank, gpu in enumerate(plan.gpus):
            for block in range(len(gpu.threadblocks)):
                numbers["block", rank, block] = len(numbers)
            numbers["caller", rank] = len(numbers)
            for peer in gpu.port:
                at = sum(name[:3] == ("proxy", rank, peer) for name in numbers)
                numbers["proxy", rank, peer, at] = len(numbers)
        self._numbers = numbers
        self._clocks = VectorClocks(len(numbers))
        self._learned: dict[tuple[int, int], Ints] = {}
        self._counters: dict[Hashable, _Counter] = {}
        self._packets: dict[int, Ints] = {}
        self.cells = SharedCells(self._clocks, in_order=False)

    def thread(self, *name: Hashable) -> int:
        """Return the number of a thread.

        Threads are ("block", rank, block), ("caller", rank) and ("proxy", rank, peer, channel to that peer).
        """
        return self._numbers[name]

    def knows(self, number: int, thread: int) -> Ints:
        """Return what a thread of a block knows from earlier phases and its waits in this one."""
        known = self._clocks.before(number)
        learned = self._learned.get((number, thread))
        return known if learned is None else np.maximum(known, learned)

    def learn(self, number: int, thread: int, known: Ints) -> None:
        """Let one thread of a block know something; the others do when the block meets."""
        learned = self._learned.get((number, thread))
        self._learned[number, thread] = known if learned is None else np.maximum(known, learned)

    def meet(self, number: int) -> None:
        """Begin a block's next phase, in which all threads know what any of them has learned."""
        for key in [key for key in self._learned if key[0] == number]:
            self._clocks.acquire(number, self._learned.pop(key))
        self._clocks.release(number)

    def join(self, number: int, others: Iterable[int]) -> None:
        """Let a thread know all that others have done."""
        for other in others:
            self._clocks.acquire(number, self._clocks.release(other))

    def take_over(self, number: int, known: Ints) -> None:
        """Give a proxy the knowledge ``known`` of the thread whose request it carries out."""
        self._clocks.acquire(number, known)

    def release(self, number: int) -> Ints:
        """Return all that a thread knows and has done."""
        return self._clocks.release(number)

    def count_up(self, key: Hashable, known: Ints) -> None:
        """Increment a counter; ``known`` is the knowledge of the incrementing thread."""
        ups = self._counters.setdefault(key, _Counter()).known
        ups.append(np.maximum(ups[-1], known) if ups else known)

    def count_down(self, key: Hashable, initial: int = 0) -> Ints | None:
        """Decrement a counter, and return the knowledge that the increments before it hand on.

        Return None if the initial value was enough, or if an increment is still missing.
        """
        counted = self._counters.setdefault(key, _Counter())
        counted.downs += 1
        need = counted.downs - initial
        return counted.known[need - 1] if 0 < need <= len(counted.known) else None

    def now(self, number: int, thread: int) -> Ints:
        """Return what one thread of a block knows, and what its block has done in this phase."""
        known = self.knows(number, thread).copy()
        known[number] = self._clocks.now(number)
        return known

    def send_packets(self, cells: Iterable[int], known: Ints) -> None:
        """Store the knowledge of the writer of packets."""
        for cell in cells:
            self._packets[cell] = known

    def packets_from(self, cells: Iterable[int]) -> list[Ints]:
        """Return the knowledge of the writers of packets."""
        return [self._packets[cell] for cell in cells if cell in self._packets]
