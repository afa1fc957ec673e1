"""The state of a program while it is traced: the statement that last wrote each slot."""

from __future__ import annotations

import sys
from typing import NoReturn

import numpy as np

from probes.base import DataError, Indices, UsageError
from synth.collective import Collective
from synth.compiler import ChunkDag
from synth.memory_layout import memory_of
from synth.program import INPUT, OUTPUT, SCRATCH, Protocol

__all__ = ["UNWRITTEN", "Trace", "current", "statement"]

# The writer of a slot that nothing has written, and of a slot that holds input; operations count from 0.
UNWRITTEN = -2
_START = -1
# The most slots of a scratch buffer: a list of more would fill the memory.
_MOST_SCRATCH = 1 << 22

_active: list[Trace] = []


def current() -> Trace:
    """Return the trace of the program that is being run; raise UsageError if none is."""
    if not _active:
        raise UsageError("chunk() belongs in a function that @program decorates", hint="see synth/lang")
    return _active[-1]


def statement() -> tuple[str, int]:
    """Return (file, line) of the program's statement that is being executed."""
    frame = sys._getframe(1)
    folder = __file__.rpartition("/")[0]
    while frame.f_back is not None and frame.f_code.co_filename.rpartition("/")[0] == folder:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class Buffer:
    """One buffer of one rank: ``writers`` holds the number of the operation that last wrote each slot.

    Buffers that share memory share the list; this buffer begins at index ``start`` of the list.
    """

    __slots__ = ("grows", "kind", "name", "number", "rank", "size", "start", "writers")

    def __init__(
        self, rank: int, kind: int, name: str, writers: list[int], size: int, start: int = 0
    ) -> None:
        self.rank, self.kind, self.name, self.writers = rank, kind, name, writers
        self.size, self.start, self.grows = size, start, kind == SCRATCH
        self.number = -1

    def slot(self, index: int, size: int = 1) -> str:
        """Return slots in the notation of messages: ``input[2:4] of rank 0``."""
        places = f"{index}" if size == 1 else f"{index}:{index + size}"
        return f"{self.name}[{places}] of rank {self.rank}"


class Trace:
    """Collects the operations of one program, in the order of its statements."""

    def __init__(
        self,
        collective: Collective,
        *,
        gpus: int,
        in_place: bool,
        source: str,
        links: frozenset[tuple[int, int]] | None = None,
    ) -> None:
        self.collective, self.gpus, self.in_place, self.source = collective, gpus, in_place, source
        self.links = links
        self.rows: list[tuple[int, ...]] = []
        self.buffers: dict[tuple[int, str], Buffer] = {}
        self.scratch: list[Buffer] = []
        self._lay_out()

    def __enter__(self) -> Trace:
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.pop()

    def _lay_out(self) -> None:
        cells = memory_of(self.collective, (0,) * self.collective.ranks, in_place=self.in_place)
        first, size = cells.first.tolist(), cells.size.tolist()
        written = np.full(cells.total, UNWRITTEN)
        written[cells.first[cells.inputs.rank, INPUT] + cells.inputs.slot] = _START
        for rank in range(self.collective.ranks):
            (start_in, start_out, _), (inputs, outputs, _) = first[rank], size[rank]
            input_writers = written[start_in : start_in + inputs].tolist()
            output_writers = [UNWRITTEN] * outputs
            shared = cells.same[start_out : start_out + outputs] - start_in
            offset_in = offset_out = 0
            overlay = np.flatnonzero(shared < start_out - start_in)
            if len(overlay):
                first_out, first_in = int(overlay[0]), int(shared[overlay[0]])
                offset_in, offset_out = max(0, first_out - first_in), max(0, first_in - first_out)
                whole = input_writers if inputs >= outputs else output_writers
                whole[offset_in : offset_in + inputs] = input_writers
                input_writers = output_writers = whole
            for name, buffer in (
                ("input", Buffer(rank, INPUT, "input", input_writers, inputs, offset_in)),
                ("output", Buffer(rank, OUTPUT, "output", output_writers, outputs, offset_out)),
            ):
                self.buffers[rank, name] = self.buffers[rank, name[0]] = buffer

    def rank_of(self, rank: object) -> int:
        """Return a rank from its number, or from (node, gpu)."""
        if isinstance(rank, tuple):
            if len(rank) != 2 or not self.gpus:
                self.fail(f"rank {rank}: the program's ranks are not given as (nodes, gpus)")
            node, gpu = rank
            if not 0 <= gpu < self.gpus:
                self.fail(f"rank {rank}: a node has {self.gpus} GPUs")
            rank = node * self.gpus + gpu
        if not isinstance(rank, int | np.integer) or not 0 <= rank < self.collective.ranks:
            self.fail(f"rank {rank}: the program has ranks 0 to {self.collective.ranks - 1}")
        return int(rank)

    def index_of(self, index: object) -> int:
        """Return a slot from its number, or from (node, gpu) in a buffer with a slot for every rank."""
        if isinstance(index, tuple) and len(index) == 2 and self.gpus:
            return int(index[0]) * self.gpus + int(index[1])
        if isinstance(index, int | np.integer):
            return int(index)
        self.fail(f"index {index!r}: expected a whole number, or (node, gpu)")

    def buffer(self, rank: int, name: str) -> Buffer:
        """Return a buffer of ``rank``; names other than input and output are scratch, made at first use."""
        found = self.buffers.get((rank, name))
        if found is None:
            if not isinstance(name, str):
                self.fail(f"buffer {name!r}: expected input, output or a name")
            found = self.buffers[rank, name] = Buffer(rank, SCRATCH, name, [], 0)
            found.number = len(self.scratch)
            self.scratch.append(found)
        return found

    def grow(self, buffer: Buffer, size: int) -> None:
        if size > _MOST_SCRATCH:
            self.fail(f"{buffer.slot(size - 1)}: scratch has at most {_MOST_SCRATCH} slots")
        buffer.writers.extend([UNWRITTEN] * (size - buffer.size))
        buffer.size = size

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        """Raise DataError at the statement that is being executed."""
        file, line = statement()
        raise DataError(f"{file}:{line}", [problem], hint=hint)

    def chunk_dag(self, name: str, protocol: Protocol) -> ChunkDag:
        """Return the operations as a chunk DAG; all scratch buffers of a rank become one."""
        sizes = [0] * self.collective.ranks
        offset = []
        for buffer in self.scratch:
            offset.append(sizes[buffer.rank])
            sizes[buffer.rank] += buffer.size
        table = np.array(self.rows, dtype=np.int64).reshape(-1, 12).T
        op, src_rank, src_kind, src_slot, dst_rank, dst_kind, dst_slot, count, send, recv, ch, line = table
        starts = np.array([*offset, 0, 0], dtype=np.int64)

        def settled(kind: Indices, slot: Indices) -> tuple[Indices, Indices]:
            # In ``rows`` the kind of a scratch buffer is SCRATCH plus its number.
            return np.minimum(kind, SCRATCH), slot + np.where(kind >= SCRATCH, starts[kind - SCRATCH], 0)

        src_buffer, src_at = settled(src_kind, src_slot)
        dst_buffer, dst_at = settled(dst_kind, dst_slot)
        return ChunkDag(
            name=name,
            collective=self.collective,
            protocol=protocol,
            scratch_chunks=tuple(sizes),
            op=op,
            src_rank=src_rank,
            src_buffer=src_buffer,
            src_slot=src_at,
            dst_rank=dst_rank,
            dst_buffer=dst_buffer,
            dst_slot=dst_at,
            with_buffer=dst_buffer,
            with_slot=dst_at,
            count=count.copy(),
            send_tb=send.copy(),
            recv_tb=recv.copy(),
            channel=ch.copy(),
            line=line.copy(),
            out_of_place=not self.in_place,
            in_place=self.in_place,
            source=self.source,
        )
