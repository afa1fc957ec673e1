"""A program made ready to run on this rank over MPI: planned once, run many times.

Everything is made beforehand: the views, the staging slots, one persistent request for each
message. A run only starts requests, waits for them and calls NumPy on views that exist already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from exec.layout import Layout
from exec.moves import Move, Part, Span, moves
from exec.mpi.timeline import START, Message, timeline
from exec.redops import Array, ufunc_of
from probes.errors import UsageError
from synth.compiler.order import connections
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["Plan"]

Action = Callable[[], object]


class Plan:
    """A program on this rank's buffers; ``run`` is collective over ``comm``, and so is the making.

    ``send`` and ``recv`` are flat, contiguous arrays of one type. In place they share memory as the
    collective defines it (``exec.layout.Layout.in_place``); that is seen by itself. Raises UsageError
    where the buffers do not fit the program or the program cannot run in place.
    """

    def __init__(self, layout: Layout, comm: Any, send: Array, recv: Array, redop: str = "sum") -> None:
        from mpi4py import MPI

        program = layout.program
        if comm.Get_size() != program.ranks:
            raise UsageError(f"the program is for {program.ranks} ranks, the world has {comm.Get_size()}")
        in_place = _shared_anywhere(comm, send, recv)
        _check_fit(layout, comm.Get_rank(), send, recv, in_place)
        self._comm = comm.Dup()
        build = _Build(layout, self._comm, send, recv, redop)
        build.actions_of(moves(layout), in_place=in_place)
        self._first, self._actions, self._sends = build.first, build.actions, build.sends
        self._requests = build.requests
        self._start_all, self._wait_all = MPI.Prequest.Startall, MPI.Request.Waitall

    def run(self) -> None:
        """Carry out the collective once on what the buffers hold now."""
        if self._first:
            self._start_all(self._first)
        for action in self._actions:
            action()
        if self._sends:
            self._wait_all(self._sends)

    def close(self) -> None:
        """Free the requests and the communicator; collective."""
        for request in self._requests:
            request.Free()
        self._requests, self._actions, self._first, self._sends = [], [], [], []
        self._comm.Free()


class _Build:
    """Collects this rank's actions in the order of their moments."""

    def __init__(self, layout: Layout, comm: Any, send: Array, recv: Array, redop: str) -> None:
        program = layout.program
        self.comm, self.layout, self.combine = comm, layout, ufunc_of(redop)
        self.rank = comm.Get_rank()
        scratch = np.empty(layout.elements(self.rank, SCRATCH), recv.dtype)
        self.buffers = {INPUT: send, OUTPUT: recv, SCRATCH: scratch}
        self.dtype = recv.dtype
        self.ends = _ends(program)
        self.first: list[Any] = []
        self.actions: list[Action] = []
        self.sends: list[Any] = []
        self.requests: list[Any] = []
        self._staging: dict[tuple[int, int], Array] = {}
        self._before: defaultdict[float, list[Action]] = defaultdict(list)

    def actions_of(self, every: list[Move], *, in_place: bool) -> None:
        """Fill ``first``, ``actions`` and ``sends``; ``every`` are the moves of all ranks."""
        messages = timeline(self.layout, every, in_place=in_place)
        incoming = self._incoming(messages)
        outgoing = self._outgoing(messages)
        for at, move in enumerate(every):
            if move.rank != self.rank:
                continue
            self.actions += self._before[at]
            for number, part in enumerate(move.parts):
                received = incoming[at][number] if move.from_ >= 0 else None
                self._work(move, part, received, outgoing.get((at, number)))
            self.actions += self._before[at + 0.5]

    def _incoming(self, messages: list[Message]) -> dict[int, list[tuple[Any, Array]]]:
        """For each receiving move its requests, each with the view that it fills."""
        found: defaultdict[int, list[tuple[Any, Array]]] = defaultdict(list)
        for message in messages:
            sender, receiver, channel = self.ends[message.connection]
            if receiver != self.rank:
                continue
            view = self._landing(message)
            request = self.comm.Recv_init(view, source=sender, tag=channel)
            self.requests.append(request)
            found[message.received].append((request, view))
            if message.posted == START:
                self.first.append(request)
            else:
                self._before[message.posted].append(request.Start)
        return found

    def _outgoing(self, messages: list[Message]) -> dict[tuple[int, int], tuple[Any, Array, bool]]:
        """For each sending part its request, the view it sends, and whether that is a copy."""
        found: dict[tuple[int, int], tuple[Any, Array, bool]] = {}
        for message in messages:
            sender, receiver, channel = self.ends[message.connection]
            if sender != self.rank:
                continue
            copied = message.bounced or message.span is None
            view = np.empty(message.length, self.dtype) if copied else self._view(message.span)
            request = self.comm.Send_init(view, dest=receiver, tag=channel)
            self.requests.append(request)
            self.sends.append(request)
            found[message.sent, message.part] = (request, view, copied)
            for moment in sorted(set(message.waits)):
                # A receive that is posted at the same moment writes what this send still reads.
                self._before[moment].insert(0, request.Wait)
        return found

    def _work(
        self,
        move: Move,
        part: Part,
        received: tuple[Any, Array] | None,
        sent: tuple[Any, Array, bool] | None,
    ) -> None:
        act = self.actions.append
        src, dst = self._view(part.src), self._view(part.dst)
        if received:
            act(received[0].Wait)
        if move.op in ("rrc", "rrcs") and received:
            act(partial(self.combine, received[1], src, dst))
        elif move.op == "rrs" and received and sent:
            act(partial(self.combine, received[1], src, sent[1]))
        elif move.op == "re":
            act(partial(self.combine, dst, src, dst))
        elif move.op == "cpy" and not _same(src, dst):
            act(partial(np.copyto, dst, src))
        if sent:
            request, view, copied = sent
            if copied and move.op != "rrs":
                act(partial(np.copyto, view, src if move.op == "s" else dst))
            act(request.Start)

    def _landing(self, message: Message) -> Array:
        if message.landing is not None:
            return self._view(message.landing)
        key = (message.connection, message.staging)
        if key not in self._staging:
            self._staging[key] = np.empty(self._longest(message), self.dtype)
        return self._staging[key][: message.length]

    def _longest(self, message: Message) -> int:
        return self.layout.largest * int(self.layout.program.count.max())

    def _view(self, span: Span | None) -> Array:
        if span is None:
            return self.buffers[SCRATCH][:0]
        return self.buffers[span.buffer][span.start : span.stop]


def _ends(program: Program) -> dict[int, tuple[int, int, int]]:
    """For each connection its sender, its receiver and its channel."""
    send, _ = connections(program)
    columns = (program.tb_rank.tolist(), program.tb_send.tolist(), program.tb_channel.tolist())
    return {
        number: ends for number, ends in zip(send, zip(*columns, strict=True), strict=True) if number >= 0
    }


def _same(first: Array, second: Array) -> bool:
    return first.ctypes.data == second.ctypes.data and first.size == second.size


def _shared_anywhere(comm: Any, send: Array, recv: Array) -> bool:
    """Whether a rank runs in place: all ranks must plan alike."""
    from mpi4py import MPI

    shares = bool(send.size and recv.size and np.shares_memory(send, recv))
    return bool(comm.allreduce(shares, op=MPI.LOR))


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
