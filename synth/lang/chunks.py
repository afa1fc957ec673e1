"""References to chunks, and their two operations, assign and reduce (GC3 Table 1)."""

from __future__ import annotations

import sys
from typing import Any

from synth.compiler import ASSIGN, REDUCE
from synth.lang.trace import UNWRITTEN, Buffer, Trace, current

__all__ = ["Chunk", "chunk"]


def chunk(buffer: Any, rank: Any, index: Any = 0, size: int = 1) -> Chunk:
    """Return a reference to ``size`` chunks of a buffer of ``rank``, from slot ``index`` on.

    ``buffer`` is "input", "output" or the name of a scratch buffer, which grows as it is written. ``rank``
    and ``index`` are numbers or (node, gpu). Rank and buffer may also be given in the other order.
    """
    trace = current()
    if buffer.__class__ is not str and rank.__class__ is str:
        buffer, rank = rank, buffer
    if rank.__class__ is not int or not 0 <= rank < trace.collective.ranks:
        rank = trace.rank_of(rank)
    if index.__class__ is not int:
        index = trace.index_of(index)
    found = trace.buffers.get((rank, buffer)) or trace.buffer(rank, buffer)
    if index < 0 or size < 1 or (index + size > found.size and not found.grows):
        trace.fail(f"{found.slot(index, size)}: {found.name} has {found.size} slots")
    return Chunk(trace, found, index, size, len(trace.rows))


class Chunk:
    """A reference to the contents of slots; using it after the slots were overwritten is an error."""

    __slots__ = ("_buffer", "_index", "_made", "_size", "_trace")

    def __init__(self, trace: Trace, buffer: Buffer, index: int, size: int, made: int) -> None:
        self._trace, self._buffer, self._index, self._size, self._made = trace, buffer, index, size, made

    def assign(
        self,
        buffer: Any,
        rank: Any = None,
        index: Any = 0,
        *,
        sendtb: int = -1,
        recvtb: int = -1,
        ch: int = -1,
    ) -> Chunk:
        """Copy these chunks to a buffer of ``rank``, from slot ``index`` on; return a reference to the copy.

        If ``buffer`` is another reference, its chunks are copied into the slots of this reference instead.
        """
        if buffer.__class__ is Chunk:
            source, target = buffer, self
        else:
            source, target = self, chunk(buffer, rank, index, self._size)
        return source._apply(ASSIGN, target, sendtb, recvtb, ch)

    def reduce(self, other: Chunk, *, sendtb: int = -1, recvtb: int = -1, ch: int = -1) -> Chunk:
        """Add the chunks of ``other`` to these, in place; return a reference to the sum."""
        trace = self._trace
        if other.__class__ is not Chunk:
            trace.fail(f"reduce: expected a reference to chunks, found {other!r}")
        self._check()
        return other._apply(REDUCE, self, sendtb, recvtb, ch)

    def _apply(self, op: int, target: Chunk, sendtb: int, recvtb: int, ch: int) -> Chunk:
        """Copy or add these chunks into ``target``."""
        trace, source, to, size = self._trace, self._buffer, target._buffer, self._size
        if trace is not target._trace:
            trace.fail("these references belong to different programs")
        if size != target._size:
            trace.fail(
                f"{source.slot(self._index, size)} is {size} chunks, "
                f"{to.slot(target._index, target._size)} is {target._size}"
            )
        self._check()
        number = len(trace.rows)
        low = target._index
        if low + size > to.size:
            trace.grow(to, low + size)
        if to.kind == 0 and not trace.in_place:
            trace.fail(f"{to.slot(low, size)} is the caller's: out of place, a program only reads it")
        if trace.links is not None and source.rank != to.rank and (source.rank, to.rank) not in trace.links:
            trace.fail(f"there is no link from rank {source.rank} to rank {to.rank}")
        # Two buffers that share memory share one list of writers.
        distance = abs(self._index + source.start - low - to.start)
        if 0 < distance < size and source.writers is to.writers:
            trace.fail(
                f"{source.slot(self._index, size)} and {to.slot(low, size)} overlap partly: what is read "
                "would change on the way",
                hint="go through scratch, or chunk by chunk",
            )
        frame = sys._getframe(2)
        line = frame.f_lineno if frame.f_code.co_filename == trace.source else 0
        from_kind, to_kind = source.kind, to.kind
        trace.rows.append(
            (
                op,
                source.rank,
                from_kind if from_kind < 2 else 2 + source.number,
                self._index,
                to.rank,
                to_kind if to_kind < 2 else 2 + to.number,
                low,
                size,
                sendtb,
                recvtb,
                ch,
                line,
            )
        )
        low += to.start
        if size == 1:
            to.writers[low] = number
        else:
            to.writers[low : low + size] = [number] * size
        return Chunk(trace, to, target._index, size, number + 1)

    def _check(self) -> None:
        """Raise DataError if these slots were never written, or overwritten since this reference was made."""
        buffer, low = self._buffer, self._index + self._buffer.start
        if self._index + self._size > buffer.size:
            self._trace.fail(f"{buffer.slot(max(buffer.size, self._index))} was never written")
        if self._size == 1:
            writer = buffer.writers[low]
            if UNWRITTEN < writer < self._made:
                return
        else:
            writers = buffer.writers[low : low + self._size]
            if min(writers) > UNWRITTEN and max(writers) < self._made:
                return
        for slot in range(self._index, self._index + self._size):
            writer = buffer.writers[slot + buffer.start]
            if writer == UNWRITTEN:
                self._trace.fail(f"{buffer.slot(slot)} was never written")
            if writer >= self._made:
                self._trace.fail(
                    f"{buffer.slot(slot)} was overwritten by line {self._trace.rows[writer][-1]} "
                    "after this reference to it was made",
                    hint="take a new reference with chunk(), or use what the statement there returned",
                )
