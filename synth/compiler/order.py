"""An order in which the steps of a program can run: the one machine of threadblocks, waits and FIFOs.

Steps of a correct program that are not ordered do not touch the same memory, so any such order
gives the same result; the checker, the interpreter and the executors all follow this one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from synth.program import RECEIVES, SENDS, Program

__all__ = ["FIFO_DEPTH", "Walk", "connections", "walk"]

FIFO_DEPTH = 2


@dataclass(frozen=True)
class Walk:
    """``order``: steps (rows of the program) as they ran; ``blocked``: why the others could not."""

    order: list[int]
    blocked: tuple[str, ...]


def connections(program: Program) -> tuple[list[int], list[int]]:
    """For each threadblock the FIFO it sends to and the one it receives from; -1 where it has no peer.

    A FIFO is one (sender, receiver, channel), numbered in the order of first mention.
    """
    number: dict[tuple[int, int, int], int] = {}
    send, recv = [], []
    columns = (program.tb_rank, program.tb_send, program.tb_recv, program.tb_channel)
    for rank, to, source, channel in zip(*(column.tolist() for column in columns), strict=True):
        send.append(number.setdefault((rank, to, channel), len(number)) if to >= 0 else -1)
        recv.append(number.setdefault((source, rank, channel), len(number)) if source >= 0 else -1)
    return send, recv


def walk(program: Program, depth: int = FIFO_DEPTH) -> Walk:
    """Run every threadblock a step at a time, in turn, with ``depth`` messages in each FIFO; O(steps)."""
    machine = _Machine(program, depth)
    machine.run()
    return Walk(order=machine.order, blocked=tuple(machine.blocked()))


class _Machine:
    def __init__(self, program: Program, depth: int) -> None:
        self.program, self.depth = program, depth
        self.send, self.recv = connections(program)
        bounds: list[int] = program.tb_start.tolist()
        self.next, self.end = bounds[:-1], bounds[1:]
        self.op: list[int] = program.op.tolist()
        waits = zip(program.wait_tb.tolist(), program.wait_step.tolist(), strict=True)
        self.goal = [bounds[tb] + step if tb >= 0 else -1 for tb, step in waits]
        self.wait_tb: list[int] = program.wait_tb.tolist()
        fifos = max([*self.send, *self.recv, -1]) + 1
        self.filled = [0] * fifos
        self.full_for: list[int] = [-1] * fifos
        self.empty_for: list[int] = [-1] * fifos
        self.sleepers: list[list[tuple[int, int]]] = [[] for _ in self.next]
        self.order: list[int] = []

    def run(self) -> None:
        ready = deque(range(len(self.next)))
        while ready:
            tb = ready.popleft()
            step = self.next[tb]
            if step < self.end[tb] and self._can_run(tb, step):
                self.order.append(step)
                self.next[tb] = step + 1
                ready.extend(self._finish(tb, step))
                ready.append(tb)

    def _can_run(self, tb: int, step: int) -> bool:
        goal = self.goal[step]
        if goal >= 0 and self.next[self.wait_tb[step]] <= goal:
            self.sleepers[self.wait_tb[step]].append((goal, tb))
            return False
        op = self.op[step]
        if RECEIVES[op] and not self.filled[self.recv[tb]]:
            self.empty_for[self.recv[tb]] = tb
            return False
        if SENDS[op] and self.filled[self.send[tb]] >= self.depth:
            self.full_for[self.send[tb]] = tb
            return False
        return True

    def _finish(self, tb: int, step: int) -> list[int]:
        """Apply what the step does to FIFOs; the threadblocks that may now go on."""
        woken = []
        op = self.op[step]
        if RECEIVES[op]:
            fifo = self.recv[tb]
            self.filled[fifo] -= 1
            if self.full_for[fifo] >= 0:
                woken.append(self.full_for[fifo])
                self.full_for[fifo] = -1
        if SENDS[op]:
            fifo = self.send[tb]
            self.filled[fifo] += 1
            if self.empty_for[fifo] >= 0:
                woken.append(self.empty_for[fifo])
                self.empty_for[fifo] = -1
        if self.sleepers[tb]:
            woken += [other for goal, other in self.sleepers[tb] if goal <= step]
            self.sleepers[tb] = [(goal, other) for goal, other in self.sleepers[tb] if goal > step]
        return woken

    def blocked(self) -> list[str]:
        """Who waits for whom, once nothing can run; and messages that nobody takes."""
        found = [
            f"{self.program.place(step)} {self._reason(tb, step)}"
            for tb, step in enumerate(self.next)
            if step < self.end[tb]
        ]
        if found:
            return found
        left = [tb for tb, fifo in enumerate(self.send) if fifo >= 0 and self.filled[fifo]]
        return [
            f"{self.program.tb_name(tb)} sends {self.filled[self.send[tb]]} messages to rank "
            f"{self.program.tb_send[tb]} that nobody receives"
            for tb in left
        ]

    def _reason(self, tb: int, step: int) -> str:
        program = self.program
        if self.goal[step] >= 0 and self.next[self.wait_tb[step]] <= self.goal[step]:
            return f"waits for {program.place(self.goal[step])} and never runs"
        channel = f"on channel {program.tb_channel[tb]}"
        if RECEIVES[self.op[step]] and not self.filled[self.recv[tb]]:
            return f"waits for a message from rank {program.tb_recv[tb]} {channel} that never comes"
        return (
            f"waits for rank {program.tb_send[tb]} to receive {channel}: all {self.depth} places of "
            "the connection stay full"
        )
