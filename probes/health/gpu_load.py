"""Data moved over the PCIe link of one GPU, because a link that is idle runs at its lowest speed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from probes.live import CudaCopies, cupy_module
from probes.nvml import bus_id_of

__all__ = ["pcie_load"]


def pcie_load(nvml: Any) -> Callable[[int], AbstractContextManager[None]]:
    """Return a function that copies from the GPU of an index to the host while a block runs.

    The index is NVML's, and NVML must be initialized when the function is called. Raises UnavailableError
    without CuPy; so does the function for a GPU that CUDA does not give to this process.
    """
    cupy_module()

    def load(index: int) -> AbstractContextManager[None]:
        bus_id = bus_id_of(nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(index)))
        return CudaCopies([bus_id], {}).running(bus_id)

    return load
