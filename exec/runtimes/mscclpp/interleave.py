"""Random interleavings of a plan, to find results that depend on the order.

A phase of a threadblock ends at a ``nop`` or a ``barrier``. Within a phase, the atoms (`operations`) of one
thread run in program order, and those of different threads in any order. An atom that reads and writes does
so in two separate acts. Each proxy, and each block of a launch, has a random speed; some are up to a thousand
times faster than others.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from exec.runtimes import RuntimeReport
from exec.runtimes.mscclpp.machine import UNITS, Atom, Channel, PlanMachine
from exec.runtimes.mscclpp.operations import atoms_of
from exec.runtimes.mscclpp.ordering import BlockPlace
from probes.base import first_of
from synth.mscclpp import ExecutionPlan, Operation

__all__ = ["run_plan"]

# Several launches, because some plans go wrong only with what an earlier launch left in memory.
_LAUNCHES = 3
_ENOUGH = 20


def run_plan(plan: ExecutionPlan, seed: int) -> RuntimeReport:
    """Run several launches of a well-formed plan in one random order.

    Chunks have a few numbers each, enough to cut them into the slices and units of the plan.
    """
    return _Run(plan, seed).report()


class _Actor(Protocol):
    """Part of the machine that goes on by itself, ``speed`` acts at a time."""

    speed: int

    def go(self) -> bool:
        """Do one act; return False if the actor must wait or has nothing to do."""

    def obstacles(self) -> list[str]:
        """Return in words what the actor waits for."""


class _Block:
    """A threadblock in one launch: its remaining operations, and the atoms of its current phase."""

    def __init__(self, run: _Run, rank: int, at: int, launch: int) -> None:
        self.run, self.rank, self.at, self.launch = run, rank, at, launch
        self.number = run.machine.ordering.thread("block", rank, at)
        self.left = self._operations()
        self.pending: list[deque[Atom]] = []
        self.meets: Operation | None = None
        self.speed = run.speed()
        self.arrived = self.ended = False
        self.fill()

    def _operations(self) -> Iterator[tuple[int, Operation, int]]:
        for at, operation in enumerate(self.run.plan.gpus[self.rank].threadblocks[self.at].operations):
            units = range(UNITS) if operation.name == "pipeline" else (-1,)
            for unit in units:
                for part in operation.inner or (operation,):
                    yield at, part, unit

    def fill(self) -> None:
        """Fetch operations up to the next one at which all threads of the block synchronize."""
        self.meets, self.arrived = None, False
        by_thread: dict[int, deque[Atom]] = {}
        for at, operation, unit in self.left:
            if operation.name in ("nop", "barrier"):
                self.meets = operation
                break
            where = BlockPlace(self.rank, self.at, at, operation.name, unit)
            for atom in atoms_of(self.run.machine, where, operation, self.launch):
                if atom.thread < 0:
                    self.pending.append(deque((atom,)))
                else:
                    by_thread.setdefault(atom.thread, deque()).append(atom)
        self.pending += by_thread.values()

    def go(self) -> bool:
        if self.ended:
            return False
        if not self.pending:
            return self._meet()
        ready = [queue for queue in self.pending if queue[0].ready is None or queue[0].ready()]
        if not ready:
            return False
        queue = self.run.draw.choice(ready)
        _act(queue)
        if not queue:
            self.pending.remove(queue)
        return True

    def _meet(self) -> bool:
        ordering = self.run.machine.ordering
        if self.meets is None:
            self.ended = True
        elif self.meets.name == "nop":
            ordering.meet(self.number)
            self.fill()
        else:
            there = [block for block in self.run.blocks[self.rank] if block.at_barrier(self.meets.barrier)]
            if len(there) < self.meets.blocks:
                return False
            numbers = [block.number for block in there]
            for number in numbers:
                ordering.meet(number)
            for number in numbers:
                ordering.join(number, numbers)
            for block in there:
                block.fill()
        return True

    def at_barrier(self, number: int) -> bool:
        """Return whether the block has come to a barrier."""
        meets = self.meets
        return not (self.pending or self.ended) and meets is not None and meets.barrier == number

    def obstacles(self) -> list[str]:
        if self.pending:
            return [queue[0].what for queue in self.pending]
        if self.ended or self.meets is None:
            return []
        return [f"gpus[{self.rank}].threadblocks[{self.at}] waits at barrier {self.meets.barrier}"]


class _Proxy:
    """A port channel's proxy, which carries out one request after the other."""

    def __init__(self, run: _Run, channel: Channel) -> None:
        self.queue = run.machine.proxies.setdefault(channel, deque())
        self.speed = run.speed()

    def go(self) -> bool:
        if self.queue:
            _act(self.queue)
            return True
        return False

    def obstacles(self) -> list[str]:
        return []


class _Rank:
    """A rank's caller: it begins the next launch when all blocks and proxies of the last have ended."""

    def __init__(self, run: _Run, rank: int) -> None:
        self.run, self.rank, self.launch = run, rank, -1
        self.speed = 1

    def go(self) -> bool:
        run, rank = self.run, self.rank
        if self.launch == _LAUNCHES or not all(block.ended for block in run.blocks[rank]):
            return False
        if any(queue for channel, queue in run.machine.proxies.items() if channel[0] == rank):
            return False
        if self.launch >= 0:
            run.machine.end(rank, self.launch)
        self.launch += 1
        run.actors = [actor for actor in run.actors if actor not in run.blocks[rank]]
        run.blocks[rank] = []
        if self.launch < _LAUNCHES:
            run.machine.begin(rank, self.launch)
            blocks = range(len(run.plan.gpus[rank].threadblocks))
            run.blocks[rank] = [_Block(run, rank, at, self.launch) for at in blocks]
            run.actors += run.blocks[rank]
        run.wrong += run.machine.wrong()
        return True

    def obstacles(self) -> list[str]:
        return []


class _Run:
    def __init__(self, plan: ExecutionPlan, seed: int) -> None:
        self.plan = plan
        self.draw = random.Random(seed)
        self.machine = PlanMachine(plan, seed)
        # Speeds lie between 1 and 10**spread.
        self.spread = self.draw.choice((0.0, 1.0, 3.0))
        self.blocks: list[list[_Block]] = [[] for _ in plan.gpus]
        self.ranks = [_Rank(self, rank) for rank in range(plan.ranks)]
        self.actors: list[_Actor] = list(self.ranks)
        for rank, gpu in enumerate(plan.gpus):
            for at, peer in enumerate(gpu.port):
                self.actors.append(_Proxy(self, (rank, "port", peer, gpu.port[:at].count(peer))))
        self.wrong = self.acts = 0

    def speed(self) -> int:
        """Draw how many acts an actor makes in one go."""
        return int(10 ** (self.draw.random() * self.spread))

    def report(self) -> RuntimeReport:
        while self._round():
            pass
        findings = []
        if any(rank.launch < _LAUNCHES for rank in self.ranks):
            stuck = dict.fromkeys(what for actor in self.actors for what in actor.obstacles())
            findings += [f"{what}, for ever" for what in stuck]
        findings += self._left_over() + self._races()
        found = tuple(first_of(findings, _ENOUGH, "finding"))
        return RuntimeReport(_LAUNCHES, self.acts, self.machine.elements, self.wrong, found)

    def _round(self) -> bool:
        """Let every actor go on, in a random order; return whether any did."""
        moved = False
        actors = list(self.actors)
        self.draw.shuffle(actors)
        for actor in actors:
            for _ in range(actor.speed):
                if not actor.go():
                    break
                moved = True
                self.acts += 1
        return moved

    def _left_over(self) -> list[str]:
        machine = self.machine
        return [
            f"{sent - machine.received.get(end, 0)} signals on {end[1]} channel {end[3]} "
            f"from rank {end[0]} to rank {end[2]} that nobody waits for"
            for end, sent in machine.sent.items()
            if sent > machine.received.get(end, 0)
        ]

    def _races(self) -> list[str]:
        found: dict[str, None] = {}
        for _, one, wrote, two, writes in self.machine.ordering.cells.racing:
            verbs = ["writes" if does else "reads" for does in (wrote, writes)]
            found[f"race: {one} {verbs[0]} what {two} {verbs[1]}, and nothing orders the two"] = None
        return list(found)


def _act(queue: deque[Atom]) -> None:
    """Run the next act of the first atom; its condition applies only to its first act."""
    atom = queue[0]
    if atom.acts:
        atom.acts[0]()
    atom.acts, atom.ready = atom.acts[1:], None
    if not atom.acts:
        queue.popleft()
