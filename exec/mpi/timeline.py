"""When each message of a program is posted, sent and waited for, so that no rank can block for ever.

All ranks compute the same timeline from the same program. Every event has a moment in one global
order, and depends only on events of earlier moments: so the ranks cannot deadlock, whatever MPI
buffers or does not buffer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from exec.layout import Layout
from exec.moves import Move, Part, Span
from synth.cells import Cells, cells_of

__all__ = ["START", "Message", "timeline"]

START = -1.0
_STAGING_SLOTS = 2
_DIRECT = ("r", "rcs")


@dataclass
class Message:
    """One message: its two ends, where it lands, and when its buffers are free.

    Moments count moves: at ``m`` means just before move m of its rank does its work, ``m + 0.5``
    just after. ``staging`` is the receiver's staging slot, or -1 where the message lands in its
    destination; ``bounced`` says that the sender sends a copy, so that nothing waits for it.
    """

    connection: int
    sent: int
    part: int
    span: Span | None
    length: int
    received: int = -1
    landing: Span | None = None
    staging: int = -1
    posted: float = START
    bounced: bool = False
    waits: list[float] = field(default_factory=list)


def timeline(layout: Layout, moves: list[Move], *, in_place: bool) -> list[Message]:
    """The messages of a program in the order in which they are sent; O(parts of moves)."""
    line = _Timeline(cells_of(layout.program, in_place=in_place))
    for at, move in enumerate(moves):
        line.add(at, move)
    for message in line.messages:
        # A rank that waits for its send before the receiver has posted may wait for itself.
        if any(moment <= message.posted for moment in message.waits):
            message.bounced = True
            message.waits.clear()
    return line.messages


class _Timeline:
    def __init__(self, memory: Cells) -> None:
        self.memory = memory
        self.messages: list[Message] = []
        self._under_way: defaultdict[int, deque[Message]] = defaultdict(deque)
        self._last_post: defaultdict[int, float] = defaultdict(lambda: START)
        self._staged: defaultdict[int, list[float]] = defaultdict(list)
        self._sending: defaultdict[int, list[Message]] = defaultdict(list)
        self._accessed: dict[int, int] = {}

    def add(self, at: int, move: Move) -> None:
        """Account for one move: what it receives, what it touches, what it sends."""
        direct = move.op in _DIRECT
        for number, part in enumerate(move.parts):
            reads, writes = self._touched(move.rank, part.src), self._touched(move.rank, part.dst)
            if move.op == "cpy" and reads == writes:
                continue
            if move.from_ >= 0:
                self._receive(self._under_way[move.from_].popleft(), at, direct, part, writes)
            if not direct:
                self._wait_for_sends(writes, at)
            for slot in (*reads, *writes):
                self._accessed[slot] = at
            if move.to >= 0:
                self._send(at, number, move, part, reads if move.op == "s" else writes)

    def _send(self, at: int, number: int, move: Move, part: Part, slots: list[int]) -> None:
        span = part.src if move.op == "s" else part.dst
        message = Message(move.to, at, number, span, part.length, bounced=move.op == "rrs")
        self.messages.append(message)
        self._under_way[move.to].append(message)
        for slot in slots:
            self._sending[slot].append(message)

    def _receive(self, message: Message, at: int, direct: bool, part: Part, slots: list[int]) -> None:
        message.received = at
        if direct:
            message.landing = part.dst
            free = max(
                (self._accessed[slot] + 0.5 for slot in slots if slot in self._accessed), default=START
            )
            if any(self._sending[slot] for slot in slots):
                free = float(at)
        else:
            users = self._staged[message.connection]
            message.staging = len(users) % _STAGING_SLOTS
            free = users[-_STAGING_SLOTS] if len(users) >= _STAGING_SLOTS else START
            users.append(at + 0.5)
        # MPI matches the messages of a connection in the order in which receives are posted.
        message.posted = self._last_post[message.connection] = max(free, self._last_post[message.connection])
        if direct:
            self._wait_for_sends(slots, message.posted)

    def _wait_for_sends(self, slots: list[int], moment: float) -> None:
        """Sends that still read these slots must be over before they are written at ``moment``."""
        for slot in slots:
            for message in self._sending.pop(slot, ()):
                if not message.bounced:
                    message.waits.append(moment)

    def _touched(self, rank: int, span: Span | None) -> list[int]:
        return [] if span is None else self.memory.touched(rank, span.buffer, span.slot, span.slots)
