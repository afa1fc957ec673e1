"""One GPU of this process through CuPy: its memory, its kernels, and the blocks that it runs at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from exec.cuda.kernel.compile import cubin
from exec.cuda.kernel.encode import WireProtocol
from exec.cuda.kernel.source import THREADS
from exec.program import Array
from probes.base import UnavailableError
from probes.live import cuda_errors, cupy_module, gpu_count

__all__ = ["Arguments", "Device", "Kernels", "gpus", "refuse_too_many"]

# cudaMemcpyHostToDevice of CUDA's runtime.
_HOST_TO_DEVICE = 1


def gpus() -> int:
    """Return the number of visible GPUs; raises UnavailableError if there is none, or no CUDA or CuPy."""
    count = gpu_count()
    if not count:
        raise UnavailableError("CUDA sees no GPU", hint="ccctl doctor says what is missing.")
    return count


class Device:
    """The GPU that this process uses; raises UnavailableError if there is none."""

    def __init__(self, number: int = 0) -> None:
        count = gpus()
        if number >= count:
            raise UnavailableError(f"GPU {number} was asked for, this machine has {count}")
        self.cupy, self.number = cupy_module(), number
        self._runtime = self.cupy.cuda.runtime
        with self.translating_errors():
            self._device = self.cupy.cuda.Device(number)
            self._device.use()
            attributes = self._device.attributes
            self.multiprocessors = int(attributes["MultiProcessorCount"])
            self.cache_bytes = int(attributes.get("L2CacheSize", 0))
            self.architecture = int(self._device.compute_capability)
            self.name = str(self._runtime.getDeviceProperties(number)["name"].decode())
            self.stream = self.cupy.cuda.Stream(non_blocking=True)

    def has_multicast(self) -> bool:
        """Return whether the GPU has multicast memory, through which switches sum and copy."""
        from cuda.bindings import driver

        attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
        # The runtime, which CuPy calls, does not know the attribute.
        status, device = driver.cuDeviceGet(self.number)
        if not int(status):
            status, supported = driver.cuDeviceGetAttribute(attribute, device)
        return not int(status) and bool(supported)

    def bus_id(self) -> str:
        """Return the GPU's PCI bus id, as CUDA writes it."""
        with self.translating_errors():
            return str(self._runtime.deviceGetPCIBusId(self.number))

    def translating_errors(self) -> AbstractContextManager[None]:
        """Return a context that turns errors of CUDA into an UnavailableError that names the GPU."""
        return cuda_errors(self.number)

    def memory(self, size_bytes: int) -> Any:
        """Allocate zeroed memory, with its address as ``ptr``.

        The memory is not from CuPy's pool, because an IPC handle exports a whole allocation.
        """
        with self.translating_errors():
            found = self.cupy.cuda.Memory(max(size_bytes, 1))
            self._runtime.memset(found.ptr, 0, max(size_bytes, 1))
            # Other streams and processes may use the memory as soon as this returns.
            self._runtime.deviceSynchronize()
        return found

    def uploaded(self, table: Array) -> Any:
        """Return a copy of ``table`` in the GPU's memory."""
        found = self.memory(table.nbytes)
        self.upload(found, table)
        return found

    def upload(self, memory: Any, table: Array) -> None:
        """Copy ``table`` to the start of ``memory``, and wait until that is done."""
        content = np.ascontiguousarray(table)
        with self.translating_errors():
            self._runtime.memcpy(memory.ptr, content.ctypes.data, content.nbytes, _HOST_TO_DEVICE)
            self._runtime.deviceSynchronize()

    def synchronize(self) -> None:
        """Wait for all work of the GPU.

        A copy from pageable host memory may return while its last part is still on its way, and a
        non-blocking stream would not wait for it.
        """
        with self.translating_errors():
            self._runtime.deviceSynchronize()

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros in host memory that the GPU reads and writes at the same address."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        with self.translating_errors():
            memory = self.cupy.cuda.alloc_pinned_memory(max(size, 1))
        found: Array = np.frombuffer(memory, dtype, int(np.prod(shape))).reshape(shape)
        found[...] = 0
        return found


class Arguments:
    """The arguments of a kernel, 8 bytes each, as the driver takes them; ``values`` may change."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = (ctypes.c_int64 * len(values))(*values)
        first, step = ctypes.addressof(self.values), ctypes.sizeof(ctypes.c_int64)
        self._each = (ctypes.c_void_p * len(values))(*(first + at * step for at in range(len(values))))
        self.ptr = ctypes.addressof(self._each)


class Kernels:
    """The kernels for one element type, operator and protocol.

    The constructor loads them, because CUDA's lazy loading can deadlock while a kernel spins.
    """

    def __init__(
        self, device: Device, dtype: str, redop: str, wire_protocol: WireProtocol = "Simple"
    ) -> None:
        self.wire_protocol = wire_protocol
        code = cubin(dtype, redop, device.architecture, wire_protocol).code
        with device.translating_errors():
            self._module = device.cupy.cuda.function.Module()
            self._module.load(code)
            self.interpret, self.combine, self.divide = (
                self._module.get_function(f"ccctl_{name}") for name in ("interpret", "combine", "divide")
            )
            # Blocks of the interpreter that one multiprocessor runs at once.
            self.resident = int(
                device.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    self.interpret.ptr, THREADS, 0
                )
            )
        self._launch = device.cupy.cuda.driver.launchCooperativeKernel

    def start(self, blocks: int, threads: int, arguments: Arguments, stream: Any) -> None:
        """Queue the interpreter on ``stream``; all ``blocks`` of ``threads`` threads run at the same time.

        The driver is called directly: CuPy converts each argument anew, and launches fewer blocks than asked
        for if not all fit.
        """
        self._launch(self.interpret.ptr, blocks, 1, 1, threads, 1, 1, 0, stream.ptr, arguments.ptr)


def refuse_too_many(blocks: int, resident: int, multiprocessors: int) -> None:
    """Raise UnavailableError if the GPU cannot run all threadblocks at the same time."""
    most = resident * multiprocessors
    if blocks > most:
        raise UnavailableError(
            f"the program has {blocks} threadblocks on this GPU, which holds {most} at once: "
            f"{resident} on each of {multiprocessors} multiprocessors",
            hint="Compile with fewer instances or channels.",
        )
