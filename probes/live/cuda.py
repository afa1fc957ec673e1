"""CuPy, loaded where it is needed, and what CUDA reports as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from probes.base import UnavailableError, install

__all__ = ["cuda_errors", "cupy_module", "gpu_count"]


def cupy_module() -> Any:
    """The module CuPy; raises UnavailableError where it cannot be loaded."""
    try:
        import cupy
    except ImportError as error:
        raise UnavailableError(f"CuPy cannot be loaded: {error}", hint=install("cuda12", "cuda13")) from error
    return cupy


@contextmanager
def cuda_errors(gpu: int | None = None) -> Iterator[None]:
    """What CUDA raises inside becomes an UnavailableError, which names the GPU where it is known."""
    cuda = cupy_module().cuda
    try:
        yield
    except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
        where = "CUDA" if gpu is None else f"CUDA on GPU {gpu}"
        raise UnavailableError(f"{where}: {error}", hint="ccctl doctor says what is missing.") from error


def gpu_count() -> int:
    """How many GPUs this process sees; raises UnavailableError where CUDA or CuPy is missing.

    It makes no context, which would take memory of a GPU.
    """
    with cuda_errors():
        return int(cupy_module().cuda.runtime.getDeviceCount())
