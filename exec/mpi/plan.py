"""A program made ready to run on this rank's CPU: planned once, run many times.

Ranks of one host talk through shared memory, and read each other's buffers where they lie: in place in a
window (``exec.mpi.shared_memory.shared_array``), by one copy where the memory is private and the system lets
them. Ranks of different hosts talk through persistent requests of MPI, or over TCP connections of their own
where ``comm`` is a `Group`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import numpy as np

from exec.mpi import interpreter
from exec.mpi.connections import Connections
from exec.mpi.encode import make_input_optional, tables_of
from exec.mpi.reduce import REDOP_CODES, sample_of
from exec.mpi.stalls import Neighbours, waits_for
from exec.mpi.trace import RunLog
from exec.mpi.traffic import traffic
from exec.program import (
    Array,
    Contents,
    KeptRun,
    Layout,
    Span,
    Wire,
    Wires,
    contents_of,
    divided,
    moves,
    ufunc_of,
)
from exec.sockets import FlowWires, Group
from probes.base import SILENT, Indices, LostRankError, Mask, Progress, UsageError
from synth.prediction import BOUNCE_BYTES
from synth.program import INPUT, OUTPUT

__all__ = ["MpiPlan"]

# How long nothing may come before it is said who waits for whom, and before the others are looked for.
_SAY_AFTER_S, _LOOK_EVERY_S = 0.05, 0.5
# Polls before a waiting rank gives its core away, where each rank has one, and where they share.
_SPINS, _SPINS_CROWDED = 1000, 1
_NONE: Indices = np.zeros(0, dtype=np.int64)


class MpiPlan:
    """A program on this rank's buffers; ``run`` is collective over ``comm``, and so is the making.

    ``send`` and ``recv`` are flat, contiguous arrays of one type. In place they share memory as the
    collective defines it (``exec.program.layout.Layout.in_place``); that is seen by itself. Raises UsageError
    where the buffers do not fit the program or the program cannot run in place. A rank that waits says so
    to ``progress``.

    With ``may_be_late`` this rank adds nothing of its own in a run, but passes on what comes, until
    `let_join` is called; `joined` then tells what was added. With ``traced``, alike on all ranks, `kept`
    is what the last run did, step by step.
    """

    def __init__(
        self,
        layout: Layout,
        comm: Any,
        send: Array,
        recv: Array,
        redop: str = "sum",
        progress: Progress = SILENT,
        *,
        may_be_late: bool = False,
        traced: bool = False,
    ) -> None:
        program = layout.program
        ufunc_of(redop)
        if comm.Get_size() != program.ranks:
            raise UsageError(f"the program is for {program.ranks} ranks, the world has {comm.Get_size()}")
        in_place = _shared_anywhere(comm, send, recv)
        rank = comm.Get_rank()
        _check_fit(layout, rank, send, recv, in_place)
        self._program, self._rank, self._progress = program, rank, progress
        self._send, self._recv = send, recv
        self._sums = layout.sums(rank) if redop == "avg" else []
        self._comm = comm.Dup()
        every = moves(layout)
        self._ends = ends = Connections(layout, self._comm, every, send, recv, traced=traced)
        self._neighbours = Neighbours(ends.neighbours)
        messages = traffic(layout, every, in_place=in_place, readable=self._readable, wired=ends.wired)
        self._links, wires = ends.linked(messages)
        self._wires = _wires(self._comm, wires) if wires else None
        self._tables = tables_of(
            layout, rank, every, messages, ends.tiling, ends.rows, ends.memory(), ends.wired
        )
        # The word that says whether the input is there, and one for each piece and tile that was added.
        self._optional = make_input_optional(program, self._tables) if may_be_late else _NONE
        self._there = np.zeros(1, dtype=np.int64)
        self._clock = np.zeros(4, dtype=np.int64)
        # Operands that lie in other processes, and four words to fetch them by.
        self._bounce = np.zeros(BOUNCE_BYTES, dtype=np.uint8)
        self._vectors = np.zeros(4, dtype=np.int64)
        self._added = np.zeros((len(self._tables.pieces) * may_be_late, ends.tiling.tiles), dtype=np.int64)
        self._contents: Contents | None = None
        values = {
            "RUN": -1,
            "TILES": 0,
            "TILE": ends.tiling.tile,
            "ITEM_BYTES": recv.dtype.itemsize,
            "REDOP": REDOP_CODES[redop],
            "SPINS": _SPINS_CROWDED if ends.crowded else _SPINS,
            "WIRED": int(self._wires is not None),
            "JOINS": self._there.ctypes.data,
            "JOINED": self._added.ctypes.data,
            "LOG": 0,
            "LOGGED": 0,
            "CLOCK": self._clock.ctypes.data,
            "BOUNCE": self._bounce.ctypes.data,
            "VECTORS": self._vectors.ctypes.data,
        }
        self._header = np.array([values.get(name, 0) for name in interpreter.HEADER], dtype=np.int64)
        tables = self._tables
        self._arguments: tuple[Any, ...] = (
            self._header,
            tables.blocks,
            tables.steps,
            tables.pieces,
            tables.waits,
            self._links,
            sample_of(recv.dtype),
        )
        self._begin = self._compiled()
        self._log = RunLog(tables, self._links, ends, self._clock) if traced else None
        if self._log is not None:
            self._log.open(self._header)

    def run(self, without: Mask | None = None) -> None:
        """Carry out the collective once on what the buffers hold now.

        Chunks ``without[chunk]``, the same on all ranks, are not sent, and their outputs are undefined.
        Raises UsageError where that is asked for on wires of MPI.
        """
        if without is not None and without.any():
            with self._left_out(without):
                self.run()
            return
        if self._log is not None:
            self._log.begin(self._header)
        if self._wires is not None:
            self._wires.begin(int(self._header[interpreter.RUN]) + 1)
        state = self._begin()
        if state != interpreter.DONE:
            self._carry_on(state)
        for start, stop, summands in self._sums:
            self._recv[start:stop] = divided(self._recv[start:stop], summands)
        if self._log is not None:
            self._log.end()

    def kept(self) -> KeptRun:
        """Return the log of the last run of a plan that is traced."""
        assert self._log is not None
        return self._log.kept(self._header)

    def follow_chunks(self) -> None:
        """Find out which chunks each step carries, before a run is to leave some out."""
        if self._contents is None:
            self._contents = contents_of(self._program, self._ends.moves)

    def begin_without_input(self) -> None:
        """Let the next run begin as on a rank that is late; between runs."""
        self._there[0] = 0
        self._added[:] = 0

    def let_join(self) -> None:
        """Let the run under way add the filled send buffer, where it has not passed it on; on any thread."""
        interpreter.let_join(self._header)

    def joined(self) -> Mask:
        """For each element of the send buffer whether the last run has added it, on a rank that was late."""
        found = np.zeros(self._send.size, dtype=bool)
        item_bytes, tile = self._send.dtype.itemsize, self._ends.tiling.tile
        for piece in self._optional.tolist():
            src, length = self._tables.pieces[piece, (interpreter.SRC, interpreter.LENGTH)].tolist()
            at = (src - self._send.ctypes.data) // item_bytes
            for number in np.flatnonzero(self._added[piece]).tolist():
                first = at + number * tile
                found[first : at + min(length, (number + 1) * tile)] = True
        return found

    def move_to(self, send: Array, recv: Array) -> None:
        """Run on these buffers from now on; not collective.

        They are as large as those before, and share memory as those do. Possible where the plan was made on
        private memory and a `Group`; raises UsageError elsewhere, and where the buffers do not fit.
        """
        _check_alike((self._send, self._recv), (send, recv))
        if any(origin is not None for origin in self._ends.origins[self._rank][:2]):
            raise UsageError("the plan's buffers lie in shared memory, where other ranks read them")
        if self._wires is not None and not isinstance(self._wires, FlowWires):
            raise UsageError("MPI's persistent requests stay at the buffers of the plan")
        ends = [_bounds(array) for array in (self._send, self._recv)]
        pieces = self._tables.pieces
        for column in (interpreter.SRC, interpreter.DST, interpreter.FAR):
            before = pieces[:, column].copy()
            for (first, stop), array in zip(ends, (send, recv), strict=True):
                inside = (before >= first) & (before < stop)
                pieces[inside, column] = before[inside] - first + array.ctypes.data
        if self._wires is not None:
            now = [array.view(np.uint8) for array in (send, recv)]
            self._wires.move_to(partial(_moved, ends, now))
        self._send, self._recv = send, recv
        self._ends.publish(send, recv)

    def close(self) -> None:
        """Free the requests, the shared memory and the communicator; collective."""
        self._release()
        self._ends.close()
        self._comm.Free()

    def abandon(self) -> None:
        """Let go of everything where ranks are lost; not collective, and the plan runs no more."""
        self._release()
        self._ends.abandon()

    @contextmanager
    def _left_out(self, chunks: Mask) -> Iterator[None]:
        """Within the block steps and messages that carry none but these chunks move nothing."""
        if self._wires is not None and not isinstance(self._wires, FlowWires):
            raise UsageError("MPI's persistent requests send all that the plan was made for")
        self.follow_chunks()
        assert self._contents is not None
        contents, tables, ends = self._contents, self._tables, self._ends
        steps = contents.steps.within(chunks)[tables.step_of]
        lengths = tables.pieces[:, interpreter.LENGTH].copy()
        for first, end in tables.steps[steps][:, (interpreter.PIECE_FIRST, interpreter.PIECE_END)].tolist():
            tables.pieces[first:end, interpreter.LENGTH] = 0
        messages = {}
        for connection in ends.rows:
            if ends.wired(connection) and connection in contents.messages:
                sender, receiver, channel = ends.ends[connection]
                outgoing = sender == self._rank
                left_out = np.tile(contents.messages[connection].within(chunks), ends.tiling.tiles)
                messages[outgoing, receiver if outgoing else sender, channel] = left_out
        try:
            if isinstance(self._wires, FlowWires):
                self._wires.leave_out(messages)
            yield
        finally:
            tables.pieces[:, interpreter.LENGTH] = lengths
            if isinstance(self._wires, FlowWires):
                self._wires.leave_out({})

    def _release(self) -> None:
        if self._wires is not None:
            self._wires.free()
        self._arguments = ()
        self._begin = _closed

    def _readable(self, connection: int, span: Span) -> bool:
        return self._ends.readable(connection, span.buffer)

    def _compiled(self) -> Callable[[], int]:
        """Return what begins a run. One rank of each host first: the others find what it compiled in
        the cache.
        """
        header, *tables, sample = self._arguments
        if not self._ends.leads:
            self._comm.Barrier()
        interpreter.advance(*self._arguments)
        begin = interpreter.runner(header, sample, tables)
        if self._ends.leads:
            self._comm.Barrier()
        if len(self._optional):
            interpreter.let_join(header)
        header[interpreter.TILES] = self._ends.tiling.tiles
        return begin

    def _carry_on(self, state: int) -> None:
        """Serve the wires, tell who waits, look for the others, until the interpreter is through."""
        since_s = looked_s = time.monotonic()
        said = False
        while state != interpreter.DONE:
            if state == interpreter.LOST:
                self._give_up()
            moved = state == interpreter.MOVED
            if self._wires is not None:
                moved = self._wires.serve(wait=False) or moved
                if not moved and self._ends.lonely:
                    self._say()
                    moved = said = self._wires.serve(wait=True)
            now_s = time.monotonic()
            if not moved and isinstance(self._comm, Group):
                self._comm.check()
            if moved:
                since_s = now_s
            elif now_s - since_s > _SAY_AFTER_S:
                self._say()
                said = True
                if now_s - looked_s > _LOOK_EVERY_S:
                    looked_s = now_s
                    self._look()
                time.sleep(0.0002)
            elif self._wires is not None:
                os.sched_yield()
            state = interpreter.advance(*self._arguments)
        if said:
            self._progress.update(0, 0, self._program.name)

    def _say(self) -> None:
        peer, text = waits_for(self._program, self._tables, self._arguments)
        self._progress.waiting(peer, text)

    def _give_up(self) -> NoReturn:
        """Raise LostRankError: the memory of a rank of this host, which could be read, cannot any more."""
        peer = self._ends.unreadable()
        whose = "of a rank of this host" if peer is None else f"of rank {peer}"
        self._lose(self._neighbours.lost() or f"the memory {whose} cannot be read any more")

    def _look(self) -> None:
        """Raise LostRankError where a rank of this host is no more, or stands still."""
        if lost := self._neighbours.lost():
            self._lose(lost)

    def _lose(self, why: str) -> NoReturn:
        _, text = waits_for(self._program, self._tables, self._arguments)
        raise LostRankError(f"{why}; rank {self._rank} waited: {text}")


def _closed() -> int:
    raise RuntimeError("the plan is closed")


def _bounds(array: Array) -> tuple[int, int]:
    """Return the first address of an array and the one after its last."""
    return array.ctypes.data, array.ctypes.data + array.nbytes


def _check_alike(before: tuple[Array, Array], now: tuple[Array, Array]) -> None:
    """Raise UsageError unless the pair ``now`` can take the place of ``before``."""
    for old, new in zip(before, now, strict=True):
        if (old.size, old.dtype) != (new.size, new.dtype) or new.ndim != 1 or not new.flags.c_contiguous:
            raise UsageError(
                f"buffer: expected {old.size} contiguous elements of {old.dtype}, found shape {new.shape} of "
                f"{new.dtype}"
            )
    if _apart_bytes(*before) != _apart_bytes(*now):
        raise UsageError("the buffers do not share memory as those of the plan do")


def _apart_bytes(send: Array, recv: Array) -> int | None:
    """Return how many bytes ``send`` begins after ``recv``; None where they share no memory."""
    if not send.size or not recv.size or not np.shares_memory(send, recv):
        return None
    return send.ctypes.data - recv.ctypes.data


def _moved(bounds: list[tuple[int, int]], now: list[Array], message: Array) -> Array:
    """Return what ``message`` becomes where it lies within one of ``bounds``: the same part of ``now``."""
    at = message.ctypes.data
    for (first, stop), array in zip(bounds, now, strict=True):
        if first <= at < stop:
            return array[at - first : at - first + message.size]
    return message


def _wires(comm: Any, wires: list[Wire]) -> Wires:
    """Return what moves the messages of ``wires``: the group's own connections, or MPI."""
    if isinstance(comm, Group):
        return comm.wires(wires)
    from exec.mpi.wires import MpiWires

    return MpiWires(comm, wires)


def _shared_anywhere(comm: Any, send: Array, recv: Array) -> bool:
    """Return whether a rank runs in place: all ranks must plan alike."""
    return any(comm.allgather(bool(send.size and recv.size and np.shares_memory(send, recv))))


def _check_fit(layout: Layout, rank: int, send: Array, recv: Array, in_place: bool) -> None:
    program = layout.program
    if not (program.in_place if in_place else program.out_of_place):
        raise UsageError(f"program {program.name} cannot run {'in place' if in_place else 'out of place'}")
    for name, buffer, array in (("send", INPUT, send), ("receive", OUTPUT, recv)):
        wanted = layout.elements(rank, buffer)
        if array.ndim != 1 or array.size != wanted or not array.flags.c_contiguous:
            raise UsageError(
                f"{name} buffer of rank {rank}: expected {wanted} contiguous elements, "
                f"found shape {array.shape}"
            )
    if send.dtype != recv.dtype:
        raise UsageError(f"the buffers have different types: {send.dtype} and {recv.dtype}")
