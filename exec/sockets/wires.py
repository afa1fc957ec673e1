"""TCP connections of a plan between hosts; the counters of each link tell which messages may move.

Each connection of a program has its own socket, which carries its messages in order. So no message waits
behind a message of another connection, and only data is sent.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from exec.program import Array, Wire
from exec.sockets.stalls import Pending, Stalls
from probes.base import LostRankError, Mask

__all__ = ["FlowWires"]

# After this long without data, check whether a rank was lost.
_POLL_MS = 20
# Linux's number of the option, which Python lacks, and the value for no limit.
_SO_MAX_PACING_RATE, _UNPACED = 47, 2**64 - 1
# The pacing rate of each socket; plans share sockets.
_PACED: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
_NOTHING = memoryview(b"")


class FlowWires:
    """All wires of one rank; call ``begin`` before each run, and ``serve`` whenever the interpreter returns.

    ``check`` raises if the run cannot go on; ``stalls`` receives the pending waits. The kernel buffers sent
    data, so a message counts as read once the socket has taken it.
    """

    def __init__(
        self,
        wires: Sequence[Wire],
        ends: Sequence[tuple[int, socket.socket]],
        check: Callable[[], None],
        stalls: Stalls,
    ) -> None:
        self._ends = [_End(wire, *end) for wire, end in zip(wires, ends, strict=True)]
        self._check, self._stalls = check, stalls

    def begin(self, run: int) -> None:
        for end in self._ends:
            end.begin(run)

    def leave_out(self, messages: Mapping[tuple[bool, int, int], Mask]) -> None:
        """Leave these messages out of the coming runs, at both ends.

        ``messages`` maps (whether outgoing, peer, channel) of a wire to the mask of its messages that are
        left out. Wires that are not in ``messages`` send all.
        """
        for end in self._ends:
            end.leave_out(messages.get(end.key))

    def serve(self, *, wait: bool) -> bool:
        """Move data that is ready; with ``wait``, wait a moment for some. Return whether a message ended."""
        if self._move():
            return True
        self._stalls.look(self._pending())
        if not wait:
            return False
        poll = select.poll()
        for end in self._ends:
            if end.wants():
                poll.register(end.socket, select.POLLOUT if end.outgoing else select.POLLIN)
        if poll.poll(_POLL_MS):
            return self._move()
        self._check()
        return False

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        """Replace each message's memory by ``moved(message)``; call it only between runs."""
        for end in self._ends:
            end.move_to(moved)

    def free(self) -> None:
        """Forget the messages; the sockets stay for later plans."""
        self._ends = []

    def _pending(self) -> Iterator[Pending]:
        for end in self._ends:
            if end.wants():
                yield Pending(end.member, end.socket, end.outgoing, end.moved)

    def _move(self) -> bool:
        moved = False
        for end in self._ends:
            try:
                moved |= end.move()
            except OSError as error:
                self._check()
                raise LostRankError(f"rank {end.peer}: {error}") from error
        return moved


def _pace(end: socket.socket, bytes_per_s: float) -> None:
    """Have the kernel send at this rate at most; 0 is no limit."""
    rate = max(1, round(bytes_per_s)) if bytes_per_s else _UNPACED
    if _PACED.get(end, _UNPACED) != rate:
        end.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("Q", rate))
        _PACED[end] = rate


class _End:
    """One end of a connection: this run's messages that are through, and the next message's bytes so far.

    ``member`` is its peer's number in the mesh, ``moved`` the bytes moved in all runs.
    """

    def __init__(self, wire: Wire, member: int, end: socket.socket) -> None:
        self.outgoing, self.peer, self.member, self.socket = wire.outgoing, wire.peer, member, end
        self.key = wire.outgoing, wire.peer, wire.channel
        self.moved = 0
        self._wire, self._arrays = wire, wire.messages
        self._messages = [memoryview(message.data) for message in self._arrays]
        self._base = self._through = self._offset = 0

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        self._arrays = [moved(message) for message in self._arrays]
        self._messages = [memoryview(message.data) for message in self._arrays]

    def leave_out(self, messages: Mask | None) -> None:
        self._messages = [memoryview(message.data) for message in self._arrays]
        for number in np.flatnonzero(messages).tolist() if messages is not None else ():
            self._messages[number] = _NOTHING

    def begin(self, run: int) -> None:
        self._base, self._through = run * len(self._messages), 0
        if self.outgoing:
            _pace(self.socket, self._wire.bytes_per_s)

    def wants(self) -> bool:
        """Return whether a message could move if the socket allowed it."""
        return self._through < len(self._messages) and self._wire.may_move(self._through, self._base)

    def move(self) -> bool:
        """Send what the interpreter has written, or receive what fits; return whether a message ended."""
        before = self._through
        while self.wants():
            message = self._messages[self._through]
            while self._offset < len(message):
                rest = message[self._offset :]
                try:
                    count = self.socket.send(rest) if self.outgoing else self.socket.recv_into(rest)
                except BlockingIOError:
                    return self._through > before
                if not count:
                    raise ConnectionResetError("closed its connection")
                self._offset, self.moved = self._offset + count, self.moved + count
            self._done()
        return self._through > before

    def _done(self) -> None:
        if len(self._wire.through_ns):
            self._wire.through_ns[self._through] = time.perf_counter_ns()
        self._through, self._offset = self._through + 1, 0
        self._wire.counters[int(self.outgoing)] = self._base + self._through
