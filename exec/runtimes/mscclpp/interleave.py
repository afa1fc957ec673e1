"""Random interleavings of a plan, to find results that depend on the order.

A phase of a threadblock ends at a ``nop`` or a ``barrier``. Within a phase, the atoms of one thread run in
program order, and those of different threads in any order. Blocks, proxies and launches of ranks have random
speeds, some of them a thousand times faster than others. An atom that reads and writes does so in two
separate acts.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from exec.runtimes.mscclpp.machine import Atom, PlanMachine
from synth.mscclpp import ExecutionPlan, Operation

__all__ = ["Outcome", "interleaved"]

Outcome = Literal["right", "wrong", "deadlock"]
# Some plans go wrong only in a launch that meets what the one before has left.
_LAUNCHES = 3


def interleaved(plan: ExecutionPlan, seed: int, launches: int = _LAUNCHES) -> Outcome:
    """Run all launches of the plan in one random order, and return the outcome.

    Raises UsageError for port packets.
    """
    return _Run(plan, seed, launches).outcome()


class _Blocked:
    """A threadblock: its remaining operations, and the atoms of its current phase."""

    def __init__(self, run: _Run, rank: int, at: int, launch: int) -> None:
        self.run, self.rank, self.at, self.launch = run, rank, at, launch
        self.left: Iterator[tuple[Operation, int]] = self._operations()
        self.pending: list[list[Atom]] = []
        self.meets: Operation | None = None
        self.ended = False
        self.weight = run.weight()
        self.fill()

    def _operations(self) -> Iterator[tuple[Operation, int]]:
        for operation in self.run.plan.gpus[self.rank].threadblocks[self.at].operations:
            if operation.name != "pipeline":
                yield operation, -1
                continue
            for unit in (0, 1):
                for inner in operation.inner:
                    yield inner, unit

    def fill(self) -> None:
        """Fetch operations up to the next one at which all threads of the block synchronize."""
        self.meets = None
        by_thread: dict[int, list[Atom]] = {}
        for operation, unit in self.left:
            if operation.name in ("nop", "barrier"):
                self.meets = operation
                break
            for atom in self.run.machine.atoms(self.rank, self.at, operation, self.launch, unit):
                if atom.thread < 0:
                    self.pending.append([atom])
                else:
                    by_thread.setdefault(atom.thread, []).append(atom)
        self.pending += by_thread.values()

    def ready(self) -> list[list[Atom]]:
        return [queue for queue in self.pending if queue[0].ready is None or queue[0].ready()]


class _Run:
    def __init__(self, plan: ExecutionPlan, seed: int, launches: int) -> None:
        self.plan, self.launches = plan, launches
        self.draw = random.Random(seed)
        self.machine = PlanMachine(plan, seed)
        self.spread = self.draw.choice((0.0, 1.0, 3.0))
        self.blocks: list[list[_Blocked]] = [[] for _ in plan.gpus]
        self.launch = [-1] * plan.ranks
        self.wrong = 0
        self.proxy_weight = self.weight()
        self.rank_weight = [self.weight() for _ in plan.gpus]

    def weight(self) -> float:
        """Draw a speed from 1 to 10^spread; the spread of a run is 0, 1 or 3."""
        return float(10 ** (self.draw.random() * self.spread))

    def outcome(self) -> Outcome:
        while True:
            choices = self.choices()
            if not choices:
                done = all(launch == self.launches for launch in self.launch)
                return ("wrong" if self.wrong else "right") if done else "deadlock"
            self.draw.choices(choices, [weight for weight, _ in choices])[0][1]()
            if self.wrong:
                return "wrong"

    def choices(self) -> list[tuple[float, Callable[[], None]]]:
        """Return the possible next actions, each with its weight."""
        found: list[tuple[float, Callable[[], None]]] = []
        for rank, blocks in enumerate(self.blocks):
            if self.launch[rank] == self.launches:
                continue
            if all(block.ended for block in blocks) and not self.busy(rank):
                found.append((self.rank_weight[rank], partial(self.next_launch, rank)))
                continue
            for block in blocks:
                if block.ended:
                    continue
                if block.pending:
                    if ready := block.ready():
                        found.append((block.weight, partial(self.act, block, self.draw.choice(ready))))
                elif self.may_pass(block):
                    found.append((block.weight, partial(self.meet, block)))
        found += [
            (self.proxy_weight, partial(self.proxied, queue))
            for queue in self.machine.proxies.values()
            if queue
        ]
        return found

    def busy(self, rank: int) -> bool:
        """Return whether the rank's proxy still has requests; the kernel ends only after these."""
        return any(channel[0] == rank and queue for channel, queue in self.machine.proxies.items())

    def next_launch(self, rank: int) -> None:
        launch = self.launch[rank]
        if launch >= 0:
            self.machine.end(rank, launch)
        self.launch[rank] = launch = launch + 1
        if launch < self.launches:
            self.machine.begin(rank, launch)
            blocks = len(self.plan.gpus[rank].threadblocks)
            self.blocks[rank] = [_Blocked(self, rank, at, launch) for at in range(blocks)]
        self.wrong += self.machine.wrong()

    def act(self, block: _Blocked, queue: list[Atom]) -> None:
        atom = queue[0]
        if atom.acts:
            atom.acts[0]()
        atom.acts = atom.acts[1:]
        if len(atom.acts):
            # The read is done; the write that follows needs no condition.
            atom.ready = None
            return
        queue.pop(0)
        if not queue:
            block.pending.remove(queue)

    def proxied(self, queue: deque[Atom]) -> None:
        atom = queue[0]
        atom.acts[0]()
        atom.acts = atom.acts[1:]
        if not atom.acts:
            queue.popleft()

    def may_pass(self, block: _Blocked) -> bool:
        if block.meets is None or block.meets.name == "nop":
            return True
        there = [
            one
            for one in self.blocks[block.rank]
            if not one.ended
            and not one.pending
            and one.meets is not None
            and one.meets.name == "barrier"
            and one.meets.barrier == block.meets.barrier
        ]
        return len(there) >= block.meets.blocks

    def meet(self, block: _Blocked) -> None:
        if block.meets is None:
            block.ended = True
            return
        if block.meets.name == "nop":
            block.fill()
            return
        number = block.meets.barrier
        for one in self.blocks[block.rank]:
            meets = one.meets
            if meets is not None and meets.name == "barrier" and meets.barrier == number and not one.pending:
                one.fill()
