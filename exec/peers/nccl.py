"""NCCL's own collectives on device memory, through CuPy; one GPU for each rank."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from exec.peers.base import Call
from exec.program import Buffers
from probes.base import UnavailableError, install
from probes.live import cuda_errors
from synth.collective import Collective

__all__ = ["NcclPeer"]

_TYPES = {
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
    "float16": "NCCL_FLOAT16",
    "bfloat16": "NCCL_BFLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}
_OPERATORS = {"sum": "NCCL_SUM", "prod": "NCCL_PROD", "min": "NCCL_MIN", "max": "NCCL_MAX", "avg": "NCCL_AVG"}


class NcclPeer:
    """One NCCL communicator; buffers go to the device before a run, the result back after it."""

    name = "nccl"
    optional = False

    def __init__(self, comm: Any) -> None:
        self._cupy, self._nccl, device = _device(comm)
        self._gpu, self._rank = device, comm.Get_rank()
        with cuda_errors(device):
            self._cupy.cuda.Device(device).use()
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
            unique = comm.bcast(self._nccl.get_unique_id() if self._rank == 0 else None)
            self._ranks = self._nccl.NcclCommunicator(comm.Get_size(), unique, self._rank)
            number = self._nccl.get_version()
        self.version = f"NCCL {number // 10000}.{number // 100 % 100}.{number % 100}"

    def ready(self, collective: Collective, buffers: Buffers, redop: str) -> Call:
        if not collective.whole:
            raise UnavailableError(f"NCCL has no {collective.label} on some of the ranks to compare with")
        kind = self._known("element type", _TYPES, buffers.dtype.name)
        op = self._known("operator", _OPERATORS, redop) if collective.reduces else 0
        with cuda_errors(self._gpu):
            arrays = _DeviceBuffers(self._cupy, buffers)
        start = self._launch(collective, arrays.send, arrays.recv, kind, op)
        return Call(
            partial(self._complete, start),
            buffers.recv,
            place=partial(self._moved, arrays.place, buffers),
            fetch=partial(self._moved, arrays.fetch, buffers),
        )

    def close(self) -> None:
        with cuda_errors(self._gpu):
            self._ranks.destroy()

    def _known(self, kind: str, names: dict[str, str], name: str) -> int:
        found: int | None = getattr(self._nccl, names.get(name, ""), None)
        if found is None:
            raise UnavailableError(f"NCCL, as CuPy shows it, has no {kind} {name}")
        return found

    def _complete(self, start: Callable[[], object]) -> None:
        with cuda_errors(self._gpu):
            start()
            self._stream.synchronize()

    def _moved(self, move: Callable[[Buffers], None], buffers: Buffers) -> None:
        with cuda_errors(self._gpu):
            move(buffers)

    def _launch(
        self, collective: Collective, send: Any, recv: Any, kind: int, op: int
    ) -> Callable[[], object]:
        """Return the function that puts the collective on the stream."""
        ranks, root, stream = self._ranks, collective.root, self._stream.ptr
        source, target = send.data.ptr, recv.data.ptr
        match collective.kind:
            case "all_reduce":
                return partial(ranks.allReduce, source, target, send.size, kind, op, stream)
            case "all_gather":
                return partial(ranks.allGather, source, target, send.size, kind, stream)
            case "reduce_scatter":
                return partial(ranks.reduceScatter, source, target, recv.size, kind, op, stream)
            case "reduce":
                return partial(ranks.reduce, source, target, send.size, kind, op, root, stream)
            case "broadcast":
                return partial(ranks.broadcast, source, target, recv.size, kind, root, stream)
        return partial(self._exchange, *self._messages(collective, send, recv), kind)

    def _messages(self, collective: Collective, send: Any, recv: Any) -> tuple[list[Any], list[Any]]:
        """Return the (array, peer) messages that this rank sends and receives, for collectives NCCL lacks."""
        rank, size, root = self._rank, collective.ranks, collective.root
        everyone: Sequence[int] = range(size)
        targets: dict[str, Sequence[int]] = {
            "all_to_all": everyone,
            "scatter": everyone if rank == root else [],
            "gather": [root],
            "all_to_next": [rank + 1] if rank + 1 < size else [],
        }
        sources: dict[str, Sequence[int]] = {
            "all_to_all": everyone,
            "scatter": [root],
            "gather": everyone if rank == root else [],
            "all_to_next": [rank - 1] if rank else [],
        }
        if collective.kind not in targets:
            raise UnavailableError(f"NCCL has no {collective.label} to compare with")
        to, from_ = targets[collective.kind], sources[collective.kind]
        return _parts(send, to), _parts(recv, from_)

    def _exchange(self, outgoing: list[Any], incoming: list[Any], kind: int) -> None:
        with _grouped(self._nccl):
            for array, peer in outgoing:
                self._ranks.send(array.data.ptr, array.size, kind, peer, self._stream.ptr)
            for array, peer in incoming:
                self._ranks.recv(array.data.ptr, array.size, kind, peer, self._stream.ptr)


class _DeviceBuffers:
    """A rank's send and receive buffer on its device; if in place, both are parts of one array."""

    def __init__(self, cupy: Any, buffers: Buffers) -> None:
        self._cupy = cupy
        whole = cupy.asarray(buffers.whole)
        self.recv = self.send = whole
        if buffers.in_place:
            item = buffers.whole.itemsize
            base = buffers.whole.ctypes.data
            self.send, self.recv = (
                whole[(part.ctypes.data - base) // item :][: part.size] if part.size else whole[:0]
                for part in (buffers.send, buffers.recv)
            )
        else:
            self.send = cupy.asarray(buffers.send)

    def place(self, buffers: Buffers) -> None:
        self.recv.set(buffers.recv)
        self.send.set(buffers.send)
        # The copies may return before they are complete, and NCCL's stream does not wait for them.
        self._cupy.cuda.get_current_stream().synchronize()

    def fetch(self, buffers: Buffers) -> None:
        self.recv.get(out=buffers.recv)


@contextmanager
def _grouped(nccl: Any) -> Any:
    nccl.groupStart()
    try:
        yield
    finally:
        nccl.groupEnd()


def _parts(array: Any, peers: Sequence[int]) -> list[Any]:
    """Return the equal parts of an array, each with its peer."""
    length = array.size // max(1, len(peers))
    return [(array[at * length : (at + 1) * length], peer) for at, peer in enumerate(peers)]


def _device(comm: Any) -> tuple[Any, Any, int]:
    """Return (cupy, cupy.cuda.nccl, this rank's device), if each rank has one.

    Otherwise raise UnavailableError on all ranks.
    """
    host, reason, devices = socket.gethostname(), "", 0
    module: Any = None
    try:
        import cupy
        from cupy.cuda import nccl

        module = cupy
        devices = cupy.cuda.runtime.getDeviceCount()
        nccl.get_version()
    except Exception as error:
        # Besides ImportError, CuPy raises errors of its own classes where driver or NCCL are missing.
        reason = f"{type(error).__name__}: {error}"
    everyone = comm.allgather((host, reason, devices))
    lacking = next(((where, why) for where, why, _ in everyone if why), None)
    if lacking is not None:
        raise UnavailableError(
            f" nccl needs CuPy with NCCL and a GPU for each rank; {lacking[0]}: {lacking[1]}",
            hint=f"{install('cuda12', beside=('nvidia-nccl-cu12',))}, or leave nccl out.",
            argument="peers",
        )
    hosts = [where for where, _, _ in everyone]
    for where, _, count in everyone:
        if (ranks := hosts.count(where)) > count:
            raise UnavailableError(
                f" nccl needs a GPU for each rank; {where} has {count} for {ranks} ranks", argument="peers"
            )
    return module, module.cuda.nccl, hosts[: comm.Get_rank()].count(host)
