"""The MPI library's collectives on our buffers, with an algorithm of its choice or a named one.

The library's control variables select an algorithm in the middle of a run, so that all algorithms take turns
with our programs in one launch. Open MPI reads the variables when a communicator is made, so each algorithm
gets a communicator that the component tuned serves. MPICH reads them at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from exec.peers.base import Call, nothing
from exec.peers.mpi_t import Variables
from exec.peers.mpi_uneven import uneven_call
from exec.program import Array, Buffers
from probes.base import UnavailableError, UsageError, meant
from probes.live import library_name
from synth.collective import Collective, Kind

__all__ = ["MpiPeer", "algorithm_names", "algorithm_numbers"]

_DYNAMIC = "coll_tuned_use_dynamic_rules"
_OPENMPI: dict[Kind, str] = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "all_to_all": "alltoall",
    "reduce_scatter": "reduce_scatter_block",
    "reduce": "reduce",
    "broadcast": "bcast",
    "scatter": "scatter",
    "gather": "gather",
}
_DEVICE = "MPIR_CVAR_DEVICE_COLLECTIVES"
# The value "none" of MPICH's variable: the device must not replace the named algorithm.
_NO_DEVICE = 1
# MPICH silently takes another algorithm if the named one does not fit, unless this variable is _ERROR.
_FALLBACK = "MPIR_CVAR_COLLECTIVE_FALLBACK"
_ERROR = 0
# The libraries' words for "choose yourself".
_OWN_CHOICE = ("ignore", "auto")
# Algorithms that MPICH lists but that are left out: its wheels lack ccl, and nb repeats another entry.
_UNUSABLE = ("ccl", "nb")


class MpiPeer:
    """The library behind mpi4py; ``algorithm`` is a name or number, or "" for its own choice."""

    def __init__(self, comm: Any, algorithm: str = "", *, optional: bool = False) -> None:
        self._comm, self._algorithm, self.optional = comm, algorithm, optional
        self.name = f"mpi:{algorithm}" if algorithm else "mpi"
        self.version = library_name()

    def ready(self, collective: Collective, buffers: CallBuffers, redop: str) -> Call:
        if not self._algorithm:
            return self._tried(_call(self._comm, collective, buffers, redop))
        variables = Variables()
        name = _variable(collective)
        number = _number(variables, name, self._algorithm)
        if _is_openmpi():
            comm = _with_algorithm(self._comm, variables, name, number)
            return self._tried(_call(comm, collective, buffers, redop, close=comm.Free))
        device, fallback = variables.read(_DEVICE), variables.read(_FALLBACK)

        def select(value: int, by_device: int, otherwise: int) -> None:
            variables.write(name, value)
            variables.write(_DEVICE, by_device)
            variables.write(_FALLBACK, otherwise)

        return self._tried(
            _call(
                self._comm,
                collective,
                buffers,
                redop,
                prepare=partial(select, number, _NO_DEVICE, _ERROR),
                settle=partial(select, 0, device, fallback),
            )
        )

    def _tried(self, call: Call) -> Call:
        """Return the call after a trial run; raise UnavailableError if a rank's library refuses it.

        Some algorithms serve only two ranks, and some types have no sum.
        """
        from mpi4py import MPI

        reason = ""
        call.prepare()
        try:
            call.run()
        except (MPI.Exception, KeyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__} {error}"
        call.settle()
        refused = [text for text in self._comm.allgather(reason) if text]
        if refused:
            call.close()
            raise UnavailableError(
                f" {self.name}: {self.version} refuses it here: {refused[0]}", argument="peers"
            )
        return call

    def close(self) -> None:
        """Do nothing: the library lives as long as the rank."""


def algorithm_names(collective: Collective) -> list[str]:
    """Return every algorithm of the library that can be named for a collective."""
    known = Variables().choices(_variable(collective))
    return [name for name in known if name not in (*_OWN_CHOICE, *_UNUSABLE)]


def algorithm_numbers(collective: Collective) -> dict[str, int]:
    """Return the library's number of each of its algorithms of a collective, by name."""
    return Variables().choices(_variable(collective))


def _call(
    comm: Any,
    collective: Collective,
    buffers: CallBuffers,
    redop: str,
    *,
    prepare: Callable[[], object] = nothing,
    settle: Callable[[], object] = nothing,
    close: Callable[[], object] = nothing,
) -> Call:
    try:
        run, result = library_call(comm, collective, buffers, redop)
    except KeyError as error:
        raise UnavailableError(f"the MPI library has no operator {error}") from error
    return Call(run, result, prepare=prepare, settle=settle, close=close)


def _is_openmpi() -> bool:
    return library_name().startswith("Open MPI")


def _variable(collective: Collective) -> str:
    """Return the variable that selects the algorithm of a collective."""
    if collective.kind not in _OPENMPI:
        raise UnavailableError(f"the MPI library has no algorithms of {collective.label} to select")
    word = _OPENMPI[collective.kind]
    return f"coll_tuned_{word}_algorithm" if _is_openmpi() else f"MPIR_CVAR_{word.upper()}_INTRA_ALGORITHM"


def _number(variables: Variables, name: str, algorithm: str) -> int:
    known = variables.choices(name)
    if algorithm.isdecimal() and int(algorithm) in known.values():
        return int(algorithm)
    if algorithm not in known:
        every = ", ".join(f"{key} ({value})" for key, value in known.items())
        raise UsageError(
            f" mpi:{algorithm}: {library_name()} has no such algorithm",
            hint=f"{meant(algorithm, known)} It has {every}, or all.".lstrip(),
            argument="peers",
        )
    return known[algorithm]


def _with_algorithm(comm: Any, variables: Variables, name: str, number: int) -> Any:
    """Return a communicator of the same ranks whose collective is served by that algorithm."""
    from mpi4py import MPI

    before = variables.read(_DYNAMIC)
    info = MPI.Info.Create()
    info.Set("ompi_comm_coll_preference", "tuned")
    variables.write(_DYNAMIC, 1)
    variables.write(name, number)
    try:
        return comm.Dup_with_info(info)
    finally:
        variables.write(name, 0)
        variables.write(_DYNAMIC, before)
        info.Free()


class CallBuffers(Protocol):
    """The buffers of a rank that a library's call needs; ``exec.program.buffers.Buffers`` has them."""

    @property
    def send(self) -> Array: ...
    @property
    def recv(self) -> Array: ...
    @property
    def whole(self) -> Array: ...
    @property
    def in_place(self) -> bool: ...


def library_call(
    comm: Any, collective: Collective, buffers: CallBuffers, redop: str
) -> tuple[Callable[[], object], Array]:
    """Return (call, its result array); it uses MPI_IN_PLACE if ``buffers`` are in place."""
    from mpi4py import MPI

    blocks = collective.blocks
    if not collective.whole and (blocks is None or blocks.kind == "custom"):
        raise UsageError(f"the MPI library has no {collective.label} on some of the ranks to compare with")
    op = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}.get(redop)
    if collective.reduces and op is None:
        raise UnavailableError(f"the MPI library has no {redop} to compare with")
    if blocks is not None:
        assert isinstance(buffers, Buffers)
        return uneven_call(comm, blocks, buffers, op)
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


def _broadcast(comm: Any, buffers: CallBuffers, root: int) -> Callable[[], object]:
    """Return a broadcast; out of place the root copies first, because MPI's broadcast is in place."""
    if buffers.in_place or comm.Get_rank() != root:
        return partial(comm.Bcast, buffers.recv, root)

    def copy_and_send() -> None:
        np.copyto(buffers.recv, buffers.send)
        comm.Bcast(buffers.recv, root)

    return copy_and_send
