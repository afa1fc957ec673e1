"""The connections between hosts over MPI: persistent requests that move messages between a link's counters.

The interpreter writes messages and reads messages as on one host; here the other end is MPI. A receive is
posted as soon as its memory is free, a send started as soon as its message is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from exec.program.wires import Wire

__all__ = ["SEGMENT_BYTES", "MpiWires"]


# Open MPI sends what is longer over TCP by a protocol that halves a link which carries data both ways.
SEGMENT_BYTES = 60 << 10


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

    def begin(self, run: int) -> None:
        """Post what may arrive from the start of run number ``run``."""
        for at, requests in enumerate(self._requests):
            self._base[at] = run * len(requests)
            self._started[at] = self._prefix[at] = 0
            self._left[at] = [len(segments) for segments in requests]
        self._start()

    def serve(self, *, wait: bool) -> bool:
        """Start and end what can be; with ``wait`` stay until something has ended. Whether anything did."""
        self._start()
        if not self._active:
            return False
        found = (self._waitsome if wait else self._testsome)(self._active)
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
        for at, wire in enumerate(self._wires):
            while self._started[at] < len(wire.messages) and self._may_start(at, wire):
                number = self._started[at]
                for request in self._requests[at][number]:
                    request.Start()
                    self._active.append(request)
                    self._owner.append((at, number))
                self._started[at] = number + 1

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
