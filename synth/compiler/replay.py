"""The judge of programs: the emitted steps themselves are replayed, chunk by chunk.

Nothing of how a program was made is believed. Its shape is checked, its threadblocks are run with
bounded FIFOs, every slot is followed as the set of contributions it holds, and every two accesses
to one slot must be ordered.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from synth.compiler.order import FIFO_DEPTH, connections, walk
from synth.compiler.races import races
from synth.compiler.shape import shape
from synth.program import INPUT, OPS, OUTPUT, READS_SRC, RECEIVES, SENDS, WRITES_DST, Program
from synth.slots import Memory

__all__ = ["judge"]

_FLAWED = -1
_RE = OPS.index("re")


class _Value(NamedTuple):
    """What a slot holds: contributions (a bit for each rank) to a chunk; or why that is not so."""

    chunk: int
    ranks: int
    flaw: str = ""


def judge(program: Program, depth: int = FIFO_DEPTH) -> list[str]:
    """Findings, each with rank, threadblock and step; an empty list proves the program.

    Proven are: every slot exists; nothing deadlocks with ``depth`` messages in each FIFO; nothing
    unwritten is read; each rank ends with every contribution to what it wants exactly once; no two
    threadblocks access a slot in an order left to chance. That holds for each placement (out of
    place, in place) that the program claims. O(steps), and O(steps) again for each suspected race.
    """
    found = shape(program)
    if found:
        return found
    ran = walk(program, depth)
    if ran.blocked:
        return list(ran.blocked)
    placements = [in_place for in_place in (False, True) if _claims(program, in_place)]
    if not placements:
        return ["the program is valid neither out of place nor in place, as it says itself"]
    for in_place in placements:
        memory = Memory(program, in_place=in_place)
        findings = _Contents(program, memory).follow(ran.order) + races(program, memory, ran.order)
        if not in_place:
            findings += _writes_to_input(program)
        found += [f"{'in place: ' if in_place else ''}{finding}" for finding in findings]
    return list(dict.fromkeys(found))


def _claims(program: Program, in_place: bool) -> bool:
    return program.in_place if in_place else program.out_of_place


def _writes_to_input(program: Program) -> list[str]:
    writes = np.array(WRITES_DST)[program.op] & (program.dst_buffer == INPUT)
    return [
        f"{program.place(int(step))} writes i[{program.dst_slot[step]}], "
        "but out of place the input belongs to the caller"
        for step in np.flatnonzero(writes)
    ]


class _Contents:
    """Follows what every slot holds."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program, self.memory = program, memory
        self.values: list[_Value | None] = [None] * memory.total
        self.found: list[str] = []
        for rank, first in enumerate(memory.first):
            for slot, chunk in enumerate(memory.slots.input_chunks(rank).tolist()):
                self.values[first[INPUT] + slot] = _Value(chunk, 1 << rank)

    def follow(self, order: list[int]) -> list[str]:
        """Apply the steps in ``order``, then compare the outputs with the postcondition."""
        program, touched = self.program, self.memory.touched
        send, recv = connections(program)
        fifos: list[deque[list[_Value]]] = [deque() for _ in range(max([*send, *recv, -1]) + 1)]
        tb_of, rank_of, ops = program.tb_of.tolist(), program.tb_rank.tolist(), program.op.tolist()
        src = (program.src_buffer.tolist(), program.src_slot.tolist())
        dst = (program.dst_buffer.tolist(), program.dst_slot.tolist())
        count = program.count.tolist()
        for step in order:
            tb, op, length = tb_of[step], ops[step], count[step]
            rank = rank_of[tb]
            moved: list[_Value] = []
            if READS_SRC[op]:
                source = touched(rank, src[0][step], src[1][step], length)
                moved = [self._read(step, at) for at in source]
            target = touched(rank, dst[0][step], dst[1][step], length) if WRITES_DST[op] else []
            if op == _RE:
                moved = self._sums(step, [self._read(step, at) for at in target], moved)
            if RECEIVES[op]:
                received = self._received(step, fifos[recv[tb]].popleft())
                moved = self._sums(step, received, moved) if READS_SRC[op] else received
            for at, value in zip(target, moved, strict=False):
                self.values[at] = value
            if SENDS[op]:
                fifos[send[tb]].append(moved)
        self._check_results()
        return self.found

    def _read(self, step: int, at: int) -> _Value:
        value = self.values[at]
        if value is None:
            rank = int(self.program.tb_rank[self.program.tb_of[step]])
            slot = self.memory.describe(rank, at)
            flaw = f"{self.program.place(step)} reads {slot}, which nothing has written"
            self.found.append(flaw)
            return _Value(_FLAWED, 0, flaw)
        return value

    def _received(self, step: int, message: list[_Value]) -> list[_Value]:
        expected = int(self.program.count[step])
        if len(message) == expected:
            return message
        flaw = f"{self.program.place(step)} expects {expected} chunks, the message has {len(message)}"
        self.found.append(flaw)
        return [_Value(_FLAWED, 0, flaw)] * expected

    def _sums(self, step: int, first: list[_Value], second: list[_Value]) -> list[_Value]:
        return [self._sum(step, a, b) for a, b in zip(first, second, strict=True)]

    def _sum(self, step: int, a: _Value, b: _Value) -> _Value:
        """Contributions of both; a wrong sum is a finding only where it ends in a result."""
        if a.chunk == b.chunk != _FLAWED and not a.ranks & b.ranks and self.program.collective.reduces:
            return _Value(a.chunk, a.ranks | b.ranks)
        if a.flaw or b.flaw:
            return a if a.flaw else b
        if a.chunk != b.chunk:
            wrong = f"adds chunk {a.chunk} to chunk {b.chunk}"
        elif not self.program.collective.reduces:
            wrong = f"reduces chunk {a.chunk}, which {self.program.collective.kind} only copies"
        else:
            wrong = f"adds the contribution of {_ranks(a.ranks & b.ranks)} to chunk {a.chunk} a second time"
        return _Value(_FLAWED, 0, f"{self.program.place(step)} {wrong}")

    def _check_results(self) -> None:
        collective, slots = self.program.collective, self.memory.slots
        everyone = (1 << collective.ranks) - 1
        for rank, first in enumerate(self.memory.first):
            for slot, chunk in enumerate(slots.output_chunks(rank).tolist()):
                source = slots.source[chunk]
                wanted = _Value(chunk, everyone if source < 0 else 1 << source)
                value = self.values[self.memory.same[first[OUTPUT] + slot]]
                if value != wanted:
                    self.found.append(
                        f"rank {rank} must end with chunk {chunk} in o[{slot}]: {_lacks(value, wanted)}"
                    )


def _lacks(value: _Value | None, wanted: _Value) -> str:
    if value is None:
        return "nothing is written there"
    if value.flaw:
        return value.flaw
    if value.chunk != wanted.chunk:
        return f"it holds chunk {value.chunk}"
    return f"the contribution of {_ranks(wanted.ranks & ~value.ranks)} is missing"


def _ranks(bits: int) -> str:
    found = [str(rank) for rank in range(bits.bit_length()) if bits >> rank & 1]
    shown = ", ".join(found[:8]) + (" …" if len(found) > 8 else "")
    return f"rank {shown}" if len(found) == 1 else f"ranks {shown}"
