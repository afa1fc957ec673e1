"""CuPy, loaded on first use, and CUDA's errors turned into UnavailableError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from probes.base import UnavailableError, install

__all__ = ["cuda_errors", "cupy_module", "gpu_count"]


def cupy_module() -> Any:
    """Return the module CuPy; raises UnavailableError if it cannot be loaded."""
    try:
        import cupy
    except ImportError as error:
        raise UnavailableError(f"CuPy cannot be loaded: {error}", hint=install("cuda12", "cuda13")) from error
    return cupy


@contextmanager
def cuda_errors(gpu: int | None = None) -> Iterator[None]:
    """Turn errors of CUDA and NCCL in the block into an UnavailableError, which names the GPU if known."""
    cuda = cupy_module().cuda
    try:
        yield
    # CuPy does not have all of these kinds in every build, so the kind is looked up once an error is there.
    except Exception as error:
        name = next((name for name, kind in _failures(cuda) if isinstance(error, kind)), "")
        if not name:
            raise
        where = name if gpu is None else f"{name} on GPU {gpu}"
        raise UnavailableError(f"{where}: {error}", hint="ccctl doctor says what is missing.") from error


def _failures(cuda: Any) -> Iterator[tuple[str, type[Exception]]]:
    """Yield (library, exception) for each exception that CuPy has; one without NCCL has none of NCCL's."""
    yield "CUDA", cuda.runtime.CUDARuntimeError
    yield "CUDA", cuda.driver.CUDADriverError
    for name, part, word in (("CUDA", "memory", "OutOfMemoryError"), ("NCCL", "nccl", "NcclError")):
        kind = getattr(getattr(cuda, part, None), word, None)
        if kind is not None:
            yield name, kind


def gpu_count() -> int:
    """Return the number of GPUs that this process sees; raises UnavailableError without CUDA or CuPy.

    Creates no context, which would take GPU memory.
    """
    with cuda_errors():
        return int(cupy_module().cuda.runtime.getDeviceCount())
