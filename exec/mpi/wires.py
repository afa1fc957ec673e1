"""Connections between hosts over MPI: persistent requests that send and receive the messages of links.

The interpreter writes and reads messages as it does within one host. MPI does what the other rank would do
there. A receive is posted as soon as its memory is free, and a send is started as soon as its message is
written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from exec.program import Wire

__all__ = ["SEGMENT_BYTES", "MpiWires"]


# Open MPI sends longer messages over TCP by a protocol that halves the rate of a link with traffic both ways.
SEGMENT_BYTES = 60 << 10
# Seconds to sleep between two checks while a paced message is not due.
_NAP_S = 2e-4


class MpiWires:
    """All wires of one rank; call ``begin`` before each run, and ``serve`` whenever the interpreter returns.

    Each segment of a message has a request of its own.
    """

    def __init__(self, comm: Any, wires: Sequence[Wire]) -> None:
        from mpi4py import MPI

        self._wires = wires
        self._requests = [_requests(comm, wire) for wire in wires]
        self._testsome, self._waitsome = MPI.Request.Testsome, MPI.Request.Waitsome
        self._active: list[Any] = []
        self._owner: list[tuple[int, int]] = []
        self._base = [0] * len(wires)
        self._started = [0] * len(wires)
        self._prefix = [0] * len(wires)
        # Segments of each message that have not completed yet.
        self._left: list[list[int]] = [[] for _ in wires]
        # When the next message of each paced wire may start, and the earliest of these times.
        self._due_s = [0.0] * len(wires)
        self._soonest_s = inf

    def begin(self, run: int) -> None:
        """Start run number ``run``: post all receives whose memory is free."""
        for at, requests in enumerate(self._requests):
            self._base[at] = run * len(requests)
            self._started[at] = self._prefix[at] = 0
            self._left[at] = [len(segments) for segments in requests]
        self._due_s = [0.0] * len(self._wires)
        self._start()

    def serve(self, *, wait: bool) -> bool:
        """Start requests that can start, and count those that have completed; return whether any has.

        With ``wait``, first wait until one completes.
        """
        self._start()
        if wait and self._soonest_s < inf:
            return self._serve_until_due()
        return self._end(self._waitsome if wait else self._testsome)

    def _serve_until_due(self) -> bool:
        """Wait until a request completes or the next paced message is due; return whether one completed."""
        while not self._end(self._testsome):
            left_s = self._soonest_s - time.perf_counter()
            if left_s <= 0:
                return False
            time.sleep(min(left_s, _NAP_S))
        return True

    def _end(self, of: Callable[[list[Any]], list[int] | None]) -> bool:
        """Count completed requests and start those that can start then; return whether any completed."""
        found = of(self._active) if self._active else None
        if not found:
            return False
        for index in found:
            at, number = self._owner[index]
            self._left[at][number] -= 1
        for at in {self._owner[index][0] for index in found}:
            self._count(at)
        gone = set(found)
        self._active = [request for index, request in enumerate(self._active) if index not in gone]
        self._owner = [owner for index, owner in enumerate(self._owner) if index not in gone]
        self._start()
        return True

    def free(self) -> None:
        for request in (each for every in self._requests for segments in every for each in segments):
            request.Free()
        self._wires, self._requests = (), []

    def _start(self) -> None:
        self._soonest_s = inf
        for at, wire in enumerate(self._wires):
            for number in range(self._started[at], len(wire.messages)):
                if not wire.may_move(number, self._base[at]):
                    break
                if wire.outgoing and wire.bytes_per_s and not self._is_due(at, wire.messages[number].size):
                    break
                for request in self._requests[at][number]:
                    request.Start()
                    self._active.append(request)
                    self._owner.append((at, number))
                self._started[at] = number + 1

    def _is_due(self, at: int, size_bytes: int) -> bool:
        """Return whether the next message of a paced wire may start now; if so, set the next due time."""
        now_s = time.perf_counter()
        if now_s < self._due_s[at]:
            self._soonest_s = min(self._soonest_s, self._due_s[at])
            return False
        # A late wire may catch up by at most one message.
        own_s = size_bytes / self._wires[at].bytes_per_s
        self._due_s[at] = max(self._due_s[at], now_s - own_s) + own_s
        return True

    def _count(self, at: int) -> None:
        """Set the counter to the number of messages before the first incomplete one."""
        left, prefix = self._left[at], self._prefix[at]
        before = prefix
        while prefix < len(left) and not left[prefix]:
            prefix += 1
        if len(self._wires[at].through_ns):
            self._wires[at].through_ns[before:prefix] = time.perf_counter_ns()
        self._prefix[at] = prefix
        self._wires[at].counters[1 if self._wires[at].outgoing else 0] = self._base[at] + prefix


def _requests(comm: Any, wire: Wire) -> list[list[Any]]:
    make = (
        partial(comm.Send_init, dest=wire.peer)
        if wire.outgoing
        else partial(comm.Recv_init, source=wire.peer)
    )
    return [
        [
            make(message[cut : cut + SEGMENT_BYTES], tag=wire.channel)
            for cut in range(0, max(1, message.size), SEGMENT_BYTES)
        ]
        for message in wire.messages
    ]
