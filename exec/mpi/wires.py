"""The connections between hosts over MPI: persistent requests that move messages between a link's counters.

The interpreter writes messages and reads messages as on one host; here the other end is MPI. A receive is
posted as soon as its memory is free, a send started as soon as its message is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from exec.program import Wire

__all__ = ["SEGMENT_BYTES", "MpiWires"]


# Open MPI sends what is longer over TCP by a protocol that halves a link which carries data both ways.
SEGMENT_BYTES = 60 << 10
# How long a rank sleeps between looks while it holds messages back.
_NAP_S = 2e-4


class MpiWires:
    """All wires of one rank; ``begin`` before each run, ``serve`` whenever the interpreter comes back.

    A message is one request for each of its segments.
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
        # How many segments of each message have not ended yet.
        self._left: list[list[int]] = [[] for _ in wires]
        # When the next message of a wire that is paced may start, and the first of these moments.
        self._due_s = [0.0] * len(wires)
        self._soonest_s = inf

    def begin(self, run: int) -> None:
        """Post what may arrive from the start of run number ``run``."""
        for at, requests in enumerate(self._requests):
            self._base[at] = run * len(requests)
            self._started[at] = self._prefix[at] = 0
            self._left[at] = [len(segments) for segments in requests]
        self._due_s = [0.0] * len(self._wires)
        self._start()

    def serve(self, *, wait: bool) -> bool:
        """Start and end what can be; with ``wait`` stay until something has ended. Whether anything did."""
        self._start()
        if wait and self._soonest_s < inf:
            return self._serve_until_due()
        return self._end(self._waitsome if wait else self._testsome)

    def _serve_until_due(self) -> bool:
        """End what can be until the next message may start, or something has ended; whether anything did."""
        while not self._end(self._testsome):
            left_s = self._soonest_s - time.perf_counter()
            if left_s <= 0:
                return False
            time.sleep(min(left_s, _NAP_S))
        return True

    def _end(self, of: Callable[[list[Any]], list[int] | None]) -> bool:
        """Count the requests that have ended, and start what can be then; whether any has."""
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
        """Give the requests back to MPI."""
        for request in (one for every in self._requests for segments in every for one in segments):
            request.Free()
        self._wires, self._requests = (), []

    def _start(self) -> None:
        self._soonest_s = inf
        for at, wire in enumerate(self._wires):
            while self._started[at] < len(wire.messages) and self._may_start(at, wire):
                number = self._started[at]
                if wire.outgoing and wire.bytes_per_s and not self._is_due(at, wire.messages[number].size):
                    break
                for request in self._requests[at][number]:
                    request.Start()
                    self._active.append(request)
                    self._owner.append((at, number))
                self._started[at] = number + 1

    def _is_due(self, at: int, size_bytes: int) -> bool:
        """Return whether a message of a wire that is paced may start now.

        If so, when the next one may is set.
        """
        now_s = time.perf_counter()
        if now_s < self._due_s[at]:
            self._soonest_s = min(self._soonest_s, self._due_s[at])
            return False
        # Who comes late may catch up on one message.
        own_s = size_bytes / self._wires[at].bytes_per_s
        self._due_s[at] = max(self._due_s[at], now_s - own_s) + own_s
        return True

    def _may_start(self, at: int, wire: Wire) -> bool:
        number = self._started[at]
        if wire.outgoing:
            return bool(wire.counters[0] > self._base[at] + number)
        if wire.early[number] or number < wire.depth:
            return True
        return bool(wire.counters[1] > self._base[at] + number - wire.depth)

    def _count(self, at: int) -> None:
        """Messages end in any order; the counter tells how many have without a gap."""
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
