"""Connections over NCCL: each has its own communicator of two ranks and its own stream.

NCCL's send may wait for the receive, but then only the connection's stream waits. Meanwhile messages stay in
the slots of the program's FIFO, so the context can go on until all slots are full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exec.cuda.streams.contexts import Streams
from probes.live import cuda_errors

__all__ = ["NcclIn", "NcclOut", "available", "connected"]

# The two ranks of each connection's communicator.
_SENDER, _RECEIVER = 0, 1
# ncclInt8 of nccl.h: messages are sent as bytes.
_INT8 = 0


def available() -> bool:
    """Return whether CuPy finds NCCL; its warning about a missing NCCL is suppressed."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cupy.cuda import nccl

    return bool(nccl.available)


def connected(comm: Any, peer: int, tag: int, place: int, stream: Any, *, sends: bool) -> Any:
    """Return a communicator of this rank and ``peer``, which must call this too.

    All ranks make their communicators in the same order. One byte of GPU memory at ``place`` is sent, because
    NCCL connects two ranks at their first message and blocks until both take part. In a ring whose ranks all
    start with a send, that would deadlock.
    """
    from cupy.cuda import nccl

    with cuda_errors():
        if sends:
            name = nccl.get_unique_id()
            comm.send(name, dest=peer, tag=tag)
            pair = nccl.NcclCommunicator(2, name, _SENDER)
            pair.send(place, 1, _INT8, _RECEIVER, stream.ptr)
        else:
            pair = nccl.NcclCommunicator(2, comm.recv(source=peer, tag=tag), _RECEIVER)
            pair.recv(place, 1, _INT8, _SENDER, stream.ptr)
        stream.synchronize()
    return pair


class _NcclEnd:
    """One end of a connection; ``places`` are slots in this GPU's memory."""

    def __init__(self, streams: Streams, places: Sequence[int], pair: Any) -> None:
        self._streams, self._places, self._pair = streams, places, pair
        self._wire = streams.stream()
        self._full, self._free = ([streams.event() for _ in places] for _ in range(2))
        self._number, self._asked = 0, False

    def idle(self) -> bool:
        return True


class NcclOut(_NcclEnd):
    """The sender's end."""

    def room(self, stream: Any) -> int:
        place = self._number % len(self._places)
        if self._number >= len(self._places):
            self._streams.wait(stream, self._free[place])
        return self._places[place]

    def sent(self, size_bytes: int, stream: Any) -> None:
        place = self._number % len(self._places)
        self._streams.record(self._full[place], stream)
        self._streams.wait(self._wire, self._full[place])
        with cuda_errors():
            self._pair.send(self._places[place], size_bytes, _INT8, _RECEIVER, self._wire.ptr)
        self._streams.record(self._free[place], self._wire)
        self._number += 1


class NcclIn(_NcclEnd):
    """The receiver's end; ``_asked`` says whether the next message has been requested."""

    def message(self, size_bytes: int, stream: Any) -> int:
        place = self._number % len(self._places)
        if not self._asked:
            if self._number >= len(self._places):
                self._streams.wait(self._wire, self._free[place])
            with cuda_errors():
                self._pair.recv(self._places[place], size_bytes, _INT8, _SENDER, self._wire.ptr)
            self._streams.record(self._full[place], self._wire)
            self._streams.wait(stream, self._full[place])
            self._asked = True
        return self._places[place]

    def taken(self, stream: Any) -> None:
        self._streams.record(self._free[self._number % len(self._places)], stream)
        self._number += 1
        self._asked = False
