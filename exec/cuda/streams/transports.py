"""The ends of connections between contexts: peer memory with events, or messages of MPI.

Each connection has the slots of its FIFO ("places"). Peer copies (AdapCC Sec. V-B) go straight into the
receiver's slots, whose events the sender opens once through CUDA IPC. Between hosts the slots are in pinned
memory on both sides, or in GPU memory if MPI can read GPU memory. The GPU copies later chunks while earlier
ones travel, which hides the copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from exec.cuda.streams.contexts import Streams

__all__ = ["MessageIn", "MessageOut", "MpiNotices", "Notices", "PeerIn", "PeerOut"]


class Notices(Protocol):
    """Each end's count of the messages queued on its GPU; the GPU may not have moved them yet."""

    def tell(self) -> None:
        """Tell the other end that one more message is queued here."""

    def seen(self) -> int:
        """Return the number of messages that the other end has queued."""


class MpiNotices:
    """Notices as empty MPI messages, with a tag for each direction."""

    def __init__(self, comm: Any, peer: int, out_tag: int, in_tag: int) -> None:
        self._comm, self._peer, self._out_tag, self._in_tag = comm, peer, out_tag, in_tag
        self._nothing = bytearray(1)
        self._sent: deque[Any] = deque()
        self._count = 0

    def tell(self) -> None:
        while self._sent and self._sent[0].Test():
            self._sent.popleft()
        self._sent.append(self._comm.Isend([self._nothing, 0], dest=self._peer, tag=self._out_tag))

    def seen(self) -> int:
        while self._comm.Iprobe(source=self._peer, tag=self._in_tag):
            self._comm.Recv([self._nothing, 0], source=self._peer, tag=self._in_tag)
            self._count += 1
        return self._count


class _PeerEnd:
    """One end of a connection in peer memory: slots, their events, and the number of messages so far."""

    def __init__(
        self,
        streams: Streams,
        places: Sequence[int],
        full: Sequence[Any],
        free: Sequence[Any],
        notices: Notices,
    ) -> None:
        self._streams, self._places, self._full, self._free = streams, places, full, free
        self._notices, self._number = notices, 0

    def idle(self) -> bool:
        return True


class PeerOut(_PeerEnd):
    """The sender's end; ``places`` are slots in the receiver's memory, which this GPU can write.

    For each slot, ``full`` is an event of the sender and ``free`` one of the receiver.
    """

    def room(self, stream: Any) -> int:
        place = self._number % len(self._places)
        if self._number >= len(self._places):
            if self._notices.seen() <= self._number - len(self._places):
                return 0
            self._streams.wait(stream, self._free[place])
        return self._places[place]

    def sent(self, size_bytes: int, stream: Any) -> None:
        self._streams.record(self._full[self._number % len(self._places)], stream)
        self._number += 1
        self._notices.tell()


class PeerIn(_PeerEnd):
    """The receiver's end; ``places`` are slots in its own memory, with events as in `PeerOut`."""

    def message(self, size_bytes: int, stream: Any) -> int:
        if self._notices.seen() <= self._number:
            return 0
        place = self._number % len(self._places)
        self._streams.wait(stream, self._full[place])
        return self._places[place]

    def taken(self, stream: Any) -> None:
        self._streams.record(self._free[self._number % len(self._places)], stream)
        self._number += 1
        self._notices.tell()


Window = Callable[[int, int], Any]
"""(address, bytes) → a buffer argument for MPI."""


class MessageOut:
    """The sender's end over MPI: a message starts when the GPU has filled its slot.

    ``done`` returns whether the GPU has reached an event.
    """

    def __init__(
        self,
        streams: Streams,
        places: Sequence[int],
        comm: Any,
        peer: int,
        tag: int,
        window: Window,
        done: Callable[[Any], bool],
    ) -> None:
        self._streams, self._places, self._window, self._done = streams, places, window, done
        self._comm, self._peer, self._tag = comm, peer, tag
        self._events = [streams.event() for _ in places]
        self._filling: deque[tuple[int, int]] = deque()
        self._requests: list[Any] = [None] * len(places)
        self._number = 0

    def room(self, stream: Any) -> int:
        self.idle()
        place = self._number % len(self._places)
        if self._requests[place] is not None or any(at == place for at, _ in self._filling):
            return 0
        return self._places[place]

    def sent(self, size_bytes: int, stream: Any) -> None:
        place = self._number % len(self._places)
        self._streams.record(self._events[place], stream)
        self._filling.append((place, size_bytes))
        self._number += 1

    def idle(self) -> bool:
        # In order: the k-th message sent must be the k-th received.
        while self._filling and self._done(self._events[self._filling[0][0]]):
            place, size_bytes = self._filling.popleft()
            content = self._window(self._places[place], size_bytes)
            self._requests[place] = self._comm.Isend(content, dest=self._peer, tag=self._tag)
        for place, request in enumerate(self._requests):
            if request is not None and request.Test():
                self._requests[place] = None
        return not self._filling and all(request is None for request in self._requests)


class MessageIn:
    """The receiver's end over MPI: a receive is posted for each slot that the GPU has finished reading."""

    def __init__(
        self,
        streams: Streams,
        places: Sequence[int],
        place_bytes: int,
        comm: Any,
        peer: int,
        tag: int,
        window: Window,
        done: Callable[[Any], bool],
    ) -> None:
        self._streams, self._places, self._place_bytes = streams, places, place_bytes
        self._window, self._done = window, done
        self._comm, self._peer, self._tag = comm, peer, tag
        self._events = [streams.event() for _ in places]
        self._using: deque[int] = deque()
        self._requests = deque((place, self._post_receive(place)) for place in range(len(places)))
        self._arrived: int | None = None

    def message(self, size_bytes: int, stream: Any) -> int:
        self.idle()
        if self._arrived is None:
            if not self._requests or not self._requests[0][1].Test():
                return 0
            self._arrived = self._requests.popleft()[0]
        return self._places[self._arrived]

    def taken(self, stream: Any) -> None:
        assert self._arrived is not None
        self._streams.record(self._events[self._arrived], stream)
        self._using.append(self._arrived)
        self._arrived = None

    def idle(self) -> bool:
        while self._using and self._done(self._events[self._using[0]]):
            place = self._using.popleft()
            self._requests.append((place, self._post_receive(place)))
        return not self._using

    def close(self) -> None:
        """Cancel the open receives; no message will arrive for them."""
        for _, request in self._requests:
            request.Cancel()
            request.Wait()

    def _post_receive(self, place: int) -> Any:
        content = self._window(self._places[place], self._place_bytes)
        return self._comm.Irecv(content, source=self._peer, tag=self._tag)
