"""All ranks of a program on one GPU, as groups of blocks of one cooperative kernel.

What several processes cannot do on one GPU: their kernels take turns there, so that who spins keeps
whom he waits for from running.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exec.cuda.kernel.device import Device, Kernels
from exec.cuda.kernel.encode import SLICE_BYTES, SPARE_SLOTS, encoded, tile_bytes_for
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.launch import LIMIT_S, Interpreter, divide_sums
from exec.program import Layout, dtype_of
from probes.base import UsageError
from synth.program import INPUT, OUTPUT, SCRATCH

__all__ = ["OneDevice"]


class OneDevice:
    """A program ready to run on ``sends`` and ``recvs``: one array of the GPU for each rank.

    In place, ``recvs`` and ``sends`` of a rank share memory as the collective defines it. Raises UsageError
    where the arrays do not fit, UnavailableError where the threadblocks do not all fit on the GPU.
    """

    def __init__(
        self,
        device: Device,
        layout: Layout,
        sends: Sequence[Any],
        recvs: Sequence[Any],
        dtype: str,
        redop: str = "sum",
        *,
        tile_bytes: int | None = None,
        slice_bytes: int = SLICE_BYTES,
        limit_s: float = LIMIT_S,
    ) -> None:
        itemsize = dtype_of(dtype).itemsize
        _check_fit(layout, sends, recvs, itemsize)
        # Within a GPU a line of LL128 is whole.
        by = layout.program.protocol
        if tile_bytes is None:
            tile_bytes = tile_bytes_for(layout.program.threadblocks, device.cache_bytes, by)
        table = encoded(
            layout,
            itemsize,
            tile_bytes=tile_bytes,
            slice_bytes=slice_bytes,
            spare_slots=SPARE_SLOTS,
            wire_protocol=by,
        )
        places = arenas(table)
        ranks = range(layout.program.ranks)
        self._device, self._kernels = device, Kernels(device, dtype, redop, by)
        self._sums = [layout.sums(rank) if redop == "avg" else [] for rank in ranks]
        self._kept = [device.memory(int(size)) for size in places.sizes]
        scratch = [device.memory(layout.elements(rank, SCRATCH) * table.itemsize) for rank in ranks]
        self._kept += [*scratch, sends, recvs]
        self._addresses = [
            (send.data.ptr, recv.data.ptr, own.ptr)
            for send, recv, own in zip(sends, recvs, scratch, strict=True)
        ]
        bases = [memory.ptr for memory in self._kept[: len(ranks)]]
        self.encoded = table
        self._machine = Interpreter(device, self._kernels, table, places, bases, ranks, limit_s=limit_s)

    def start(self) -> None:
        """Queue one run on the device's stream."""
        self._machine.launch(self._addresses)
        for sums, own in zip(self._sums, self._addresses, strict=True):
            divide_sums(self._device, self._kernels, sums, own[OUTPUT], self.encoded.itemsize)

    def run(self) -> None:
        """Carry out the collective once; raises LostRankError where it got stuck."""
        self.start()
        self.finish()

    def finish(self) -> None:
        """Wait for every run that was started."""
        self._machine.finish()


def _check_fit(layout: Layout, sends: Sequence[Any], recvs: Sequence[Any], itemsize: int) -> None:
    ranks = layout.program.ranks
    for name, buffer, arrays in (("send", INPUT, sends), ("receive", OUTPUT, recvs)):
        if len(arrays) != ranks:
            raise UsageError(f"{name} buffers: expected one for each of {ranks} ranks, found {len(arrays)}")
        for rank, array in enumerate(arrays):
            wanted = layout.elements(rank, buffer) * itemsize
            if array.nbytes != wanted or not array.flags.c_contiguous:
                raise UsageError(
                    f"{name} buffer of rank {rank}: expected {wanted} contiguous bytes, found {array.nbytes}"
                )
