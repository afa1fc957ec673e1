"""One run of a collective on the caller's data."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exec.executors import Executor
from exec.memory_demand import run_need
from exec.peers import Call, Peer, open_peers
from exec.program import Array, Buffers, Layout, count_fitting, dtype_name
from probes.base import Progress, UnavailableError, UsageError
from probes.live import require_room
from synth.program import INPUT, OUTPUT, Program

__all__ = ["RunRequest", "fitting", "run_task"]


@dataclass(frozen=True, eq=False)
class RunRequest:
    """A program, the number of elements in a block (``count``), and the flat input of every rank.

    ``library`` names a library of ``exec.peers.registry`` that runs instead of the program, if it can.
    """

    program: Program
    count: int
    inputs: tuple[Array, ...]
    redop: str
    device: str = "cpu"
    library: str = ""

    def of_rank(self, rank: int) -> RunRequest:
        """Return the request as sent to ``rank``, without the inputs of other ranks."""
        inputs = tuple(given if at == rank else given[:0] for at, given in enumerate(self.inputs))
        return replace(self, inputs=inputs)


def fitting(
    program: Program, inputs: tuple[Array, ...], redop: str, source: str = "", device: str = "cpu"
) -> RunRequest:
    """Return a request after checking its inputs; raises UsageError naming the rank whose input is wrong.

    ``source`` is the origin of the inputs, for messages; ``{rank}`` in it stands for the rank's number.
    """

    def named(rank: int) -> str:
        return f"{source.replace('{rank}', str(rank))}: rank {rank}" if source else f"rank {rank}"

    if len(inputs) != program.ranks:
        raise UsageError(f"the program is for {program.ranks} ranks, the input is for {len(inputs)}")
    single = Layout(program, 1)
    first = next((rank for rank in range(program.ranks) if single.elements(rank, INPUT)), 0)
    for rank, given in enumerate(inputs):
        try:
            name = dtype_name(given.dtype)
        except UsageError as error:
            raise UsageError(f"{named(rank)}: {error.message}") from error
        if given.dtype != inputs[first].dtype:
            raise UsageError(f"{named(rank)} has {name}, rank {first} {dtype_name(inputs[first].dtype)}")
    elements = [given.size for given in inputs]
    count = count_fitting(program, elements)
    if count is None:
        raise UsageError(_misfit(program, first, elements, named))
    return RunRequest(
        program, count, tuple(np.ascontiguousarray(given).reshape(-1) for given in inputs), redop, device
    )


def _misfit(program: Program, first: int, elements: Sequence[int], named: Callable[[int], str]) -> str:
    """Return why no count of the program fits inputs of ``elements``, if rank ``first`` is right."""
    collective, least = program.collective, Layout(program, 1).elements(first, INPUT)
    if collective.blocks is not None:
        return (
            f"{named(first)}: the inputs are not in the proportion of the {collective.label}: expected "
            f"{', '.join(map(str, collective.buffer_bytes()[0][:8].tolist()))} bytes "
            f"of the ranks or a multiple, found {', '.join(map(str, elements[:8]))} elements"
        )
    count, left = divmod(elements[first], least)
    if left or not count:
        return (
            f"{named(first)}: expected a positive multiple of {least} elements for {collective.kind} on "
            f"{program.ranks} ranks, found {elements[first]}"
        )
    layout = Layout(program, count)
    wrong = next(rank for rank, given in enumerate(elements) if given != layout.elements(rank, INPUT))
    return (
        f"{named(wrong)}: expected {layout.elements(wrong, INPUT)} elements like rank {first}, "
        f"found {elements[wrong]}"
    )


def run_task(comm: Any, request: RunRequest, progress: Progress) -> tuple[list[Array], str] | None:
    """Run a request on all ranks; return (outputs of all ranks, description) on rank 0, None on others.

    The description names the GPU executor or the library that ran; for CPUs it is empty.
    """
    layout = Layout(request.program, request.count)
    rank = comm.Get_rank()
    far = len(set(comm.allgather(socket.gethostname()))) > 1
    need = run_need(layout, rank, request.inputs[rank].dtype.itemsize, far=far)
    require_room(comm, need, layout.program.collective.label)
    progress.waiting(-1, f"{request.program.name}: planning")
    if call := _library_call(comm, request, layout):
        how = f"by {request.library}'s own collective, which the selection names for this size"
    else:
        executor = Executor(comm, request.device)
        send, recv = _buffers(layout, rank, request.inputs[rank])
        call = executor.ready(layout, send, recv, request.redop, progress)
        how = ", ".join(executor.chosen.values())
    progress.waiting(-1, f"{request.program.name}: running")
    call.place()
    call.run()
    call.fetch()
    call.close()
    gathered: list[Array] | None = comm.gather(call.result)
    return None if gathered is None else (gathered, how)


def _library_call(comm: Any, request: RunRequest, layout: Layout) -> Call | None:
    """Return the requested library's collective on this rank's input; None if no library can run it."""
    if not request.library:
        return None
    given = request.inputs[comm.Get_rank()]
    buffers = Buffers(layout, comm.Get_rank(), given.dtype, in_place=False)
    buffers.send = given
    [peer] = open_peers(comm, (request.library,), layout.program.collective)
    try:
        call = peer.ready(layout.program.collective, buffers, request.redop)
    except UnavailableError:
        peer.close()
        return None
    return replace(call, close=_close_both(call, peer))


def _close_both(call: Call, peer: Peer) -> Callable[[], object]:
    """Return a function that frees a call and then the library that made it."""

    def close() -> None:
        call.close()
        peer.close()

    return close


def _buffers(layout: Layout, rank: int, given: Array) -> tuple[Array, Array]:
    """Return input and output of ``rank``, in one buffer if the program can run only in place."""
    if layout.program.out_of_place:
        return given, np.zeros(layout.elements(rank, OUTPUT), given.dtype)
    elements, where_in, where_out = layout.in_place(rank)
    whole = np.zeros(elements, given.dtype)
    whole[where_in] = given
    return whole[where_in], whole[where_out]
