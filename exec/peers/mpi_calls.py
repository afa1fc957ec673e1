"""The MPI library's own collectives on the same buffers: what a user would call instead of us."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from exec.program.dtypes import Array
from probes.errors import UnavailableError, UsageError
from synth.collective import Collective

__all__ = ["Sides", "library_call"]


class Sides(Protocol):
    """What a library's call needs of a rank's buffers; ``exec.program.buffers.Buffers`` has it."""

    @property
    def send(self) -> Array: ...
    @property
    def recv(self) -> Array: ...
    @property
    def whole(self) -> Array: ...
    @property
    def in_place(self) -> bool: ...


def library_call(
    comm: Any, collective: Collective, buffers: Sides, redop: str
) -> tuple[Callable[[], object], Array]:
    """(call, where its result lies); in place by MPI_IN_PLACE where ``buffers`` are."""
    from mpi4py import MPI

    if not collective.whole:
        raise UsageError(f"the MPI library has no {collective.label} on some of the ranks to compare with")
    op = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}.get(redop)
    if collective.reduces and op is None:
        raise UnavailableError(f"the MPI library has no {redop} to compare with")
    send: Any = MPI.IN_PLACE if buffers.in_place else buffers.send
    recv, root = buffers.recv, collective.root
    match collective.kind:
        case "all_reduce":
            return partial(comm.Allreduce, send, recv, op), recv
        case "all_gather":
            return partial(comm.Allgather, send, recv), recv
        case "all_to_all":
            return partial(comm.Alltoall, send, recv), recv
        case "reduce_scatter":
            # MPI leaves the block at the start of the buffer, not where it belongs in the whole.
            block = buffers.whole[: recv.size]
            return partial(comm.Reduce_scatter_block, send, buffers.whole, op), block
        case "reduce":
            at_root = comm.Get_rank() == root
            return partial(
                comm.Reduce, send if at_root else buffers.send, recv if at_root else None, op, root
            ), recv
        case "broadcast":
            return _broadcast(comm, buffers, root), recv
        case "scatter":
            at_root = comm.Get_rank() == root
            into: Any = MPI.IN_PLACE if at_root and buffers.in_place else recv
            return partial(comm.Scatter, buffers.send if at_root else None, into, root), recv
        case "gather":
            at_root = comm.Get_rank() == root
            out: Any = send if at_root else buffers.send
            return partial(comm.Gather, out, recv if at_root else None, root), recv
        case "all_to_next":
            after, before = comm.Get_rank() + 1, comm.Get_rank() - 1
            to = after if after < comm.Get_size() else MPI.PROC_NULL
            source = before if before >= 0 else MPI.PROC_NULL
            return partial(comm.Sendrecv, buffers.send, to, 0, recv, source, 0), recv
    raise UsageError(f"the MPI library has no {collective.label} to compare with")


def _broadcast(comm: Any, buffers: Sides, root: int) -> Callable[[], object]:
    """MPI broadcasts in place only; out of place the root copies first, as it would have to."""
    if buffers.in_place or comm.Get_rank() != root:
        return partial(comm.Bcast, buffers.recv, root)

    def copy_and_send() -> None:
        np.copyto(buffers.recv, buffers.send)
        comm.Bcast(buffers.recv, root)

    return copy_and_send
