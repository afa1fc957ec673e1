"""A GPU's streams for transmission contexts, and events that other processes may wait for."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from exec.cuda.kernel import THREADS, Device, Kernels

__all__ = ["CudaStreams", "Opened"]

# cudaMemcpyDefault: the driver infers from each address whether it is this GPU's, a peer's or the host's.
_ANYWHERE = 4
# The most thread blocks of one kernel launch; few, because many contexts run at the same time.
_BLOCKS = 32


class Opened:
    """Memory or an event that another process exports, open in this one; ``ptr`` is its address here.

    It is closed by ``close``, or once nothing refers to it, as after an error.
    """

    def __init__(
        self, device: Device, handle: bytes, opens: Callable[[bytes], int], closes: Callable[[int], object]
    ) -> None:
        self._device = device
        with device.translating_errors():
            self.ptr = opens(handle)
        self._closing = weakref.finalize(self, closes, self.ptr)
        # At the end of the process CUDA may be gone already, and all is closed anyway.
        self._closing.atexit = False

    @classmethod
    def memory(cls, device: Device, handle: bytes) -> Self:
        """Open memory of another process on this host."""
        runtime = device.cupy.cuda.runtime
        return cls(device, handle, runtime.ipcOpenMemHandle, runtime.ipcCloseMemHandle)

    @classmethod
    def event(cls, device: Device, handle: bytes) -> Self:
        """Open an event of another process; this process only waits for it."""
        runtime = device.cupy.cuda.runtime
        return cls(device, handle, runtime.ipcOpenEventHandle, runtime.eventDestroy)

    def close(self) -> None:
        with self._device.translating_errors():
            self._closing()


class CudaStreams:
    """Streams, events, copies and kernels of one GPU.

    ``kernels`` is None if the rank's role needs none.
    """

    def __init__(self, device: Device, kernels: Kernels | None) -> None:
        self._device, self._kernels = device, kernels
        self._cuda, self._runtime = device.cupy.cuda, device.cupy.cuda.runtime
        self._streams: list[Any] = []

    def stream(self) -> Any:
        with self._device.translating_errors():
            self._streams.append(self._cuda.Stream(non_blocking=True))
        return self._streams[-1]

    def event(self) -> Any:
        with self._device.translating_errors():
            return self._cuda.Event(disable_timing=True)

    def shared_event(self) -> Any:
        """Return an event that other processes may open."""
        with self._device.translating_errors():
            return self._cuda.Event(disable_timing=True, interprocess=True)

    def record(self, event: Any, stream: Any) -> None:
        self._runtime.eventRecord(event.ptr, stream.ptr)

    def wait(self, stream: Any, event: Any) -> None:
        self._runtime.streamWaitEvent(stream.ptr, event.ptr)

    def done(self, event: Any) -> bool:
        """Return whether the GPU has reached the last record of ``event``."""
        with self._device.translating_errors():
            return bool(event.done)

    def copy(self, to: int, source: int, size_bytes: int, stream: Any) -> None:
        self._runtime.memcpyAsync(to, source, size_bytes, _ANYWHERE, stream.ptr)

    def combine(self, first: int, second: int, into: int, also: int, elements: int, stream: Any) -> None:
        assert self._kernels is not None
        grid = (max(1, min(_BLOCKS, -(-elements // (4 * THREADS)))),)
        arguments = tuple(map(np.int64, (first, second, into, also, elements)))
        self._kernels.combine(grid, (THREADS,), arguments, stream=stream)

    def synchronize(self) -> None:
        with self._device.translating_errors():
            for stream in self._streams:
                stream.synchronize()
