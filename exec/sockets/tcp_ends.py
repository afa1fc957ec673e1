"""Sending and receiving the messages of a plan over TCP, in one compiled function for all connections.

Where all messages of a rank go over TCP, `exec.mpi.interpreter` calls this function after each pass. A run
then returns to Python only to check whether the other ranks live.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numba import carray  # type: ignore[attr-defined] # numba has it, and does not list it

from exec.intrinsics import (
    error_number,
    load,
    pointer,
    poll_descriptors,
    read_clock,
    receive_bytes,
    send_bytes,
    store,
)
from exec.program import Array, Wire
from exec.sockets.descriptors import descriptor_of
from probes.base import Indices, Mask
from synth.kernels import compiled_always

__all__ = ["FAILED", "MOVED", "NOTHING", "TcpEnds", "serve_ends"]

# The states that `serve_ends` returns.
NOTHING, MOVED, FAILED = range(3)
# The words of the head: address and rows of the two tables, memory for poll's arguments and for a clock.
_HEAD_WORDS = 6
_ENDS_AT, _ENDS, _MESSAGES_AT, _MESSAGES, _POLLED, _CLOCK = range(_HEAD_WORDS)
# A row for each end. WRITTEN and READ: the addresses of the connection's counters. FIRST: the row of the
# first message of a run. COUNT: the messages of a run. BASE: the messages of earlier runs. THROUGH: the
# messages of this run that are through. OFFSET: the bytes of the next message that are through. TOTAL: the
# bytes of all runs. THROUGH_NS: the address of the times of messages, or 0. ERROR: the system's number of the
# error that ended the connection, or _CLOSED.
_END_WORDS, _CLOSED = 13, -1
(
    _DESCRIPTOR,
    _OUTGOING,
    _WRITTEN,
    _READ,
    _FIRST,
    _COUNT,
    _DEPTH,
    _BASE,
    _THROUGH,
    _OFFSET,
    _TOTAL,
    _THROUGH_NS,
    _ERROR,
) = range(_END_WORDS)
# A row for each message.
_MESSAGE_WORDS = 3
_ADDRESS, _LENGTH, _EARLY = range(_MESSAGE_WORDS)
_POLLIN, _POLLOUT, _EAGAIN = select.POLLIN, select.POLLOUT, errno.EAGAIN
_NO_SIGNAL = int(socket.MSG_NOSIGNAL)
_MONOTONIC = 1
# Linux's number of the option, which Python lacks, and the value for no limit.
_SO_MAX_PACING_RATE, _UNPACED = 47, 2**64 - 1
# The pacing rate of each socket; plans share sockets.
_PACED: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()


class TcpEnds:
    """All TCP ends of one rank; ``at`` is the address that `serve_ends` takes.

    The memory of ``wires`` must stay as long as this is used; ``sockets`` may be closed by `close_flow`.
    """

    def __init__(self, wires: Sequence[Wire], sockets: Sequence[socket.socket]) -> None:
        self.wires, self.sockets = tuple(wires), tuple(sockets)
        self._arrays = [message for wire in wires for message in wire.messages]
        counts = [len(wire.messages) for wire in wires]
        firsts = np.cumsum([0, *counts]).tolist()
        self._ends = np.zeros((len(wires), _END_WORDS), np.int64)
        self._descriptors = [descriptor_of(end) for end in sockets]
        for row, (wire, end) in enumerate(zip(wires, self._descriptors, strict=True)):
            written = wire.counters.ctypes.data
            read = written + wire.counters.strides[0]
            shape = firsts[row], counts[row], wire.depth
            self._ends[row, : _DEPTH + 1] = end.number, wire.outgoing, written, read, *shape
            self._ends[row, _THROUGH_NS] = wire.through_ns.ctypes.data if len(wire.through_ns) else 0
        self._messages = np.zeros((len(self._arrays), _MESSAGE_WORDS), np.int64)
        self._messages[:, _EARLY] = [free for wire in wires for free in wire.early]
        self._place()
        self._polled, self._clock = np.zeros(len(wires), np.int64), np.zeros(2, np.int64)
        tables = self._ends, self._messages
        described = [word for table in tables for word in (table.ctypes.data, len(table))]
        self._head = np.array([*described, self._polled.ctypes.data, self._clock.ctypes.data], np.int64)
        self.at = int(self._head.ctypes.data)

    def begin(self, run: int) -> None:
        self._ends[:, _BASE] = run * self._ends[:, _COUNT]
        self._ends[:, _THROUGH] = 0
        for wire, end in zip(self.wires, self.sockets, strict=True):
            if wire.outgoing:
                _pace(end, wire.bytes_per_s)

    def move_to(self, moved: Callable[[Array], Array]) -> None:
        """Replace each message's memory by ``moved(message)``; only between runs."""
        self._arrays = [moved(message) for message in self._arrays]
        self._place()

    def leave_out(self, messages: Mapping[tuple[bool, int, int], Mask]) -> None:
        """Leave messages out of the coming runs, as `FlowWires.leave_out`."""
        self._place()
        first = 0
        for wire in self.wires:
            stop = first + len(wire.messages)
            if (masked := messages.get((wire.outgoing, wire.peer, wire.channel))) is not None:
                self._messages[first:stop][masked, _LENGTH] = 0
            first = stop

    def waiting(self) -> list[int]:
        """Return the rows of ends whose next message could move if the connection allowed it."""
        state = zip(self.wires, *self._ends[:, (_COUNT, _BASE, _THROUGH)].T.tolist(), strict=True)
        return [
            row
            for row, (wire, count, base, through) in enumerate(state)
            if through < count and wire.may_move(through, base)
        ]

    def bytes_moved(self, row: int) -> int:
        """Return the bytes that have passed an end in all runs."""
        return int(self._ends[row, _TOTAL])

    def failure(self) -> tuple[int, OSError]:
        """Return the peer of a connection that has ended, and why, after `serve_ends` returned FAILED."""
        row = int(np.flatnonzero(self._ends[:, _ERROR])[0])
        number = int(self._ends[row, _ERROR])
        if number == _CLOSED:
            return self.wires[row].peer, ConnectionResetError("closed its connection")
        return self.wires[row].peer, OSError(number, os.strerror(number))

    def _place(self) -> None:
        """Write the addresses and the lengths of all messages."""
        self._messages[:, _ADDRESS] = [message.ctypes.data for message in self._arrays]
        self._messages[:, _LENGTH] = [message.nbytes for message in self._arrays]


def _pace(end: socket.socket, bytes_per_s: float) -> None:
    """Have the kernel send at this rate at most; 0 is no limit."""
    rate = max(1, round(bytes_per_s)) if bytes_per_s else _UNPACED
    if _PACED.get(end, _UNPACED) != rate:
        end.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("Q", rate))
        _PACED[end] = rate


@compiled_always
def serve_ends(at: int, wait_ms: int) -> int:
    """Move all data of a rank's ends that can move; return a state.

    If nothing moves, wait up to ``wait_ms`` until a connection is ready, and try once more. FAILED: a
    connection has ended (`TcpEnds.failure`). Otherwise MOVED if any data has passed, else NOTHING.
    """
    head = carray(pointer(at), _HEAD_WORDS, np.int64)
    ends = carray(pointer(head[_ENDS_AT]), (head[_ENDS], _END_WORDS), np.int64)
    messages = carray(pointer(head[_MESSAGES_AT]), (head[_MESSAGES], _MESSAGE_WORDS), np.int64)
    state = _move(head, ends, messages)
    if state != NOTHING or wait_ms == 0:
        return state
    polled, waiting = carray(pointer(head[_POLLED]), len(ends), np.int64), 0
    for row in range(len(ends)):
        if _may_move(ends, messages, row):
            # A struct pollfd: the descriptor, then the events in the third 16 bits.
            polled[waiting] = ends[row, _DESCRIPTOR] | (_POLLOUT if ends[row, _OUTGOING] else _POLLIN) << 32
            waiting += 1
    if poll_descriptors(pointer(head[_POLLED]), waiting, wait_ms) <= 0:
        return NOTHING
    return _move(head, ends, messages)


@compiled_always
def _move(head: Indices, ends: Indices, messages: Indices) -> int:
    state = NOTHING
    for row in range(len(ends)):
        if ends[row, _ERROR]:
            return FAILED
        while _may_move(ends, messages, row):
            message = ends[row, _FIRST] + ends[row, _THROUGH]
            left = messages[message, _LENGTH] - ends[row, _OFFSET]
            if left > 0:
                place = pointer(messages[message, _ADDRESS] + ends[row, _OFFSET])
                if ends[row, _OUTGOING]:
                    count = send_bytes(ends[row, _DESCRIPTOR], place, left, _NO_SIGNAL)
                else:
                    count = receive_bytes(ends[row, _DESCRIPTOR], place, left, 0)
                if count <= 0:
                    number = carray(error_number(), 1, np.int32)[0] if count < 0 else _CLOSED
                    if number == _EAGAIN:
                        break
                    ends[row, _ERROR] = number
                    return FAILED
                ends[row, _OFFSET] += count
                ends[row, _TOTAL] += count
                state = MOVED
                if count < left:
                    # The kernel has no more, or takes no more.
                    break
            _count_message(head, ends, row)
            state = MOVED
    return state


@compiled_always
def _may_move(ends: Indices, messages: Indices, row: int) -> bool:
    """Return whether the next message may move, as `exec.program.Wire.may_move`."""
    number = ends[row, _THROUGH]
    if number >= ends[row, _COUNT]:
        return False
    if ends[row, _OUTGOING]:
        return bool(load(ends[row, _WRITTEN]) > ends[row, _BASE] + number)
    if number < ends[row, _DEPTH] or messages[ends[row, _FIRST] + number, _EARLY]:
        return True
    return bool(load(ends[row, _READ]) > ends[row, _BASE] + number - ends[row, _DEPTH])


@compiled_always
def _count_message(head: Indices, ends: Indices, row: int) -> None:
    """Count a message that is through."""
    if ends[row, _THROUGH_NS]:
        read_clock(_MONOTONIC, pointer(head[_CLOCK]))
        now_ns = load(head[_CLOCK]) * 1_000_000_000 + load(head[_CLOCK] + 8)
        store(ends[row, _THROUGH_NS] + 8 * ends[row, _THROUGH], now_ns)
    ends[row, _THROUGH] += 1
    ends[row, _OFFSET] = 0
    counter = ends[row, _READ] if ends[row, _OUTGOING] else ends[row, _WRITTEN]
    store(counter, ends[row, _BASE] + ends[row, _THROUGH])
