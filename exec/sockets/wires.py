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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from exec.program import Array, Wire
from exec.sockets.stalls import Pending, Stalls
from exec.sockets.tcp_ends import FAILED, MOVED, TcpEnds, serve_ends
from exec.sockets.ucx import Tagged
from probes.base import LostRankError, Mask

__all__ = ["FlowWires"]

# After this long without data, check whether a rank was lost.
_WAIT_MS = 20
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
        every = list(zip(wires, ends, tagged, strict=True))
        self._tagged = [_TaggedEnd(wire, *end, over) for wire, end, over in every if over is not None]
        plain = [(wire, *end) for wire, end, over in every if over is None]
        self._members = [member for _, member, _ in plain]
        self._tcp = TcpEnds([wire for wire, *_ in plain], [end for *_, end in plain])
        self._workers = {over.worker for over in tagged if over is not None}
        self._check, self._stalls = check, stalls

    @property
    def tcp_ends_at(self) -> int:
        """The address of all ends for `serve_ends`; 0 if UCX carries some messages."""
        return 0 if self._tagged else self._tcp.at

    def begin(self, run: int) -> None:
        self._tcp.begin(run)
        for end in self._tagged:
            end.begin(run)

    def leave_out(self, messages: Mapping[tuple[bool, int, int], Mask]) -> None:
        """Leave these messages out of the coming runs, at both ends.

        ``messages`` maps (whether outgoing, peer, channel) of a wire to the mask of its messages that are
        left out. Wires that are not in ``messages`` send all.
        """
        self._tcp.leave_out(messages)
        for end in self._tagged:
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
        for row in self._tcp.waiting():
            outgoing = self._tcp.wires[row].outgoing
            poll.register(self._tcp.sockets[row], select.POLLOUT if outgoing else select.POLLIN)
        for tagged in self._tagged:
            if tagged.wants():
                poll.register(tagged.socket, select.POLLIN)
        for worker in self._workers:
            if not worker.arm():
                return self._move()
            poll.register(worker, select.POLLIN)
        now_s = time.monotonic()
        held_s = [end.due_s - now_s for end in self._tagged if end.due_s > now_s]
        if poll.poll(min([_WAIT_MS, *(1000 * wait_s for wait_s in held_s)])):
            return self._move()
        self._check()
        return False

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        """Replace each message's memory by ``moved(message)``; call it only between runs."""
        self._tcp.move_to(moved)
        for end in self._tagged:
            end.move_to(moved)

    def free(self) -> None:
        """Forget the messages; the connections stay for later plans, unless some message is under way."""
        if any(end.is_under_way for end in self._tagged):
            for end in self._tagged:
                end.close()
            for worker in self._workers:
                worker.close()
        self._tcp, self._tagged, self._workers = TcpEnds([], []), [], set()

    def _pending(self) -> Iterator[Pending]:
        for row in self._tcp.waiting():
            outgoing, moved = self._tcp.wires[row].outgoing, self._tcp.bytes_moved(row)
            yield Pending(self._members[row], self._tcp.sockets[row], outgoing, moved)
        for end in self._tagged:
            if end.wants():
                yield Pending(end.member, end.socket, end.outgoing, end.moved)

    def _move(self) -> bool:
        moved = False
        for worker in self._workers:
            worker.progress()
        state = serve_ends(self._tcp.at, 0)
        if state == FAILED:
            self._raise_lost(*self._tcp.failure())
        moved = moved or state == MOVED
        for end in self._tagged:
            try:
                moved |= end.move()
            except OSError as error:
                if isinstance(error, _CarrierError):
                    self._stalls.distrust(end.member)
                self._raise_lost(end.peer, error)
        return moved

    def _raise_lost(self, peer: int, error: OSError) -> NoReturn:
        self._check()
        raise LostRankError(f"rank {peer}: {error}") from error


class _CarrierError(ConnectionResetError):
    """An error: UCX has ended a connection whose other end is still there."""


class _TaggedEnd:
    """One end of a connection over UCX: the messages that were begun and are not through yet.

    ``member`` is its peer's number in the mesh, ``moved`` the bytes moved in all runs.
    """

    def __init__(self, wire: Wire, member: int, end: socket.socket, tagged: Tagged) -> None:
        self.outgoing, self.peer, self.member, self.socket = wire.outgoing, wire.peer, member, end
        self.key = wire.outgoing, wire.peer, wire.channel
        self.moved, self.due_s = 0, 0.0
        self._wire, self._arrays = wire, wire.messages
        self._messages = [memoryview(message.data) for message in self._arrays]
        self._base = self._through = self._begun = 0
        self._tagged, self._failed = tagged, False
        self._requests = collections.deque[int]()
        self._ended_s = 0.0

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        self._arrays = [moved(message) for message in self._arrays]
        self._messages = [memoryview(message.data) for message in self._arrays]

    def leave_out(self, messages: Mask | None) -> None:
        self._messages = [memoryview(message.data) for message in self._arrays]
        for number in np.flatnonzero(messages).tolist() if messages is not None else ():
            self._messages[number] = _NOTHING

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
            if len(self._wire.through_ns):
                self._wire.through_ns[self._through] = time.perf_counter_ns()
            self._through += 1
            self._wire.counters[int(self.outgoing)] = self._base + self._through

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
