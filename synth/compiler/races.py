"""Two accesses to one slot that nothing orders: whichever threadblock is faster decides the result."""

from __future__ import annotations

from collections import deque

from synth.compiler.order import connections
from synth.program import OPS, READS_SRC, RECEIVES, SENDS, WRITES_DST, Program
from synth.slots import Memory

__all__ = ["races"]

_CPY = OPS.index("cpy")


def races(program: Program, memory: Memory, order: list[int]) -> list[str]:
    """Every pair of conflicting accesses that neither waits nor messages order.

    ``order`` must be an order in which the steps can run. Order within a rank comes from vector
    clocks; a pair that they leave open is then searched for a path of messages over other ranks.
    """
    suspects = _Clocks(program).suspects(memory, order)
    if not suspects:
        return []
    reach = _Ancestors(program, order)
    return [
        f"{program.place(later)} and {program.place(earlier)} access {slot} in no certain order"
        for earlier, later, slot in suspects
        if not reach.precedes(earlier, later)
    ]


class _Clocks:
    """For each threadblock, how far it knows each other threadblock of its rank to be."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.start: list[int] = program.tb_start.tolist()
        self.tb_of: list[int] = program.tb_of.tolist()
        waits = zip(program.wait_tb.tolist(), program.wait_step.tolist(), strict=True)
        self.goal = [self.start[tb] + step if tb >= 0 else -1 for tb, step in waits]
        self.waited_for = set(self.goal)
        self.known: list[dict[int, int]] = [{} for _ in range(program.threadblocks)]
        self.at_step: dict[int, dict[int, int]] = {}

    def suspects(self, memory: Memory, order: list[int]) -> list[tuple[int, int, str]]:
        """(earlier step, later step, slot) of conflicting accesses that waits alone do not order."""
        program, found = self.program, []
        writes: dict[int, int] = {}
        reads: dict[int, list[int]] = {}
        rank_of, ops = program.tb_rank.tolist(), program.op.tolist()
        src = (program.src_buffer.tolist(), program.src_slot.tolist())
        dst = (program.dst_buffer.tolist(), program.dst_slot.tolist())
        count = program.count.tolist()
        for step in order:
            tb, op = self.tb_of[step], ops[step]
            rank = rank_of[tb]
            known = self._advance(tb, step)
            if op == _CPY and _is_idle(memory, rank, src, dst, step):
                continue
            pairs: list[tuple[int, int]] = []
            if READS_SRC[op]:
                for at in memory.touched(rank, src[0][step], src[1][step], count[step]):
                    pairs += [(writes[at], at)] if at in writes else []
                    reads.setdefault(at, []).append(step)
            if WRITES_DST[op]:
                for at in memory.touched(rank, dst[0][step], dst[1][step], count[step]):
                    pairs += [(before, at) for before in reads.pop(at, ())]
                    pairs += [(writes[at], at)] if at in writes else []
                    writes[at] = step
            for before, at in pairs:
                other = self.tb_of[before]
                if other != tb and known.get(other, -1) < before:
                    found.append((before, step, memory.describe(rank, at)))
        return found

    def _advance(self, tb: int, step: int) -> dict[int, int]:
        known = self.known[tb]
        goal = self.goal[step]
        if goal >= 0:
            for other, reached in self.at_step[goal].items():
                if reached > known.get(other, -1):
                    known[other] = reached
        if step in self.waited_for:
            self.at_step[step] = {**known, tb: step}
        return known


def _is_idle(
    memory: Memory, rank: int, src: tuple[list[int], ...], dst: tuple[list[int], ...], step: int
) -> bool:
    """A copy from a slot to itself, as in place there are, does nothing and is not done."""
    to = memory.first[rank][dst[0][step]] + dst[1][step]
    source = memory.first[rank][src[0][step]] + src[1][step]
    return memory.same[to] == memory.same[source]


class _Ancestors:
    """Which step certainly ran before which: program order, waits, and messages of any rank."""

    def __init__(self, program: Program, order: list[int]) -> None:
        self.start: list[int] = program.tb_start.tolist()
        self.tb_of: list[int] = program.tb_of.tolist()
        self.place = {step: at for at, step in enumerate(order)}
        waits = zip(program.wait_tb.tolist(), program.wait_step.tolist(), strict=True)
        self.goal = [self.start[tb] + step if tb >= 0 else -1 for tb, step in waits]
        self.sender: dict[int, int] = {}
        send, recv = connections(program)
        fifos: dict[int, deque[int]] = {}
        ops = program.op.tolist()
        for step in order:
            tb = self.tb_of[step]
            if RECEIVES[ops[step]]:
                self.sender[step] = fifos[recv[tb]].popleft()
            if SENDS[ops[step]]:
                fifos.setdefault(send[tb], deque()).append(step)

    def precedes(self, earlier: int, later: int) -> bool:
        """Whether a path leads from ``earlier`` to ``later``."""
        seen, stack = {later}, [later]
        while stack:
            step = stack.pop()
            before = [self.goal[step], self.sender.get(step, -1)]
            before += [step - 1] if step > self.start[self.tb_of[step]] else []
            for other in before:
                if other == earlier:
                    return True
                if other >= 0 and other not in seen and self.place[other] > self.place[earlier]:
                    seen.add(other)
                    stack.append(other)
        return False
