"""Gloo, the library that torch.distributed uses between CPUs; it needs torch."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from exec.peers.base import Call
from exec.program import Array, Buffers
from exec.sockets import interface_of, own_addresses_towards
from probes.base import UnavailableError
from synth.collective import Collective

__all__ = ["GlooPeer"]

# Longest wait for the other ranks; five minutes is torch's default for a store.
_TIMEOUT = timedelta(seconds=300)
_INTERFACE = "GLOO_SOCKET_IFNAME"


class GlooPeer:
    """A gloo process group over all ranks; its addresses travel over ``comm``."""

    name = "gloo"
    optional = False

    def __init__(self, comm: Any) -> None:
        torch = _torch(comm)
        self._torch, self._distributed = torch, torch.distributed
        self.version = f"torch {torch.__version__}"
        torch.set_num_threads(1)
        address = _address(comm)
        if not address:
            raise UnavailableError("gloo needs an address of rank 0's host that others reach, and found none")
        os.environ.setdefault(_INTERFACE, interface_of(next(iter(own_addresses_towards([address])), "")))
        store = self._distributed.TCPStore(
            address, _agreed_port(comm), comm.Get_size(), comm.Get_rank() == 0, _TIMEOUT
        )
        try:
            self._distributed.init_process_group(
                "gloo", store=store, rank=comm.Get_rank(), world_size=comm.Get_size(), timeout=_TIMEOUT
            )
        except RuntimeError as error:
            raise UnavailableError(f"gloo does not start: {error}", hint=f"Set {_INTERFACE}.") from error

    def ready(self, collective: Collective, buffers: Buffers, redop: str) -> Call:
        if not collective.whole:
            raise UnavailableError(f"gloo has no {collective.label} on some of the ranks to compare with")
        operators = self._distributed.ReduceOp
        known = {"sum": operators.SUM, "prod": operators.PRODUCT, "min": operators.MIN, "max": operators.MAX}
        if collective.reduces and redop not in known:
            raise UnavailableError(f"gloo has no operator {redop} to compare with")
        return Call(self._call(collective, buffers, known.get(redop, operators.SUM)), buffers.recv)

    def close(self) -> None:
        self._distributed.destroy_process_group()

    def _tensor(self, array: Array) -> Any:
        """Return a tensor on the array's memory; PyTorch gets bfloat16, which NumPy lacks, as uint16."""
        if array.dtype.names == ("bfloat16",):
            return self._torch.from_numpy(array.view("uint16")).view(self._torch.bfloat16)
        try:
            return self._torch.from_numpy(array)
        except TypeError as error:
            raise UnavailableError(f"torch has no tensors over elements of {array.dtype.name}") from error

    def _call(self, collective: Collective, buffers: Buffers, op: Any) -> Callable[[], object]:
        """Return the collective on ``buffers``; raises UnavailableError if gloo has none of its kind."""
        group, root = self._distributed, collective.root
        send, recv = self._tensor(buffers.send), self._tensor(buffers.recv)
        rank = group.get_rank()
        match collective.kind:
            case "all_reduce":
                # Gloo reduces in place only; out of place a user has to copy the input first.
                reduce = partial(group.all_reduce, recv, op)
                return reduce if buffers.in_place else _after(partial(recv.copy_, send), reduce)
            case "broadcast":
                broadcast = partial(group.broadcast, recv, root)
                copies = rank == root and not buffers.in_place
                return _after(partial(recv.copy_, send), broadcast) if copies else broadcast
            case "all_gather":
                return partial(group.all_gather_into_tensor, recv, send)
            case "reduce_scatter":
                return partial(group.reduce_scatter_tensor, recv, send, op)
            case "all_to_all":
                return partial(group.all_to_all_single, recv, send)
            case "gather":
                return partial(group.gather, send, _parts(recv, collective) if rank == root else None, root)
            case "scatter":
                return partial(group.scatter, recv, _parts(send, collective) if rank == root else None, root)
            case "all_to_next":
                to = [partial(group.isend, send, rank + 1)] if rank + 1 < collective.ranks else []
                from_ = [partial(group.irecv, recv, rank - 1)] if rank else []
                return partial(_exchange, to + from_)
        raise UnavailableError(f"gloo has no {collective.label} to compare with")


def _parts(tensor: Any, collective: Collective) -> list[Any]:
    return list(tensor.chunk(collective.ranks))


def _exchange(messages: Sequence[Callable[[], Any]]) -> None:
    for work in [start() for start in messages]:
        work.wait()


def _after(first: Callable[[], object], then: Callable[[], object]) -> Callable[[], object]:
    def both() -> None:
        first()
        then()

    return both


def _torch(comm: Any) -> Any:
    """Return the module torch if every rank has it with gloo; otherwise raise UnavailableError on all."""
    try:
        import torch
        import torch.distributed as distributed

        missing = "" if distributed.is_available() and distributed.is_gloo_available() else "without gloo"
    except ImportError as error:
        missing = str(error)
    lacking = [entry for entry in comm.allgather((socket.gethostname(), missing)) if entry[1]]
    if lacking:
        raise UnavailableError(
            f" gloo needs torch on every host; {lacking[0][0]}: {lacking[0][1]}",
            hint="pip install torch (a CPU build is enough), or leave gloo out.",
            argument="peers",
        )
    return torch


def _address(comm: Any) -> str:
    """Return the address at which every rank reaches rank 0; "" if there is none.

    If all ranks are in one network namespace of one host, the result is the loopback address.
    """
    places = set(comm.allgather((socket.gethostname(), str(Path("/proc/self/ns/net").readlink()))))
    address = ""
    if comm.Get_rank() == 0:
        address = "127.0.0.1" if len(places) == 1 else _own_address(os.environ.get(_INTERFACE))
    agreed: str = comm.bcast(address)
    return agreed


def _own_address(interface: str | None) -> str:
    """Return the first IPv4 address of ``interface`` (None: of any that is up); "" if there is none."""
    import psutil

    up = {name for name, found in psutil.net_if_stats().items() if found.isup}
    for name, entries in psutil.net_if_addrs().items():
        if name != interface and (interface or name not in up):
            continue
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return str(entry.address)
    return ""


def _agreed_port(comm: Any) -> int:
    """Return a port that is free on rank 0's host, the same on all ranks."""
    port = 0
    if comm.Get_rank() == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    agreed: int = comm.bcast(port)
    return agreed
