"""The part of a program that one rank runs, encoded as tables of integers for the compiled interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from exec.mpi import interpreter
from exec.mpi.traffic import Message, Traffic
from exec.program import Layout, Move, Span
from probes.base import Indices, UsageError
from synth.program import INPUT, READS_SRC, Program

__all__ = [
    "MemoryAddresses",
    "Tables",
    "Tiling",
    "make_input_optional",
    "pieces_of",
    "slot_bytes",
    "tables_of",
    "tiling_of",
]

_ADDING = (interpreter.RRC, interpreter.RRS, interpreter.RRCS)


@dataclass(frozen=True)
class Tiling:
    """The cut of every chunk: the program runs ``tiles`` times, on ``tile`` elements of a chunk each time."""

    tiles: int
    tile: int


def tiling_of(layout: Layout, item_bytes: int, tile_bytes: int) -> Tiling:
    """Return tiles whose largest message has about ``tile_bytes``; a single tile if chunks are shorter."""
    most = int(layout.program.count.max(initial=1))
    if layout.largest * most * item_bytes <= tile_bytes or layout.largest <= 1:
        return Tiling(1, max(1, layout.largest * most))
    # A tile is a whole number of cache lines, so that two tiles never share a line.
    line = max(1, 64 // item_bytes)
    tile = max(line, tile_bytes // (item_bytes * most) // line * line)
    return Tiling(-(-layout.largest // tile), tile)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of `exec.mpi.interpreter`; ``step_of`` is the program's step of each row of ``steps``."""

    blocks: Indices
    steps: Indices
    pieces: Indices
    waits: Indices
    step_of: Indices


@dataclass(frozen=True, eq=False)
class MemoryAddresses:
    """The addresses of this rank's three buffers, and of other ranks' buffers that are read in place.

    ``far(rank, buffer)`` is (address in this process, 0, 0) for a buffer that is mapped here. For any other
    buffer it is (0, process id, address of the word that holds the buffer's address in that process).
    """

    own: tuple[int, int, int]
    far: Callable[[int, int], tuple[int, int, int]]
    item_bytes: int


def tables_of(
    layout: Layout,
    rank: int,
    moves: list[Move],
    messages: Traffic,
    tiling: Tiling,
    links: dict[int, int],
    memory: MemoryAddresses,
    wired: Callable[[int], bool],
) -> Tables:
    """Return the tables of ``rank``; ``links`` maps its connections to rows in the table of links."""
    program = layout.program
    blocks = np.flatnonzero(program.tb_rank == rank)
    first = int(program.tb_start[blocks[0]]) if len(blocks) else 0
    end = int(program.tb_start[blocks[-1] + 1]) if len(blocks) else 0
    fill = _TableBuilder(layout, messages, tiling, links, memory, wired, int(blocks[:1].sum()), first)
    by_step = {move.step: move for move in moves if move.rank == rank}
    for step in range(first, end):
        fill.add(step, by_step.get(step), moves)
    starts, ends = program.tb_start[blocks] - first, program.tb_start[blocks + 1] - first
    fill.fuse(starts.tolist(), ends.tolist())
    return Tables(
        np.stack([starts, ends, starts, starts], axis=1).astype(np.int64),
        _table(fill.steps, interpreter.STEP_WORDS),
        _table(fill.pieces, interpreter.PIECE_WORDS),
        _table(fill.waits, 2),
        np.arange(first, end),
    )


class _TableBuilder:
    """The rows of the tables of one rank, added step by step."""

    def __init__(
        self,
        layout: Layout,
        messages: Traffic,
        tiling: Tiling,
        links: dict[int, int],
        memory: MemoryAddresses,
        wired: Callable[[int], bool],
        first_block: int,
        first_step: int,
    ) -> None:
        self.layout, self.program, self.messages = layout, layout.program, messages
        self.tiling, self.links, self.memory, self.wired = tiling, links, memory, wired
        self.first_block, self.first_step = first_block, first_step
        self.steps: list[list[int]] = []
        self.pieces: list[list[int]] = []
        self.waits: list[list[int]] = []

    def add(self, step: int, move: Move | None, moves: list[Move]) -> None:
        """Append the row of a step, its pieces and its waits; ``move`` is None if the step moves nothing."""
        into, out = self.messages.incoming.get(step), self.messages.outgoing.get(step)
        first, waited = len(self.pieces), len(self.waits)
        far = None
        if move is not None:
            far = self._remote_source(into, move, moves)
            self.pieces += pieces_of(self.layout, self.tiling, move, far, self.memory)
        for message in self.messages.waits.get(step, ()):
            if not message.copied:
                self.waits.append([self.links[message.connection], message.number])
        block, goal = int(self.program.wait_tb[step]), -1
        if block >= 0:
            goal = int(self.program.tb_start[block] + self.program.wait_step[step]) - self.first_step
        row = [int(self.program.op[step]), 1, block - self.first_block if block >= 0 else -1, goal]
        row += [
            *self._link_columns(into, in_slot=far is None),
            *self._link_columns(out, in_slot=out is not None and out.copied),
        ]
        self.steps.append([*row, first, len(self.pieces), waited, len(self.waits)])

    def _link_columns(self, message: Message | None, *, in_slot: bool) -> tuple[int, int, int]:
        if message is None:
            return (-1, 0, 0)
        return (self.links[message.connection], message.number, int(in_slot))

    def _remote_source(
        self, message: Message | None, move: Move, moves: list[Move]
    ) -> tuple[int, tuple[Span | None, ...]] | None:
        """Return (rank, spans) of the memory that a message is read from; None if it is read from a slot."""
        if message is None:
            return None
        if message.landed:
            return move.rank, tuple(part.dst for part in move.parts)
        if message.copied or self.wired(message.connection):
            return None
        return moves[message.sent].rank, message.spans

    def fuse(self, starts: list[int], ends: list[int]) -> None:
        """Fuse consecutive reductions into the same place, unless another step waits for one of them."""
        program = self.program
        awaited = set((program.tb_start[program.wait_tb] + program.wait_step)[program.wait_tb >= 0].tolist())
        for start, end in zip(starts, ends, strict=True):
            head = start
            for at in range(start + 1, end):
                if at - 1 + self.first_step in awaited or not self._can_fuse(head, at):
                    head = at
                else:
                    self.steps[head][interpreter.FUSED] += 1

    def _can_fuse(self, head: int, at: int) -> bool:
        """Return whether both steps reduce into the same elements and ``at`` reads none of these."""
        first, other = self.steps[head], self.steps[at]
        if first[interpreter.OP] != interpreter.RE or other[interpreter.OP] != interpreter.RE:
            return False
        here, there = (
            self.pieces[row[interpreter.PIECE_FIRST] : row[interpreter.PIECE_END]] for row in (first, other)
        )
        targets = {piece[interpreter.DST] for piece in here}
        return (
            len(here) == len(there) > 0
            and all(
                (one[interpreter.DST], one[interpreter.LENGTH])
                == (two[interpreter.DST], two[interpreter.LENGTH])
                for one, two in zip(here, there, strict=True)
            )
            and targets.isdisjoint(piece[interpreter.SRC] for piece in there)
        )


def pieces_of(
    layout: Layout,
    tiling: Tiling,
    move: Move,
    far: tuple[int, tuple[Span | None, ...]] | None,
    memory: MemoryAddresses,
) -> Iterator[list[int]]:
    """Yield the words of each piece of a step, in the order of the interpreter's table."""
    at, item_bytes = 0, memory.item_bytes
    for number, part in enumerate(move.parts):
        spans = (part.src, part.dst, far[1][number] if far else None)
        bases = (*(memory.own[span.buffer] if span else 0 for span in spans[:2]), 0)
        process, base_at = 0, 0
        if spans[2] is not None and far is not None:
            mapped_at, process, base_at = memory.far(far[0], spans[2].buffer)
            bases = (bases[0], bases[1], mapped_at)
        count = max(span.slots for span in spans if span) if tiling.tiles > 1 and layout.even else 1
        length = part.length // count
        for piece in range(count):
            addresses = [
                base + (span.start + piece * length) * item_bytes if span else 0
                for base, span in zip(bases, spans, strict=True)
            ]
            yield [*addresses, at, length, process, base_at]
            at += min(tiling.tile, length) * item_bytes


def make_input_optional(program: Program, tables: Tables) -> Indices:
    """Make the steps that add this rank's input skip it while it is missing; return their rows of pieces.

    Raises UsageError if the program does anything with the input other than adding it to a received message.
    """
    of = tables.step_of
    reading = np.array(READS_SRC)[program.op[of]] & (program.src_buffer[of] == INPUT)
    steps = tables.steps[reading]
    if not np.isin(steps[:, interpreter.OP], _ADDING).all():
        raise UsageError(f"program {program.name} does more with the input of a late rank than add it")
    tables.steps[reading, interpreter.OP] += interpreter.OPTIONAL
    spans = steps[:, (interpreter.PIECE_FIRST, interpreter.PIECE_END)].tolist()
    return np.array([row for first, end in spans for row in range(first, end)], dtype=np.int64)


def slot_bytes(layout: Layout, tiling: Tiling, move: Move, item_bytes: int) -> int:
    """Return the bytes that a message of this step takes in a slot."""
    nowhere = MemoryAddresses((0, 0, 0), lambda rank, buffer: (0, 0, 0), item_bytes)
    pieces = list(pieces_of(layout, tiling, move, None, nowhere))
    return (
        pieces[-1][interpreter.AT] + min(tiling.tile, pieces[-1][interpreter.LENGTH]) * item_bytes
        if pieces
        else 0
    )


def _table(rows: list[list[int]], columns: int) -> Indices:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)
