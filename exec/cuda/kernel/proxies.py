"""FIFOs between hosts for the persistent kernel, carried by a proxy, a CPU thread (GC3 Sec. 5).

A kernel cannot access the memory of another host, so each end of such a FIFO has separate slots and counts in
pinned host memory. The kernel uses them like the slots and counts of a peer GPU. The sender's proxy waits
until the kernel counts a slice as put in, sends it to the receiver's proxy, and counts it as taken out. The
receiver's proxy waits for room, receives the slice into a slot, and counts it as put in. A rank has one
proxy, because it sends and receives through one NIC. A slice is one MPI message.

Counts are plain words, written after the data that they count. x86 keeps the order of stores; on other CPUs
`exec.cuda.select` takes transmission contexts, which need no counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np

from exec.cuda.kernel.encode import BLOCK, LINK, PACK_BYTES, Encoded
from exec.cuda.kernel.fifo_memory import LINE_BYTES, Arenas
from exec.cuda.kernel.rows import DOES, STEP
from exec.program import Array
from probes.base import Indices

__all__ = ["Proxy", "RemoteEnd", "RemoteFifos"]

# After this many polls without a message the thread sleeps for _NAP_S, so that other threads get the core.
_POLLS, _NAP_S = 200, 50e-6


@dataclass(eq=False)
class RemoteEnd:
    """One end of a FIFO between hosts: its counts (put in, taken out), its slots, the slices of a launch.

    ``spans[n]`` is (first byte in the slot, bytes) of the n-th slice of a launch, the same on both ends.
    ``peer`` is the process of the other end. ``places[slot]`` is the memory of a slot. A slot holds
    ``slices`` slices.
    """

    fifo: int
    outgoing: bool
    peer: int
    counts: Indices
    places: Array
    spans: list[tuple[int, int]]
    slices: int
    # Slices whose message has been started, and slices whose message is complete, over all launches.
    begun: int = 0
    through: int = 0
    under_way: deque[Any] = field(default_factory=deque)

    @property
    def room(self) -> int:
        return len(self.places) * self.slices

    def view(self, number: int) -> Array:
        """Return the memory of slice ``number``, counted from the first launch on."""
        place: Array = self.places[number // self.slices % len(self.places)]
        first, length = self.spans[number % len(self.spans)]
        slice_bytes: Array = place[first : first + length]
        return slice_bytes


class RemoteFifos:
    """The ends of FIFOs between hosts that belong to the ``ranks`` on this GPU, and their memory.

    ``host_of`` and ``process_of`` are each rank's host and its process in the communicator. ``memory(bytes)``
    returns zeroed memory that has the same address for the CPU and the kernel.
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
        self.ends: list[RemoteEnd] = []
        pairs = zip(places.sender.tolist(), places.receiver.tolist(), strict=True)
        for fifo, (sender, receiver) in enumerate(pairs):
            if host_of[sender] == host_of[receiver]:
                continue
            for mine, other, outgoing in ((sender, receiver, True), (receiver, sender, False)):
                if mine in ranks:
                    self.ends.append(self._end(fifo, outgoing, process_of[other], memory))

    def point(self, links: Indices, blocks: range) -> None:
        """Write the addresses of these ends into ``links``, the kernel's table for ``blocks``."""
        fifos = self._encoded.fifos[blocks.start : blocks.stop]
        for end in self.ends:
            direction = "out" if end.outgoing else "in"
            (row,) = np.flatnonzero(fifos[:, 0 if end.outgoing else 1] == end.fifo)
            put_in, taken_out = (int(end.counts[at : at + 1].ctypes.data) for at in (0, 1))
            links[row, LINK.index(f"{direction}_slots")] = end.places.ctypes.data
            links[row, LINK.index(f"{direction}_head")] = put_in
            links[row, LINK.index(f"{direction}_credit")] = taken_out

    def _end(self, fifo: int, outgoing: bool, peer: int, memory: Callable[[int], Array]) -> RemoteEnd:
        encoded = self._encoded
        room, place_bytes = int(encoded.room[fifo]), encoded.place_bytes
        # Each count has a cache line of the GPU to itself.
        whole = memory(2 * LINE_BYTES + room * place_bytes)
        counts: Indices = whole[: 2 * LINE_BYTES].view(np.int64)[:: LINE_BYTES // 8]
        slots = whole[2 * LINE_BYTES :].reshape(room, place_bytes)
        spans = _spans(encoded, fifo, outgoing)
        return RemoteEnd(fifo, outgoing, peer, counts, slots, spans, encoded.slices)


def _spans(encoded: Encoded, fifo: int, outgoing: bool) -> list[tuple[int, int]]:
    """Return (first byte in the slot, bytes) of each slice that a launch moves through a FIFO, in order.

    The order is the kernel's: for each tile, for each step of the threadblock, the slices of its chunk.
    """
    (tb,) = np.flatnonzero(encoded.fifos[:, 0 if outgoing else 1] == fifo)
    block = encoded.blocks[tb]
    first, count = int(block[BLOCK.index("first")]), int(block[BLOCK.index("steps")])
    steps = encoded.steps[first : first + count]
    moves = steps[:, STEP.index("does")] & DOES["sends" if outgoing else "receives"] != 0
    lengths = steps[moves, STEP.index("length")].tolist()
    pack, found = PACK_BYTES // encoded.itemsize, []
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
    """The thread that sends and receives the slices of all ends of this process while a kernel runs.

    Call ``begin`` before a launch, and ``end`` after the kernel has ended: ``end`` waits until all messages
    are complete, and raises errors of the network. Call ``close`` when no launch is under way.
    """

    def __init__(self, comm: Any, ends: Sequence[RemoteEnd]) -> None:
        self._comm, self._ends = comm, ends
        self._goal = 0
        self._stopped = False
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Start to carry the slices of one more launch."""
        self._goal += 1
        if not self._ends:
            return
        self._thread = Thread(target=self._run, name="proxy of a NIC", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until all messages of the launch are complete; raises the thread's error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread before all messages are complete, after the kernel gave up."""
        self._stopped = True
        self.end()

    def close(self) -> None:
        """Cancel receives that are still open, as after a stop."""
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
                moved = [self._move(end) for end in self._ends]
                idle = 0 if any(moved) else idle + 1
                if idle > _POLLS:
                    time.sleep(_NAP_S)
        except BaseException as error:
            self._error = error

    def _is_through(self, end: RemoteEnd) -> bool:
        return end.through >= self._goal * len(end.spans)

    def _move(self, end: RemoteEnd) -> bool:
        """Start and count messages of slices that the kernel has put in, or has made room for.

        Return whether any moved.
        """
        before = end.begun + end.through
        if end.outgoing:
            last, start = int(end.counts[0]), self._comm.Isend
        else:
            last, start = min(int(end.counts[1]) + end.room, self._goal * len(end.spans)), self._comm.Irecv
        while end.begun < last:
            view = end.view(end.begun)
            end.under_way.append(start(view, end.peer, end.fifo) if view.size else None)
            end.begun += 1
        self._count(end, 1 if end.outgoing else 0)
        return end.begun + end.through > before

    def _count(self, end: RemoteEnd, counter: int) -> None:
        """Set the kernel's counter to the number of slices completed in order."""
        through = end.through
        while end.under_way and (end.under_way[0] is None or end.under_way[0].Test()):
            end.under_way.popleft()
            through += 1
        if through > end.through:
            end.counts[counter] = end.through = through
