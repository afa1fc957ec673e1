"""Transmission contexts: a stream for each threadblock; events order the copies of chunks (AdapCC Sec. V).

The CPU queues all work ahead of the GPU: a context that must wait for another queues the wait on its stream.
CUDA ignores a wait for an event that is not recorded yet, so the CPU first waits until the event's owner
(another context or process) has recorded it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any, Protocol

from exec.cuda.kernel import BLOCK, DOES, STEP, Encoded
from probes.base import LostRankError

__all__ = ["Incoming", "Outgoing", "Role", "StreamContexts", "Streams", "role_of"]

# The longest time without progress. Even on a loaded host a peer needs less, and a user is ready to wait this
# long for the error.
LIMIT_S = 30.0
# Sleep between two polls, so that other threads get the core; a message is hardly delayed.
_IDLE_S = 20e-6


@dataclass(frozen=True)
class Role:
    """The role of a rank in a program: AdapCC's behaviour tuple (Sec. IV-C).

    ``active``: the rank has steps. ``kernel``: the rank combines data, for which copies are not enough.
    """

    active: bool
    receives: bool
    kernel: bool
    sends: bool


class Streams(Protocol):
    """Streams of a GPU and the work queued on them; addresses are in GPU memory or pinned memory."""

    def stream(self) -> Any: ...
    def event(self) -> Any: ...
    def record(self, event: Any, stream: Any) -> None: ...
    def wait(self, stream: Any, event: Any) -> None: ...
    def copy(self, to: int, source: int, size_bytes: int, stream: Any) -> None: ...
    def combine(self, first: int, second: int, into: int, also: int, elements: int, stream: Any) -> None: ...
    def synchronize(self) -> None: ...


class Outgoing(Protocol):
    """The sender's end of a connection."""

    def room(self, stream: Any) -> int:
        """Return the address for the next message; 0 while there is no room.

        The address may be written by work that is queued on ``stream`` after this call.
        """

    def sent(self, size_bytes: int, stream: Any) -> None:
        """Record that the work queued on ``stream`` up to now writes the message."""

    def idle(self) -> bool:
        """Start and complete the transfers that are ready; return whether none is left under way."""


class Incoming(Protocol):
    """The receiver's end of a connection."""

    def message(self, size_bytes: int, stream: Any) -> int:
        """Return the address of the next message; 0 while none has been announced.

        The address may be read by work that is queued on ``stream`` after this call.
        """

    def taken(self, stream: Any) -> None:
        """Record that the work queued on ``stream`` up to now reads the message."""

    def idle(self) -> bool:
        """Free the slots that the GPU has read; return whether it reads none."""


def role_of(encoded: Encoded, rank: int) -> Role:
    """Return the role of ``rank``: whether it receives, needs a kernel, sends; O(its steps)."""
    rows = encoded.blocks[encoded.blocks_of(rank).start : encoded.blocks_of(rank).stop]
    first, steps = BLOCK.index("first"), BLOCK.index("steps")
    does = {
        int(row[STEP.index("does")])
        for block in rows
        for row in encoded.steps[block[first] : block[first] + block[steps]]
    }
    each = {name: any(bits & bit for bits in does) for name, bit in DOES.items()}
    return Role(bool(does - {0}), each["receives"], any(map(_needs_kernel, does)), each["sends"])


def _needs_kernel(does: int) -> bool:
    """Return whether a copy is not enough, because there are two sources or two destinations."""
    sources = [does & DOES[name] for name in ("receives", "accumulates", "reads")]
    return sum(map(bool, sources)) > 1 or bool(does & DOES["writes"] and does & DOES["sends"])


class StreamContexts:
    """The contexts of one rank, set up once; ``run`` runs the program on the given buffers.

    ``outgoing`` and ``incoming`` are the ends of this rank's connections, by FIFO number.
    """

    def __init__(
        self,
        encoded: Encoded,
        rank: int,
        streams: Streams,
        outgoing: Mapping[int, Outgoing],
        incoming: Mapping[int, Incoming],
    ) -> None:
        self._streams = streams
        self._wires: list[Outgoing | Incoming] = [*outgoing.values(), *incoming.values()]
        blocks = encoded.blocks_of(rank)
        self._contexts = [_Context(encoded, block, streams, outgoing, incoming) for block in blocks]
        for context in self._contexts:
            context.others = dict(zip(blocks, self._contexts, strict=True))

    def start(self, addresses: Sequence[int]) -> None:
        """Begin a run; ``addresses`` are those of input, output and scratch."""
        for context in self._contexts:
            context.start(addresses)

    def advance(self) -> tuple[bool, bool]:
        """Queue all work that can be queued; return (whether any was, whether everything is done)."""
        moved = [context.advance() for context in self._contexts]
        idle = [wire.idle() for wire in self._wires]
        return any(moved), all(context.finished for context in self._contexts) and all(idle)

    def waiting(self) -> list[str]:
        """Return a line for each waiting context, naming what it waits for."""
        return [context.blocked for context in self._contexts if context.blocked and not context.finished]

    def run(self, addresses: Sequence[int], limit_s: float = LIMIT_S) -> None:
        """Run the program; raises LostRankError, naming what waits, if nothing moves for ``limit_s``."""
        self.start(addresses)
        since = perf_counter()
        done = False
        while not done:
            moved, done = self.advance()
            if moved:
                since = perf_counter()
            elif perf_counter() - since > limit_s:
                raise LostRankError(self.waiting() or ["a message was never taken"])
            else:
                sleep(_IDLE_S)
        self._streams.synchronize()


class _Context:
    """One threadblock's steps on one stream, tile by tile."""

    def __init__(
        self,
        encoded: Encoded,
        block: int,
        streams: Streams,
        outgoing: Mapping[int, Outgoing],
        incoming: Mapping[int, Incoming],
    ) -> None:
        first, count = (int(encoded.blocks[block, BLOCK.index(name)]) for name in ("first", "steps"))
        self._encoded, self._block, self._streams = encoded, block, streams
        self._rows = [
            dict(zip(STEP, row, strict=True)) for row in encoded.steps[first : first + count].tolist()
        ]
        to, source = encoded.fifos[block].tolist()
        self._to, self._from = outgoing.get(to), incoming.get(source)
        self._stream = streams.stream()
        # Each step and tile has a separate event. If steps shared an event, it might already stand for a
        # later step when another context begins to wait for the earlier one. Such waits could form a cycle.
        self._events: dict[int, Any] = {}
        self.others: dict[int, _Context] = {}
        self.queued, self.blocked = 0, ""
        self._addresses: Sequence[int] = ()
        self._place = 0

    @property
    def finished(self) -> bool:
        return self.queued == len(self._rows) * self._encoded.tiles

    def start(self, addresses: Sequence[int]) -> None:
        self.queued, self.blocked, self._addresses = 0, "", addresses

    def advance(self) -> bool:
        """Queue all steps that can be queued; return whether any was."""
        before = self.queued
        while not self.finished and self._step():
            self.queued += 1
        return self.queued > before

    def _step(self) -> bool:
        tile, number = divmod(self.queued, len(self._rows))
        row, encoded = self._rows[number], self._encoded
        elements = min(max(row["length"] - tile * encoded.tile, 0), encoded.tile)
        size_bytes, does = elements * encoded.itemsize, row["does"]
        source = place = 0
        if row["wait_block"] >= 0 and not self._wait_for_step(row, tile):
            return False
        if does & DOES["receives"] and self._from is not None:
            source = self._from.message(size_bytes, self._stream)
            if not source:
                return self._record_wait(row, f"a message from rank {self._peer('from')}")
        if does & DOES["sends"] and self._to is not None:
            place = self._to.room(self._stream)
            if not place:
                return self._record_wait(row, f"rank {self._peer('to')} to receive")
        if elements and does:
            self._move(row, tile * encoded.tile * encoded.itemsize, elements, source, place)
        if does & DOES["receives"] and self._from is not None:
            self._from.taken(self._stream)
        if does & DOES["sends"] and self._to is not None:
            self._to.sent(size_bytes, self._stream)
        if row["signals"]:
            self._streams.record(self.event(self.queued), self._stream)
        self.blocked = ""
        return True

    def event(self, at: int) -> Any:
        """Return the event of the ``at``-th step queued in a run."""
        if at not in self._events:
            self._events[at] = self._streams.event()
        return self._events[at]

    def _wait_for_step(self, row: dict[str, int], tile: int) -> bool:
        other = self.others[row["wait_block"]]
        at = tile * len(other._rows) + row["wait_step"]
        if other.queued <= at:
            number = int(self._encoded.blocks[row["wait_block"], BLOCK.index("number")])
            return self._record_wait(row, f"threadblock {number} of its rank")
        self._streams.wait(self._stream, other.event(at))
        return True

    def _move(self, row: dict[str, int], offset: int, elements: int, received: int, place: int) -> None:
        does, size_bytes = row["does"], elements * self._encoded.itemsize
        source = self._address("src", row, offset) if does & DOES["reads"] else 0
        into = self._address("dst", row, offset) if does & DOES["writes"] else 0
        first = received or (into if does & DOES["accumulates"] else source)
        second = source if first != source else 0
        sinks = [sink for sink in (into, place) if sink]
        if not second and len(sinks) == 1:
            # If input and output share memory, source and destination of a copy can be equal. Such a copy is
            # skipped, because it could overwrite data that another context writes there meanwhile.
            if sinks[0] != first:
                self._streams.copy(sinks[0], first, size_bytes, self._stream)
            return
        self._streams.combine(first, second, into, place, elements, self._stream)
        for buffer, start in self._encoded.more[row["more"] : row["more"] + row["more_count"]].tolist():
            further = self._addresses[buffer] + start * self._encoded.itemsize + offset
            self._streams.combine(into, further, into, 0, elements, self._stream)

    def _address(self, side: str, row: dict[str, int], offset: int) -> int:
        return self._addresses[row[f"{side}_buffer"]] + row[f"{side}_start"] * self._encoded.itemsize + offset

    def _record_wait(self, row: dict[str, int], whom: str) -> bool:
        program = self._encoded.layout.program
        step = int(program.tb_start[self._block]) + row["origin"]
        self.blocked = f"{program.place(step)} waits for {whom}"
        return False

    def _peer(self, side: str) -> int:
        return int(self._encoded.blocks[self._block, BLOCK.index(side)])
