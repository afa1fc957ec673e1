"""FIFOs between hosts, for the persistent kernel: a thread of the host carries their messages (GC3 Sec. 5).

A kernel reaches no memory of another host. So each end of such a FIFO has places and counts of its own in
memory of its host that the kernel reaches, and the kernel does to them what it does to a peer's: it needs to
know nothing of this. At the sender the proxy waits for the count of what was put in, sends the slice to
the receiver's proxy and counts it as taken out; there it waits for room, receives into a place, and
counts it as put in. A rank sends and receives through its NIC, so it has one proxy.

The counts are plain words, written after what they count: on x86, as here, others see them in that order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np

from exec.cuda.kernel.encode import BLOCK, LINK, Encoded
from exec.cuda.kernel.fifo_memory import Arenas
from exec.cuda.kernel.rows import DOES, STEP
from exec.program.dtypes import Array
from probes.columns import Indices

__all__ = ["FarEnd", "FarFifos", "Proxy"]

_LINE_BYTES = 128
_PACK_BYTES = 16
# Looks without a message before the thread lets others have its core, and for how long.
_LOOKS, _NAP_S = 200, 50e-6


@dataclass(eq=False)
class FarEnd:
    """One end of a FIFO: its counts (put in, taken out), its places, and the bytes of a launch's slices.

    ``spans[n]`` is where the n-th slice of a launch begins in its place, and its bytes: alike on both ends.
    """

    fifo: int
    outgoing: bool
    peer: int
    counts: Indices
    places: Array
    spans: list[tuple[int, int]]
    slices: int
    # How many were begun, and how many are through, of all launches.
    begun: int = 0
    through: int = 0
    under_way: deque[Any] = field(default_factory=deque)

    @property
    def room(self) -> int:
        return len(self.places) * self.slices

    def view(self, number: int) -> Array:
        """The bytes of slice ``number``, counted from the first launch on."""
        place: Array = self.places[number // self.slices % len(self.places)]
        first, length = self.spans[number % len(self.spans)]
        slice_bytes: Array = place[first : first + length]
        return slice_bytes


class FarFifos:
    """All ends between hosts of the ranks that run here, and the memory they lie in.

    ``host_of`` numbers each rank's host, ``process_of`` is its process in the communicator. ``memory(bytes)``
    gives zeroed bytes that the host and the kernel see at one address.
    """

    def __init__(
        self,
        encoded: Encoded,
        places: Arenas,
        ranks: range,
        host_of: Sequence[int],
        process_of: Sequence[int],
        memory: Callable[[int], Array],
    ) -> None:
        self._encoded = encoded
        self.ends: list[FarEnd] = []
        pairs = zip(places.sender.tolist(), places.receiver.tolist(), strict=True)
        for fifo, (sender, receiver) in enumerate(pairs):
            if host_of[sender] == host_of[receiver]:
                continue
            for mine, other, outgoing in ((sender, receiver, True), (receiver, sender, False)):
                if mine in ranks:
                    self.ends.append(self._end(fifo, outgoing, process_of[other], memory))

    def point(self, links: Indices, blocks: range) -> None:
        """Put these ends in the place of the peers' in the kernel's table of addresses of ``blocks``."""
        fifos = self._encoded.fifos[blocks.start : blocks.stop]
        for end in self.ends:
            way = "out" if end.outgoing else "in"
            (row,) = np.flatnonzero(fifos[:, 0 if end.outgoing else 1] == end.fifo)
            put_in, taken_out = (int(end.counts[at : at + 1].ctypes.data) for at in (0, 1))
            links[row, LINK.index(f"{way}_slots")] = end.places.ctypes.data
            links[row, LINK.index(f"{way}_head")] = put_in
            links[row, LINK.index(f"{way}_credit")] = taken_out

    def _end(self, fifo: int, outgoing: bool, peer: int, memory: Callable[[int], Array]) -> FarEnd:
        encoded = self._encoded
        room, place_bytes = int(encoded.room[fifo]), encoded.place_bytes
        whole = memory(2 * _LINE_BYTES + room * place_bytes)
        counts: Indices = whole[: 2 * _LINE_BYTES].view(np.int64)[:: _LINE_BYTES // 8]
        slots = whole[2 * _LINE_BYTES :].reshape(room, place_bytes)
        spans = _spans(encoded, fifo, outgoing)
        return FarEnd(fifo, outgoing, peer, counts, slots, spans, encoded.slices)


def _spans(encoded: Encoded, fifo: int, outgoing: bool) -> list[tuple[int, int]]:
    """Of each slice that a launch moves through a FIFO, in order, where it begins in its place and its bytes.

    The kernel's own division: tiles, in each the steps of the threadblock, of each step its slices.
    """
    (tb,) = np.flatnonzero(encoded.fifos[:, 0 if outgoing else 1] == fifo)
    block = encoded.blocks[tb]
    first, count = int(block[BLOCK.index("first")]), int(block[BLOCK.index("steps")])
    steps = encoded.steps[first : first + count]
    moves = steps[:, STEP.index("does")] & DOES["sends" if outgoing else "receives"] != 0
    lengths = steps[moves, STEP.index("length")].tolist()
    pack, found = _PACK_BYTES // encoded.itemsize, []
    for tile in range(encoded.tiles):
        for whole in lengths:
            length = min(max(0, whole - tile * encoded.tile), encoded.tile)
            parts = encoded.slices * pack
            each = -(-length // parts) * pack
            for number in range(encoded.slices):
                begin = min(number * each, length)
                end = min(begin + each, length)
                found.append((begin * encoded.itemsize, (end - begin) * encoded.itemsize))
    return found


class Proxy:
    """The thread that carries the messages of all ends of this process while a kernel runs.

    ``begin`` before a launch; ``end`` when the kernel has ended returns once all that it sent has left.
    Errors of the network are raised there. ``close`` is collective: nothing may be under way.
    """

    def __init__(self, comm: Any, ends: Sequence[FarEnd]) -> None:
        self._comm, self._ends = comm, ends
        self._goal = 0
        self._stopped = False
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Carry what one more launch moves."""
        self._goal += 1
        if not self._ends:
            return
        self._thread = Thread(target=self._run, name="proxy of a NIC", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until all messages of the launch are through; raises what went wrong meanwhile."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Carry nothing more: the kernel gave up."""
        self._stopped = True
        self.end()

    def close(self) -> None:
        """Take back the receives whose messages never came, as after a stop."""
        for end in self._ends:
            while end.under_way:
                request = end.under_way.popleft()
                if not end.outgoing and request is not None:
                    request.Cancel()
                    request.Wait()

    def _run(self) -> None:
        try:
            idle = 0
            while not self._stopped and not all(self._is_through(end) for end in self._ends):
                moved = [self._send(end) if end.outgoing else self._receive(end) for end in self._ends]
                idle = 0 if any(moved) else idle + 1
                if idle > _LOOKS:
                    time.sleep(_NAP_S)
        except BaseException as error:
            self._error = error

    def _is_through(self, end: FarEnd) -> bool:
        return end.through >= self._goal * len(end.spans)

    def _send(self, end: FarEnd) -> bool:
        """Send what the kernel has put in, count what has left; whether anything did either."""
        before = end.begun + end.through
        while end.begun < int(end.counts[0]):
            view = end.view(end.begun)
            end.under_way.append(self._comm.Isend(view, end.peer, end.fifo) if view.size else None)
            end.begun += 1
        self._count(end, 1)
        return end.begun + end.through > before

    def _receive(self, end: FarEnd) -> bool:
        """Receive into what the kernel has emptied, count what has come; whether anything did either."""
        before = end.begun + end.through
        last = min(int(end.counts[1]) + end.room, self._goal * len(end.spans))
        while end.begun < last:
            view = end.view(end.begun)
            end.under_way.append(self._comm.Irecv(view, end.peer, end.fifo) if view.size else None)
            end.begun += 1
        self._count(end, 0)
        return end.begun + end.through > before

    def _count(self, end: FarEnd, counter: int) -> None:
        """Tell the kernel how many are through without a gap."""
        through = end.through
        while end.under_way and (end.under_way[0] is None or end.under_way[0].Test()):
            end.under_way.popleft()
            through += 1
        if through > end.through:
            end.counts[counter] = end.through = through
