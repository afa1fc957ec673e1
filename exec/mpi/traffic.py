"""The messages between the ranks of a program: the data of each, and when its memory is free again.

All ranks compute the same messages. Every step waits only for steps that come earlier in the order of
``moves``, so there is no deadlock. The ranks may run in any order that respects the waits.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from exec.program import Layout, Move, Span
from synth.memory_layout import Cells, cells_of

__all__ = ["Message", "Traffic", "traffic"]

_LANDING = ("r", "rcs")


@dataclass(eq=False)
class Message:
    """One message: the ``number``-th of its connection in each tile.

    ``sent`` and ``received`` are the indices of the moves that send and receive it. ``spans`` are its parts
    in the sender's buffers. ``copied``: the sender copies it into a slot, after which the sender's memory is
    free; otherwise it is read in place. ``landed``: a wire delivers it straight to its destination, which no
    earlier move has used.
    """

    connection: int
    number: int
    sent: int
    spans: tuple[Span | None, ...]
    copied: bool
    received: int = -1
    landed: bool = False


@dataclass
class Traffic:
    """The messages of each step; ``waits[step]`` must have been read before that step writes."""

    incoming: dict[int, Message] = field(default_factory=dict)
    outgoing: dict[int, Message] = field(default_factory=dict)
    waits: defaultdict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    per_tile: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))


def traffic(
    layout: Layout,
    moves: list[Move],
    *,
    in_place: bool,
    readable: Callable[[int, Span], bool],
    wired: Callable[[int], bool],
) -> Traffic:
    """Return the messages of all ranks; O(slots that the moves touch).

    ``readable(connection, span)`` says whether a message can be read in place; ``wired(connection)`` says
    whether it goes over a wire, which reads it without action of the receiver.
    """
    follow = _MemoryUses(cells_of(layout.program, in_place=in_place), readable, wired)
    for at, move in enumerate(moves):
        follow.add(at, move)
    return follow.found


class _MemoryUses:
    """The uses of all ranks' memory, followed move by move."""

    def __init__(
        self, memory: Cells, readable: Callable[[int, Span], bool], wired: Callable[[int], bool]
    ) -> None:
        self.memory, self.readable, self.wired = memory, readable, wired
        self.found = Traffic()
        self._under_way: defaultdict[int, deque[Message]] = defaultdict(deque)
        self._read_from: defaultdict[int, list[Message]] = defaultdict(list)
        self._used: set[int] = set()

    def add(self, at: int, move: Move) -> None:
        reads = [cell for part in move.parts for cell in self._touched(move.rank, part.src)]
        writes = [cell for part in move.parts for cell in self._touched(move.rank, part.dst)]
        if move.op == "cpy" and reads == writes:
            return
        if move.from_ >= 0:
            message = self._under_way[move.from_].popleft()
            message.received = at
            message.landed = self._lands_directly(move, writes)
            self.found.incoming[move.step] = message
        self._overwrite(move.step, writes)
        self._used.update(reads, writes)
        if move.to >= 0:
            self._send(at, move, reads if move.op == "s" else writes)

    def _lands_directly(self, move: Move, writes: list[int]) -> bool:
        return (
            self.wired(move.from_)
            and move.op in _LANDING
            and self._used.isdisjoint(writes)
            and all(part.dst is not None and self.readable(move.from_, part.dst) for part in move.parts)
        )

    def _send(self, at: int, move: Move, cells: list[int]) -> None:
        spans = tuple(part.src if move.op == "s" else part.dst for part in move.parts)
        lies = move.op != "rrs" and all(span is not None and self.readable(move.to, span) for span in spans)
        message = Message(move.to, self.found.per_tile[move.to], at, spans, copied=not lies)
        self.found.per_tile[move.to] += 1
        self.found.outgoing[move.step] = message
        self._under_way[move.to].append(message)
        if lies:
            for cell in cells:
                self._read_from[cell].append(message)

    def _overwrite(self, step: int, cells: list[int]) -> None:
        """Make ``step`` wait until messages in these cells have been read.

        A message that is received only after this step is copied into a slot instead, unless it goes over a
        wire.
        """
        for message in dict.fromkeys(
            message for cell in cells for message in self._read_from.pop(cell, ()) if not message.copied
        ):
            if message.received < 0 and not self.wired(message.connection):
                message.copied = True
            else:
                self.found.waits[step].append(message)

    def _touched(self, rank: int, span: Span | None) -> list[int]:
        return [] if span is None else self.memory.touched(rank, span.buffer, span.slot, span.slots)
