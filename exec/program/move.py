"""The steps of a program as moves of elements, for one element count; every executor runs these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from exec.program.layout import Layout
from probes.base import DataError
from synth.check import Waits, blocked
from synth.program import FIFO_DEPTH, GLRE, GSTORE, OPS, READS_SRC, RECEIVES, SCRATCH, SENDS, WRITES_DST
from synth.simulation import connections, links_of, run

__all__ = ["Move", "MovePart", "Span", "moves"]


class Span(NamedTuple):
    """Elements ``start`` to ``stop`` of one buffer, which fill ``slots`` slots from ``slot`` on."""

    buffer: int
    slot: int
    slots: int
    start: int
    stop: int


class MovePart(NamedTuple):
    """One message or one local operation: it reads ``src`` and writes ``dst``, each None if unused."""

    src: Span | None
    dst: Span | None
    length: int


class Move(NamedTuple):
    """One step: it sends on connection ``to`` and receives on ``from_`` (-1: none). No part is empty.

    ``members`` are the ranks whose memory a glre reads or a gstore writes; other steps have none.
    """

    step: int
    rank: int
    op: str
    to: int
    from_: int
    parts: tuple[MovePart, ...]
    members: tuple[int, ...] = ()


def moves(layout: Layout, depth: int = FIFO_DEPTH) -> list[Move]:
    """Return every step of every rank, in an order in which they can run; O(steps).

    Raises DataError if the program deadlocks, naming the ranks that wait for each other, and if it moves
    a chunk into a slot of another size.
    """
    program = layout.program
    order, _, filled = run(links_of(program), depth)
    if len(order) < program.steps or filled.any():
        raise DataError(f"program {program.name}", blocked(Waits(program), order, depth))
    return list(_Sizes(layout).moves(order.tolist()))


class _Sizes:
    """The sizes of messages and of scratch slots, followed step by step.

    The size of a scratch slot is not fixed: it is the size of the chunk that the slot holds.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout, self.program = layout, layout.program
        self.held: dict[tuple[int, int], int] = {}

    def moves(self, order: list[int]) -> Iterator[Move]:
        program = self.program
        send, recv = connections(program)
        fifos: list[deque[list[int]]] = [deque() for _ in range(max([*send, *recv, -1]) + 1)]
        tb_of, rank_of, ops = program.tb_of.tolist(), program.tb_rank.tolist(), program.op.tolist()
        for step in order:
            tb, op = tb_of[step], ops[step]
            rank = rank_of[tb]
            to = send[tb] if SENDS[op] else -1
            from_ = recv[tb] if RECEIVES[op] else -1
            if from_ >= 0:
                lengths = fifos[from_].popleft()
            else:
                lengths = self._source_lengths(rank, step) if READS_SRC[op] else []
            parts = tuple(self._parts(rank, step, op, lengths))
            if to >= 0:
                fifos[to].append(lengths)
            members = self._members(rank, step) if op in (GLRE, GSTORE) else ()
            yield Move(step, rank, OPS[op], to, from_, parts, members)

    def _members(self, rank: int, step: int) -> tuple[int, ...]:
        """Return the ranks of a step's group; raise DataError if a slot is another place at one of them."""
        program, layout = self.program, self.layout
        reads = program.op[step] == GLRE
        buffer = int((program.src_buffer if reads else program.dst_buffer)[step])
        slot = int((program.src_slot if reads else program.dst_slot)[step])
        members: list[int] = program.members(rank).tolist()
        for at in range(slot, slot + int(program.count[step])) if buffer != SCRATCH else ():
            places = {(layout.start(one, buffer, at), layout.length(one, buffer, at)) for one in members}
            if len(places) > 1:
                problem = f"{program.place(step)} reaches different places of the members' buffers"
                raise DataError(f"program {program.name}", [problem])
        return tuple(members)

    def _source_lengths(self, rank: int, step: int) -> list[int]:
        """Return the length of each slot that the step reads; one total if chunks are equal."""
        program, layout = self.program, self.layout
        buffer, first, count = (
            int(column[step]) for column in (program.src_buffer, program.src_slot, program.count)
        )
        if layout.even:
            return [count * layout.largest]
        slots = range(first, first + count)
        if buffer == SCRATCH:
            return [self.held.get((rank, slot), layout.largest) for slot in slots]
        return [layout.length(rank, buffer, slot) for slot in slots]

    def _parts(self, rank: int, step: int, op: int, lengths: list[int]) -> Iterator[MovePart]:
        program = self.program
        slots = int(program.count[step]) if self.layout.even else 1
        for at, length in enumerate(lengths):
            src = dst = None
            if READS_SRC[op]:
                buffer, slot = int(program.src_buffer[step]), int(program.src_slot[step])
                src = self._span(step, rank, buffer, slot + at, slots, length)
            if WRITES_DST[op]:
                buffer, slot = int(program.dst_buffer[step]), int(program.dst_slot[step])
                dst = self._span(step, rank, buffer, slot + at, slots, length)
                if buffer == SCRATCH:
                    self.held[rank, slot + at] = length
            if length:
                yield MovePart(src, dst, length)

    def _span(self, step: int, rank: int, buffer: int, slot: int, slots: int, length: int) -> Span:
        layout = self.layout
        if not layout.even and buffer != SCRATCH and layout.length(rank, buffer, slot) != length:
            problem = (
                f"{self.program.place(step)} moves a chunk of {length} elements into or out of a slot "
                f"of {layout.length(rank, buffer, slot)}"
            )
            hint = f"Choose a size that {self.program.collective.share} chunks divide."
            raise DataError(f"program {self.program.name}", [problem], hint=hint)
        start = layout.start(rank, buffer, slot)
        return Span(buffer, slot, slots, start, start + length)
