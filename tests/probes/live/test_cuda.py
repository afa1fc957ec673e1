"""CuPy that is not there, and CUDA that fails, as errors of ours."""

import sys
from types import SimpleNamespace

import pytest

from probes.base.errors import UnavailableError
from probes.live.cuda import cuda_errors, gpu_count


class CudaRuntimeError(Exception):
    """Stands where cudaGetErrorString's exception stands."""


class CudaDriverError(Exception):
    """The same of the driver's interface."""


def broken(failure):
    def count():
        raise failure("no device")

    runtime = SimpleNamespace(CUDARuntimeError=CudaRuntimeError, getDeviceCount=count)
    return SimpleNamespace(
        cuda=SimpleNamespace(runtime=runtime, driver=SimpleNamespace(CUDADriverError=CudaDriverError))
    )


@pytest.mark.parametrize("failure", [CudaRuntimeError, CudaDriverError])
def test_what_cuda_raises_is_unavailable_and_names_the_gpu_where_it_is_known(monkeypatch, failure):
    monkeypatch.setitem(sys.modules, "cupy", broken(failure))
    with pytest.raises(UnavailableError, match=r"^CUDA: no device") as caught:
        gpu_count()
    assert "ccctl doctor" in caught.value.hint
    with pytest.raises(UnavailableError, match=r"^CUDA on GPU 3: "), cuda_errors(3):
        raise failure("out of memory")


def test_other_errors_pass_through(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", broken(CudaRuntimeError))
    with pytest.raises(KeyError), cuda_errors():
        raise KeyError("ours")


def test_without_cupy_the_hint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnavailableError, match="CuPy cannot be loaded") as caught:
        gpu_count()
    assert "cupy-cuda12x" in caught.value.hint
