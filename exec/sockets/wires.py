"""Connections of a plan between hosts, over TCP or UCX; a link's counters tell which messages may move.

Each connection of a program has its own socket, which carries its messages in order. So no message waits
behind a message of another connection, and only data is sent. Where UCX carries the messages, each connection
has its own tag, and its socket only tells when the other end closes it.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from exec.program import Array, Wire
from exec.sockets.stalls import Pending, Stalls
from exec.sockets.ucx import Tagged
from probes.base import LostRankError, Mask

__all__ = ["FlowWires"]

# After this long without data, check whether a rank was lost.
_POLL_MS = 20
# Linux's number of the option, which Python lacks, and the value for no limit.
_SO_MAX_PACING_RATE, _UNPACED = 47, 2**64 - 1
# The pacing rate of each socket; plans share sockets.
_PACED: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
# Time in which data that has arrived is still taken after the other end closed its connection.
_GRACE_S = 0.2
_NOTHING = memoryview(b"")


class FlowWires:
    """All wires of one rank; call ``begin`` before each run, and ``serve`` whenever the interpreter returns.

    ``check`` raises if the run cannot go on; ``stalls`` receives the pending waits. The kernel buffers sent
    data, so a message counts as read once the socket has taken it, or UCX needs its memory no more.
    """

    def __init__(
        self,
        wires: Sequence[Wire],
        ends: Sequence[tuple[int, socket.socket]],
        check: Callable[[], None],
        stalls: Stalls,
        tagged: Sequence[Tagged | None],
    ) -> None:
        self._ends = [
            _End(wire, *end) if over is None else _TaggedEnd(wire, *end, over)
            for wire, end, over in zip(wires, ends, tagged, strict=True)
        ]
        self._workers = {over.worker for over in tagged if over is not None}
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
        with contextlib.ExitStack() as stack:
            for worker in self._workers:
                stack.enter_context(worker.attended())
            return self._wait()

    def _wait(self) -> bool:
        """Wait a moment until data is ready, and move it; return whether a message ended."""
        # Another thread may have moved data over UCX until now.
        if self._workers and self._move():
            return True
        poll = select.poll()
        for end in self._ends:
            if end.wants():
                poll.register(end.socket, end.event)
        for worker in self._workers:
            if not worker.arm():
                return self._move()
            poll.register(worker, select.POLLIN)
        now_s = time.monotonic()
        held_s = [end.due_s - now_s for end in self._ends if end.due_s > now_s]
        if poll.poll(min([_POLL_MS, *(1000 * wait_s for wait_s in held_s)])):
            return self._move()
        self._check()
        return False

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        """Replace each message's memory by ``moved(message)``; call it only between runs."""
        for end in self._ends:
            end.move_to(moved)

    def free(self) -> None:
        """Forget the messages; the connections stay for later plans, unless some message is under way."""
        over_ucx = [end for end in self._ends if isinstance(end, _TaggedEnd)]
        if any(end.is_under_way for end in over_ucx):
            for end in over_ucx:
                end.close()
            for worker in self._workers:
                worker.close()
        self._ends, self._workers = [], set()

    def _pending(self) -> Iterator[Pending]:
        for end in self._ends:
            if end.wants():
                yield Pending(end.member, end.socket, end.outgoing, end.moved)

    def _move(self) -> bool:
        moved = False
        for worker in self._workers:
            worker.progress()
        for end in self._ends:
            try:
                moved |= end.move()
            except OSError as error:
                self._check()
                if isinstance(error, _CarrierError):
                    self._stalls.distrust(end.member)
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
        self.moved, self.due_s = 0, 0.0
        self.event = select.POLLOUT if wire.outgoing else select.POLLIN
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


class _CarrierError(ConnectionResetError):
    """An error: UCX has ended a connection whose other end is still there."""


class _TaggedEnd(_End):
    """One end of a connection over UCX: the messages that were begun and are not through yet."""

    def __init__(self, wire: Wire, member: int, end: socket.socket, tagged: Tagged) -> None:
        super().__init__(wire, member, end)
        self.event = select.POLLIN
        self._tagged, self._begun, self._failed = tagged, 0, False
        self._requests = collections.deque[int]()
        self._ended_s = 0.0

    def begin(self, run: int) -> None:
        self._base, self._through, self._begun = run * len(self._messages), 0, 0
        self.due_s = 0.0

    def wants(self) -> bool:
        return self.is_under_way or self._may_begin()

    def move(self) -> bool:
        """Begin the messages that may move, and count those that are through; return whether any is."""
        before = self._through
        if not self._failed:
            try:
                self._move()
            except OSError:
                self._failed = True
        if self._through > before:
            self._ended_s = 0.0
        elif self.is_under_way:
            self._check_other_end()
        return self._through > before

    @property
    def is_under_way(self) -> bool:
        """Whether a message was begun and is not through, or has failed."""
        return self._failed or bool(self._requests)

    def close(self) -> None:
        """Close the socket, before the worker of UCX, which may still move data, closes.

        The other end would take a worker that closes first for a fault of UCX.
        """
        self._requests.clear()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def _move(self) -> None:
        worker, requests = self._tagged.worker, self._requests
        while self._may_begin() and self._is_due():
            requests.append(self._start(self._begun))
            self._begun += 1
        while requests and worker.is_done(requests[0]):
            requests.popleft()
            self.moved += len(self._messages[self._through])
            self._done()

    def _may_begin(self) -> bool:
        return self._begun < len(self._messages) and self._wire.may_move(self._begun, self._base)

    def _start(self, number: int) -> int:
        """Begin message ``number`` and return its request; 0 if it is through, or is left out."""
        size, address = len(self._messages[number]), self._arrays[number].ctypes.data
        if not size:
            return 0
        if self.outgoing:
            return self._tagged.worker.send(self._tagged.endpoint, self._tagged.tag, address, size)
        return self._tagged.worker.receive(self._tagged.tag, address, size)

    def _is_due(self) -> bool:
        """Return whether the next message of a paced wire may begin now; if so, set the next due time."""
        if not (self.outgoing and self._wire.bytes_per_s):
            return True
        now_s = time.monotonic()
        if now_s < self.due_s:
            return False
        # A late wire may catch up by at most one message.
        own_s = len(self._messages[self._begun]) / self._wire.bytes_per_s
        self.due_s = max(self.due_s, now_s - own_s) + own_s
        return True

    def _check_other_end(self) -> None:
        """Raise OSError if the other end is gone and what it sent before has arrived."""
        closed = self._is_closed()
        if not (closed or self._failed or self._tagged.worker.has_ended(self._tagged.endpoint)):
            return
        now_s = time.monotonic()
        self._ended_s = self._ended_s or now_s
        if now_s - self._ended_s > _GRACE_S:
            if closed:
                raise ConnectionResetError("closed its connection")
            raise _CarrierError("is not reached by UCX any more")

    def _is_closed(self) -> bool:
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
