"""A program prepared to run on this rank's GPU: planned once, run many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from exec.cuda.capabilities import device_of, gathered, keeps_lines_whole, multicast, on_one_host
from exec.cuda.kernel import (
    SPARE_SLOTS,
    Device,
    Encoded,
    Interpreter,
    Kernels,
    Proxy,
    RemoteFifos,
    WireProtocol,
    arenas,
    divide_sums,
    encoded,
    require_switch_sum,
    tile_bytes_for,
    wire_protocol_of,
)
from exec.cuda.select import ExecutorChoice, choose, refuse_multicast
from exec.cuda.streams import CudaStreams, Endpoints, StreamContexts, arena_bases, role_of
from exec.program import Array, Layout, dtype_name
from probes.base import LostRankError, UnavailableError, UsageError
from synth.program import INPUT, OUTPUT, SCRATCH

__all__ = ["CudaPlan"]

# AdapCC's executor uses larger tiles than the kernel, because it copies chunks, and starting a copy costs
# about ten microseconds.
_CONTEXT_TILE_BYTES = 4 << 20
# cudaMemcpyHostToDevice and cudaMemcpyDeviceToHost of CUDA's runtime.
_TO_GPU, _TO_HOST = 1, 2


class _Engine(Protocol):
    def run(self, addresses: tuple[int, int, int]) -> None: ...
    def close(self) -> None: ...


class CudaPlan:
    """A program on GPU copies of ``send`` and ``recv``, flat arrays of one type in host memory.

    ``place`` copies both to the GPU, ``run`` runs the collective there, ``fetch`` copies the result into
    ``recv``. The constructor and these methods are collective over ``comm``. ``choice`` holds the executor,
    the wires and the reason for them. Raises UsageError if the buffers do not fit the program, and
    UnavailableError if a rank has no GPU, or if switches carry out some steps.
    """

    def __init__(self, layout: Layout, comm: Any, send: Array, recv: Array, redop: str = "sum") -> None:
        rank, program = comm.Get_rank(), layout.program
        if comm.Get_size() != program.ranks:
            raise UsageError(f"the program is for {program.ranks} ranks, the world has {comm.Get_size()}")
        self._layout, self._rank, self._send, self._recv = layout, rank, send, recv
        self._device = device = device_of(comm)
        dtype = dtype_name(recv.dtype)
        if program.uses_switches:
            require_switch_sum(dtype, redop)
            refuse_multicast(program, *multicast(comm, device))
        by: WireProtocol = "Simple"
        if on_one_host(comm):
            message_bytes = layout.largest * recv.itemsize
            whole_lines = keeps_lines_whole(comm, device)
            by = wire_protocol_of(program, message_bytes=message_bytes, whole_lines=whole_lines)
        self._kernels = Kernels(device, dtype, redop, by)
        self._sums = layout.sums(rank) if redop == "avg" else []
        room = self._kernels.resident * device.multiprocessors
        facts = gathered(comm, device, room)
        self.choice: ExecutorChoice = choose(program, facts)
        self._memory, self._addresses = self._buffers()
        self._engine: _Engine
        if self.choice.executor == "interpreter":
            self._engine = _Kernel(comm, device, self._kernels, layout, recv.itemsize, facts.hosts)
        else:
            self._engine = _Streams(comm, device, self._kernels, layout, recv.itemsize, self.choice)

    def place(self) -> None:
        self._copy(self._recv, self._addresses[OUTPUT], _TO_GPU)
        self._copy(self._send, self._addresses[INPUT], _TO_GPU)
        self._device.synchronize()

    def run(self) -> None:
        """Run the collective once; raises LostRankError if it makes no more progress."""
        self._engine.run(self._addresses)
        if self._sums:
            address, itemsize = self._addresses[OUTPUT], self._recv.itemsize
            divide_sums(self._device, self._kernels, self._sums, address, itemsize)
            self._device.synchronize()

    def fetch(self) -> None:
        self._copy(self._recv, self._addresses[OUTPUT], _TO_HOST)

    def close(self) -> None:
        """Unmap the memory of peers; collective."""
        self._engine.close()

    def _buffers(self) -> tuple[list[Any], tuple[int, int, int]]:
        """Return allocations on the GPU, and the addresses of input, output and scratch in them."""
        layout, rank, itemsize = self._layout, self._rank, self._recv.itemsize
        scratch = self._device.memory(layout.elements(rank, SCRATCH) * itemsize)
        if self._send.size and self._recv.size and np.shares_memory(self._send, self._recv):
            total, where_in, where_out = layout.in_place(rank)
            whole = self._device.memory(total * itemsize)
            at = (whole.ptr + where_in.start * itemsize, whole.ptr + where_out.start * itemsize)
            return [whole, scratch], (*at, scratch.ptr)
        given, result = (
            self._device.memory(layout.elements(rank, buffer) * itemsize) for buffer in (INPUT, OUTPUT)
        )
        return [given, result, scratch], (given.ptr, result.ptr, scratch.ptr)

    def _copy(self, host: Array, address: int, direction: int) -> None:
        if not host.size:
            return
        pointers = (address, host.ctypes.data) if direction == _TO_GPU else (host.ctypes.data, address)
        with self._device.translating_errors():
            self._device.cupy.cuda.runtime.memcpy(*pointers, host.nbytes, direction)


class _Kernel:
    """GC3's executor: one persistent kernel, FIFOs in peer memory, a proxy for FIFOs between hosts."""

    def __init__(
        self, comm: Any, device: Device, kernels: Kernels, layout: Layout, itemsize: int, hosts: Sequence[str]
    ) -> None:
        rank = comm.Get_rank()
        own, every = range(rank, rank + 1), range(comm.Get_size())
        host_of = np.unique(hosts, return_inverse=True)[1].tolist()
        most = int(np.bincount(layout.program.tb_rank).max(initial=0))
        # GPUs of different kinds all use the tile size for the smallest cache.
        tile_bytes = min(comm.allgather(tile_bytes_for(most, device.cache_bytes, kernels.wire_protocol)))
        table = encoded(
            layout,
            itemsize,
            tile_bytes=tile_bytes,
            spare_slots=SPARE_SLOTS,
            wire_protocol=kernels.wire_protocol,
        )
        places = arenas(table, host_of)
        self._comm, self._device = comm, device
        self._arena = device.memory(int(places.sizes[rank]))
        bases, self._opened = arena_bases(comm, device, places, self._arena, host_of)
        remote = RemoteFifos(table, places, own, host_of, every, lambda size: device.pinned((size,), "uint8"))
        self._messages = comm.Dup()
        self._proxy = Proxy(self._messages, remote.ends)
        self._machine = Interpreter(device, kernels, table, places, bases, own, remote=remote)

    def run(self, addresses: tuple[int, int, int]) -> None:
        self._proxy.begin()
        try:
            self._machine.launch([addresses])
            self._machine.finish()
        except (LostRankError, UnavailableError):
            self._proxy.stop()
            raise
        self._proxy.end()

    def close(self) -> None:
        self._proxy.close()
        self._comm.Barrier()
        self._messages.Free()
        for opened in self._opened:
            opened.close()


class _Streams:
    """AdapCC's executor: transmission contexts on streams."""

    def __init__(
        self,
        comm: Any,
        device: Device,
        kernels: Kernels,
        layout: Layout,
        itemsize: int,
        choice: ExecutorChoice,
    ) -> None:
        rank, self._device = comm.Get_rank(), device
        table: Encoded = encoded(layout, itemsize, tile_bytes=_CONTEXT_TILE_BYTES)
        streams = CudaStreams(device, kernels if role_of(table, rank).kernel else None)
        self._ends = Endpoints(comm, device, streams, table, arenas(table), choice.wires)
        self._contexts = StreamContexts(table, rank, streams, self._ends.outgoing, self._ends.incoming)

    def run(self, addresses: tuple[int, int, int]) -> None:
        # Once for all calls of a run, each of which takes but a few microseconds.
        with self._device.translating_errors():
            self._contexts.run(addresses)

    def close(self) -> None:
        self._ends.close()
