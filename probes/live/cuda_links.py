"""One GPU as an end of links: copies from other GPUs of the host and to and from the CPU, timed by events.

CUDA's IPC opens the memory of another process, so a copy takes the same path as a collective: NVLink, PCIe
peer to peer, or through the CPU if the machine allows neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from probes.base import UnavailableError
from probes.live.cuda import cuda_errors, cupy_module, gpu_count

__all__ = ["BUFFER_BYTES", "CudaEnd", "DeviceChoice", "cuda_end"]

DeviceChoice = Literal["auto", "process", "cuda"]
# The largest size of cuda_copies.SIZES.
BUFFER_BYTES = 64 << 20
# cudaMemcpyDefault: the driver finds the direction from the addresses, even those of another process.
_ANYWHERE = 4
_LAZY_PEER_ACCESS = 1


class CudaEnd:
    """A GPU with a buffer that other processes may open, a private buffer, and pinned host memory."""

    def __init__(self, number: int) -> None:
        """Allocate the buffers; raises UnavailableError if CUDA cannot give the memory."""
        self._cuda = cupy_module().cuda
        self._number = number
        with cuda_errors(self._number):
            self._cuda.Device(number).use()
            # These bypass CuPy's pool, because an IPC handle names a whole allocation.
            self._lent, self._own = (self._cuda.Memory(BUFFER_BYTES) for _ in range(2))
            self._pinned = self._cuda.alloc_pinned_memory(BUFFER_BYTES)
            self._stream = self._cuda.Stream(non_blocking=True)
            self.name = f"cuda:{number}"
            self.bus_id: str = self._cuda.runtime.deviceGetPCIBusId(number)

    def lend(self) -> bytes:
        """Return the handle with which another process on this host opens the lent buffer."""
        with cuda_errors(self._number):
            handle: bytes = self._cuda.runtime.ipcGetMemHandle(self._lent.ptr)
        return handle

    @contextmanager
    def borrowed(self, handle: bytes) -> Iterator[int]:
        """Open a buffer that another process lends; yields its address while the block runs."""
        with cuda_errors(self._number):
            address: int = self._cuda.runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS)
        try:
            yield address
        finally:
            with cuda_errors(self._number):
                self._cuda.runtime.ipcCloseMemHandle(address)

    def pull_s(self, address: int, size_bytes: int) -> float:
        """Return the seconds of one copy from a borrowed buffer into this GPU."""
        return self._timed(self._own.ptr, address, size_bytes)

    def from_host_s(self, size_bytes: int) -> float:
        """Return the seconds of one copy from pinned memory into this GPU."""
        return self._timed(self._own.ptr, self._pinned.ptr, size_bytes)

    def to_host_s(self, size_bytes: int) -> float:
        """Return the seconds of one copy from this GPU into pinned memory."""
        return self._timed(self._pinned.ptr, self._own.ptr, size_bytes)

    def _timed(self, to: int, source: int, size_bytes: int) -> float:
        with cuda_errors(self._number):
            first, last = self._cuda.Event(), self._cuda.Event()
            first.record(self._stream)
            self._cuda.runtime.memcpyAsync(to, source, size_bytes, _ANYWHERE, self._stream.ptr)
            last.record(self._stream)
            last.synchronize()
            milliseconds: float = self._cuda.get_elapsed_time(first, last)
        return milliseconds / 1000


def cuda_end(choice: DeviceChoice, local_rank: int) -> CudaEnd | None:
    """Return the GPU of a local rank, round-robin if ranks outnumber GPUs; None for a CPU process.

    With "cuda", raises UnavailableError if there is no GPU; with "auto" such a rank is a process.
    """
    if choice == "process" or (choice == "auto" and find_spec("cupy") is None):
        return None
    try:
        count = gpu_count()
    except UnavailableError as error:
        if choice == "auto":
            return None
        raise UnavailableError(f" cuda: {error}", hint=error.hint, argument="device") from error
    return CudaEnd(local_rank % count) if count else None
