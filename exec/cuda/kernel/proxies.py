"""FIFOs between hosts for the persistent kernel, carried by a proxy, a CPU thread (GC3 Sec. 5).

A kernel cannot access the memory of another host. Each end of such a FIFO therefore has slots and counts of
its own in pinned host memory, and the kernel uses them like those of a peer GPU. The sender's proxy waits
until the kernel counts a message as put in, sends it to the receiver's proxy, and counts it as taken out. The
receiver's proxy waits for room, receives the message into a slot, and counts it as put in. A rank has one
proxy, because it sends and receives through one NIC. Each tile of a chunk is one MPI message.

Counts are plain words, written after the data that they count; x86 keeps the order of stores.
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
from exec.program import Array
from probes.base import Indices

__all__ = ["Proxy", "RemoteEnd", "RemoteFifos"]

_LINE_BYTES = 128
# After this many polls without a message the thread sleeps for _NAP_S, so that others get its core.
_POLLS, _NAP_S = 200, 50e-6


@dataclass(eq=False)
class RemoteEnd:
    """One end of a FIFO between hosts: its counts (put in, taken out), its slots, the messages of a launch.

    ``sizes[n]`` are the bytes of the n-th message of a launch, the same on both ends. ``peer`` is the process
    of the other end. ``places[slot]`` is the memory of a slot.
    """

    fifo: int
    outgoing: bool
    peer: int
    counts: Indices
    places: Array
    sizes: list[int]
    # Messages that have been started, and messages that are complete, over all launches.
    begun: int = 0
    through: int = 0
    under_way: deque[Any] = field(default_factory=deque)

    @property
    def room(self) -> int:
        return len(self.places)

    def view(self, number: int) -> Array:
        """Return the memory of message ``number``, counted from the first launch on."""
        memory: Array = self.places[number % len(self.places)][: self.sizes[number % len(self.sizes)]]
        return memory


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
            way = "out" if end.outgoing else "in"
            (row,) = np.flatnonzero(fifos[:, 0 if end.outgoing else 1] == end.fifo)
            put_in, taken_out = (int(end.counts[at : at + 1].ctypes.data) for at in (0, 1))
            links[row, LINK.index(f"{way}_slots")] = end.places.ctypes.data
            links[row, LINK.index(f"{way}_head")] = put_in
            links[row, LINK.index(f"{way}_credit")] = taken_out

    def _end(self, fifo: int, outgoing: bool, peer: int, memory: Callable[[int], Array]) -> RemoteEnd:
        encoded = self._encoded
        room, place_bytes = int(encoded.room[fifo]), encoded.place_bytes
        whole = memory(2 * _LINE_BYTES + room * place_bytes)
        counts: Indices = whole[: 2 * _LINE_BYTES].view(np.int64)[:: _LINE_BYTES // 8]
        slots = whole[2 * _LINE_BYTES :].reshape(room, place_bytes)
        return RemoteEnd(fifo, outgoing, peer, counts, slots, _sizes(encoded, fifo, outgoing))


def _sizes(encoded: Encoded, fifo: int, outgoing: bool) -> list[int]:
    """Return the bytes of each message that a launch moves through a FIFO, in order.

    The order is the kernel's: for each tile, for each step of the threadblock.
    """
    (tb,) = np.flatnonzero(encoded.fifos[:, 0 if outgoing else 1] == fifo)
    block = encoded.blocks[tb]
    first, count = int(block[BLOCK.index("first")]), int(block[BLOCK.index("steps")])
    steps = encoded.steps[first : first + count]
    moves = steps[:, STEP.index("does")] & DOES["sends" if outgoing else "receives"] != 0
    left = steps[moves, STEP.index("length")] - encoded.tile * np.arange(encoded.tiles)[:, np.newaxis]
    sizes: list[int] = (np.clip(left, 0, encoded.tile) * encoded.itemsize).reshape(-1).tolist()
    return sizes


class Proxy:
    """The thread that sends and receives the messages of all ends of this process while a kernel runs.

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
        """Start to carry the messages of one more launch."""
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
                moved = [self._send(end) if end.outgoing else self._receive(end) for end in self._ends]
                idle = 0 if any(moved) else idle + 1
                if idle > _POLLS:
                    time.sleep(_NAP_S)
        except BaseException as error:
            self._error = error

    def _is_through(self, end: RemoteEnd) -> bool:
        return end.through >= self._goal * len(end.sizes)

    def _send(self, end: RemoteEnd) -> bool:
        """Start sending what the kernel has put in, and count what is sent; return whether any moved."""
        before = end.begun + end.through
        while end.begun < int(end.counts[0]):
            view = end.view(end.begun)
            end.under_way.append(self._comm.Isend(view, end.peer, end.fifo) if view.size else None)
            end.begun += 1
        self._count(end, 1)
        return end.begun + end.through > before

    def _receive(self, end: RemoteEnd) -> bool:
        """Start receives for which there is room, and count messages received; return whether any moved."""
        before = end.begun + end.through
        last = min(int(end.counts[1]) + end.room, self._goal * len(end.sizes))
        while end.begun < last:
            view = end.view(end.begun)
            end.under_way.append(self._comm.Irecv(view, end.peer, end.fifo) if view.size else None)
            end.begun += 1
        self._count(end, 0)
        return end.begun + end.through > before

    def _count(self, end: RemoteEnd, counter: int) -> None:
        """Set the kernel's counter to the number of messages completed in order."""
        through = end.through
        while end.under_way and (end.under_way[0] is None or end.under_way[0].Test()):
            end.under_way.popleft()
            through += 1
        if through > end.through:
            end.counts[counter] = end.through = through
