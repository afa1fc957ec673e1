"""Load on the PCIe link of one GPU, whose speed is read while data moves, because an idle link is slow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from probes.live import CudaCopies, cupy_module
from probes.nvml import bus_id_of

__all__ = ["pcie_load"]


def pcie_load(nvml: Any) -> Callable[[int], AbstractContextManager[None]]:
    """Return a function of a GPU's index; within its ``with`` block, the GPU copies to the host.

    The index is NVML's, and NVML must be initialized when the function is called. Raises UnavailableError
    without CuPy. The returned function raises it for a GPU that CUDA does not show to this process.
    """
    cupy_module()

    def load(index: int) -> AbstractContextManager[None]:
        bus_id = bus_id_of(nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(index)))
        return CudaCopies([bus_id], {}).running(bus_id)

    return load
