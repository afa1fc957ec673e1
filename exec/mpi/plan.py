"""A program prepared to run on this rank's CPU: planned once, run many times.

Ranks of one host communicate through shared memory. They read each other's buffers in place if these lie in a
window (``exec.mpi.shared_memory.shared_array``). A long message in private memory is copied only once, if the
system allows that. Ranks of different hosts communicate by persistent requests of MPI, or, if ``comm`` is a
`Group`, over TCP connections.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import numpy as np

from exec.mpi import interpreter
from exec.mpi.connections import Connections
from exec.mpi.encode import make_input_optional, tables_of
from exec.mpi.reduce import REDOP_CODES, combine_address
from exec.mpi.stalls import Neighbours, waits_for
from exec.mpi.trace import RunLog
from exec.mpi.traffic import traffic
from exec.program import (
    Array,
    Contents,
    KeptRun,
    Layout,
    Wire,
    Wires,
    contents_of,
    divided,
    moves,
    ufunc_of,
)
from exec.sockets import FlowWires, Group
from probes.base import SILENT, Indices, LostRankError, Mask, Progress, UsageError
from synth.multimem import refuse_switches
from synth.prediction import BOUNCE_BYTES
from synth.program import INPUT, OUTPUT

__all__ = ["MpiPlan"]

# A rank that has waited for _SAY_AFTER_S reports for whom, and checks every _LOOK_EVERY_S that the others
# live.
_SAY_AFTER_S, _LOOK_EVERY_S = 0.05, 0.5
# Polls before a waiting rank yields its core: with a core for each rank, and with ranks that share cores.
_SPINS, _SPINS_CROWDED = 1000, 1
# The time for which a rank sleeps that has waited long.
_NAP_S = 0.0002
_NONE: Indices = np.zeros(0, dtype=np.int64)


class MpiPlan:
    """A program bound to this rank's buffers; making the plan and ``run`` are collective over ``comm``.

    ``send`` and ``recv`` are flat, contiguous arrays of one type. If they share memory, the program runs in
    place; they must then overlap as ``exec.program.layout.Layout.in_place`` lays them out. Raises UsageError
    if the buffers do not fit the program, if the program cannot run in place, and if switches carry out some
    steps. ``progress`` shows whom a waiting rank waits for.

    With ``may_be_late`` this rank forwards what it receives without its own input, until `let_join` is
    called; `joined` then returns which elements were added. ``traced`` and ``summed`` must be equal on all
    ranks. With ``traced`` `kept` returns the steps of the last run. With ``summed`` every step of a run is
    followed by two passes over its data, and `checksums` returns the sums.
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
        summed: bool = False,
    ) -> None:
        program = layout.program
        ufunc_of(redop)
        refuse_switches(program, "an executor on CPUs")
        if comm.Get_size() != program.ranks:
            raise UsageError(f"the program is for {program.ranks} ranks, the world has {comm.Get_size()}")
        in_place = _any_in_place(comm, send, recv)
        rank = comm.Get_rank()
        _check_fit(layout, rank, send, recv, in_place)
        self._program, self._rank, self._progress = program, rank, progress
        self._send, self._recv = send, recv
        self._sums = layout.sums(rank) if redop == "avg" else []
        self._comm = comm.Dup()
        every = moves(layout)
        self._ends = ends = Connections(layout, self._comm, every, send, recv, traced=traced, summed=summed)
        self._neighbours = Neighbours(ends.neighbours)
        messages = traffic(layout, every, in_place=in_place, readable=ends.readable, wired=ends.wired)
        self._links, wires = ends.linked(messages)
        self._wires = _wires(self._comm, wires) if wires else None
        self._tables = tables_of(
            layout, rank, every, messages, ends.tiling, ends.rows, ends.memory(), ends.wired
        )
        # Rows of pieces with optional input.
        self._optional = make_input_optional(program, self._tables) if may_be_late else _NONE
        if summed:
            # Checksums need the result of every step, so no steps are fused.
            self._tables.steps[:, interpreter.FUSED] = 1
        self._contents: Contents | None = None
        self._allocate(ends.tiling.tiles, may_be_late=may_be_late, summed=summed)
        self._header = self._new_header(ends, recv.dtype.itemsize, redop, summed=summed)
        tables = self._tables
        self._arguments: tuple[Any, ...] = (
            self._header,
            tables.blocks,
            tables.steps,
            tables.pieces,
            tables.waits,
            self._links,
        )
        self._begin = self._compile(recv.dtype)
        self._log = RunLog(tables, self._links, ends, self._clock) if traced else None
        if self._log is not None:
            self._log.open(self._header)

    def _allocate(self, tiles: int, *, may_be_late: bool, summed: bool) -> None:
        """Allocate the memory that the header gives to the compiled interpreter by its address."""
        # A word that is 1 once the optional input is there, and which pieces and tiles it was added to.
        self._there = np.zeros(1, dtype=np.int64)
        self._added = np.zeros((len(self._tables.pieces) * may_be_late, tiles), dtype=np.int64)
        self._clock = np.zeros(4, dtype=np.int64)
        # A block for operands copied from other processes, and the arguments of these copies.
        self._bounce = np.zeros(BOUNCE_BYTES, dtype=np.uint8)
        self._vectors = np.zeros(4, dtype=np.int64)
        self._sums_of_steps = np.zeros((len(self._tables.steps) * summed, 2), dtype=np.int64)

    def _new_header(self, ends: Connections, item_bytes: int, redop: str, *, summed: bool) -> Indices:
        """Return the words that the compiled interpreter reads and writes during runs."""
        values = {
            interpreter.RUN: -1,
            interpreter.TILE: ends.tiling.tile,
            interpreter.ITEM_BYTES: item_bytes,
            interpreter.REDOP: REDOP_CODES[redop],
            interpreter.SPINS: _SPINS_CROWDED if ends.crowded else _SPINS,
            interpreter.TCP_ENDS: self._wires.tcp_ends_at if isinstance(self._wires, FlowWires) else 0,
            interpreter.LONELY: int(ends.lonely),
            interpreter.JOINS: self._there.ctypes.data,
            interpreter.JOINED: self._added.ctypes.data,
            interpreter.SUMS: self._sums_of_steps.ctypes.data * summed,
            interpreter.CLOCK: self._clock.ctypes.data,
            interpreter.BOUNCE: self._bounce.ctypes.data,
            interpreter.VECTORS: self._vectors.ctypes.data,
        }
        return np.array([values.get(word, 0) for word in range(interpreter.HEADER_WORDS)], dtype=np.int64)

    def run(self, without: Mask | None = None) -> None:
        """Run the collective once on the current content of the buffers.

        ``without`` masks chunks that are not sent and whose outputs are undefined; it must be equal on all
        ranks. Raises UsageError if it masks any chunk and the ranks communicate by MPI's persistent requests.
        """
        if without is not None and without.any():
            with self._leave_out(without):
                self.run()
            return
        for _ in self._passes():
            pass

    def _passes(self, *, beside: bool = False) -> Iterator[bool]:
        """Run the collective, and yield after each pass whether it moved data.

        With ``beside`` the rank has other work to do meanwhile, so no pass waits.
        """
        if self._log is not None:
            self._log.begin(self._header)
        self._sums_of_steps[:] = 0
        if self._wires is not None:
            self._wires.begin(int(self._header[interpreter.RUN]) + 1)
        self._header[interpreter.ONE_PASS] = int(
            beside or (self._wires is not None and not self._header[interpreter.TCP_ENDS])
        )
        state = self._begin()
        if state != interpreter.DONE:
            yield from self._advance_to_end(state, beside=beside)
        for start, stop, summands in self._sums:
            self._recv[start:stop] = divided(self._recv[start:stop], summands)
        if self._log is not None:
            self._log.end()

    @staticmethod
    def run_together(plans: Sequence[MpiPlan], release_s: Sequence[float]) -> list[float]:
        """Run plans at once, each from its release on; return the seconds at which each ended on this rank.

        Times count from the call. All ranks give the plans in one order; a plan gets a pass in turn.
        """
        began_s = time.perf_counter()
        runs = {at: plan._passes(beside=True) for at, plan in enumerate(plans)}
        ended_s = [0.0] * len(plans)
        moved_s = began_s
        while runs:
            moved = False
            for at, run in tuple(runs.items()):
                now_s = time.perf_counter() - began_s
                if now_s < release_s[at]:
                    continue
                passed = next(run, None)
                moved = moved or passed is not False
                if passed is None:
                    ended_s[at] = time.perf_counter() - began_s
                    del runs[at]
            now_s = time.perf_counter()
            if moved:
                moved_s = now_s
            elif now_s - moved_s > _SAY_AFTER_S:
                time.sleep(_NAP_S)
            else:
                os.sched_yield()
        return ended_s

    def kept(self) -> KeptRun:
        """Return the log of the last run; only for a traced plan."""
        assert self._log is not None
        return self._log.kept(self._header)

    def checksums(self) -> tuple[Indices, Indices]:
        """Return (steps, checksums) of the last run; only for a summed plan.

        ``steps`` are this rank's steps by their rows in the program. ``checksums`` has two columns: the
        checksum of the message that a step received, and the checksum of its result
        (`exec.program.StepSums`).
        """
        return self._tables.step_of, self._sums_of_steps.copy()

    def follow_chunks(self) -> None:
        """Compute which chunks each step carries, ahead of the first run that leaves some out."""
        if self._contents is None:
            self._contents = contents_of(self._program, self._ends.moves)

    def begin_without_input(self) -> None:
        """Make the next run begin without this rank's input; only between runs."""
        self._there[0] = 0
        self._added[:] = 0

    def let_join(self) -> None:
        """Let the rest of the current run add the filled send buffer; any thread may call this."""
        interpreter.let_join(self._header)

    def joined(self) -> Mask:
        """Return the mask of send buffer elements that the last run added, on a rank that was late."""
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
        """Use these buffers from now on; not collective.

        Sizes, and how the two overlap, must be as before. The plan must use no wires of MPI, and its buffers
        must be in private memory. Raises UsageError otherwise, and if the buffers do not fit.
        """
        _check_alike((self._send, self._recv), (send, recv))
        if any(origin is not None for origin in self._ends.origins[self._rank][:2]):
            raise UsageError("the plan's buffers lie in shared memory, where other ranks read them")
        if self._wires is not None and not isinstance(self._wires, FlowWires):
            raise UsageError("MPI's persistent requests cannot move to other buffers")
        ends = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in (self._send, self._recv)]
        pieces = self._tables.pieces
        for column in (interpreter.SRC, interpreter.DST, interpreter.FAR):
            before = pieces[:, column].copy()
            for (first, stop), array in zip(ends, (send, recv), strict=True):
                inside = (before >= first) & (before < stop)
                pieces[inside, column] = before[inside] - first + array.ctypes.data
        if self._wires is not None:
            now = [array.view(np.uint8) for array in (send, recv)]
            self._wires.move_to(partial(_corresponding_part, ends, now))
        self._send, self._recv = send, recv
        self._ends.publish(send, recv)

    def close(self) -> None:
        """Free the requests, the shared memory and the communicator; collective."""
        self._release()
        self._ends.close()
        self._comm.Free()

    def abandon(self) -> None:
        """Free everything without the other ranks, after one is lost; the plan can run no more."""
        self._release()
        self._ends.abandon()

    @contextmanager
    def _leave_out(self, chunks: Mask) -> Iterator[None]:
        """Disable, within the block, all steps and messages that carry only these chunks."""
        if self._wires is not None and not isinstance(self._wires, FlowWires):
            raise UsageError("MPI's persistent requests cannot leave out messages")
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
        self._begin = _refuse_run

    def _compile(self, dtype: np.dtype[Any]) -> Callable[[], int]:
        """Return the function that begins a run.

        One rank of each host compiles first; the others then load the result from the cache.
        """
        header, *tables = self._arguments
        if not self._ends.leads:
            self._comm.Barrier()
        header[interpreter.COMBINE] = combine_address(dtype)
        interpreter.advance(*self._arguments)
        begin = interpreter.runner(header, tables)
        if self._ends.leads:
            self._comm.Barrier()
        if len(self._optional):
            interpreter.let_join(header)
        header[interpreter.TILES] = self._ends.tiling.tiles
        return begin

    def _advance_to_end(self, state: int, *, beside: bool) -> Iterator[bool]:
        """Advance the run to its end: serve the wires, report waiting, and check that the others live."""
        since_s = looked_s = time.monotonic()
        reported = False
        # Over TCP alone, the interpreter waits.
        waits = self._ends.lonely and not beside and not self._header[interpreter.TCP_ENDS]
        while state != interpreter.DONE:
            if state == interpreter.LOST:
                self._raise_unreadable()
            moved = state == interpreter.MOVED
            if self._wires is not None:
                moved = self._wires.serve(wait=False) or moved
                if not moved and waits:
                    self._report_wait()
                    moved = reported = self._wires.serve(wait=True)
            now_s = time.monotonic()
            if not moved and isinstance(self._comm, Group):
                self._comm.check()
            if moved:
                since_s = now_s
            elif now_s - since_s > _SAY_AFTER_S:
                self._report_wait()
                reported = True
                if now_s - looked_s > _LOOK_EVERY_S:
                    looked_s = now_s
                    self._check_neighbours()
                if not beside:
                    time.sleep(_NAP_S)
            elif self._wires is not None and not beside:
                os.sched_yield()
            yield moved
            state = interpreter.advance(*self._arguments)
        if reported:
            self._progress.update(0, 0, self._program.name)

    def _report_wait(self) -> None:
        peer, text = waits_for(self._program, self._tables, self._arguments)
        self._progress.waiting(peer, text)

    def _raise_unreadable(self) -> NoReturn:
        """Raise LostRankError because the memory of a rank of this host can be read no more."""
        peer = self._ends.unreadable()
        whose = "of a rank of this host" if peer is None else f"of rank {peer}"
        self._raise_lost(self._neighbours.lost() or f"the memory {whose} cannot be read any more")

    def _check_neighbours(self) -> None:
        """Raise LostRankError if a rank of this host has ended or is stopped."""
        if lost := self._neighbours.lost():
            self._raise_lost(lost)

    def _raise_lost(self, why: str) -> NoReturn:
        _, text = waits_for(self._program, self._tables, self._arguments)
        raise LostRankError(f"{why}; rank {self._rank} waited: {text}")


def _refuse_run() -> int:
    raise RuntimeError("the plan is closed")


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
    """Return the offset of ``send`` from ``recv`` in bytes; None if they share no memory."""
    if not send.size or not recv.size or not np.shares_memory(send, recv):
        return None
    return send.ctypes.data - recv.ctypes.data


def _corresponding_part(bounds: list[tuple[int, int]], now: list[Array], message: Array) -> Array:
    """Return the part of ``now[i]`` that corresponds to ``message`` within ``bounds[i]``.

    A message outside all bounds is returned unchanged.
    """
    at = message.ctypes.data
    for (first, stop), array in zip(bounds, now, strict=True):
        if first <= at < stop:
            return array[at - first : at - first + message.size]
    return message


def _wires(comm: Any, wires: list[Wire]) -> Wires:
    """Return the transport of ``wires``: the group's own connections, or MPI."""
    if isinstance(comm, Group):
        return comm.wires(wires)
    from exec.mpi.wires import MpiWires

    return MpiWires(comm, wires)


def _any_in_place(comm: Any, send: Array, recv: Array) -> bool:
    """Return whether any rank runs in place, because all ranks must plan alike; collective."""
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
