"""Links of GPUs, on a recorded GPU; on a real one where there is one."""

import itertools
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from wire import beside, wires

from probes.base.errors import UnavailableError
from probes.live.cuda_links import BUFFER_BYTES, CudaEnd, cuda_end
from probes.sampling import cuda_copies
from probes.statistics.alpha_beta_fit import fit

ALPHA_S = 4e-6


class RecordedGpu:
    """Copies take alpha and beta per byte, and now and then longer."""

    def __init__(self, number, beta=2e-12, host_beta=4e-11):
        self.name, self.number = f"cuda:{number}", number
        self.beta, self.host_beta = beta, host_beta
        self.copied, self.open = [], set()

    def lend(self):
        return f"handle of {self.number}".encode()

    @contextmanager
    def borrowed(self, handle):
        self.open.add(handle)
        yield handle
        self.open.remove(handle)

    def pull_s(self, address, size_bytes):
        assert address in self.open
        return self._took(self.beta, size_bytes)

    def from_host_s(self, size_bytes):
        return self._took(self.host_beta, size_bytes)

    def to_host_s(self, size_bytes):
        return self._took(2 * self.host_beta, size_bytes)

    def _took(self, beta, size_bytes):
        self.copied.append(size_bytes)
        return ALPHA_S + beta * size_bytes + (1e-4 if len(self.copied) % 5 == 0 else 0)


def test_a_link_between_gpus_is_read_by_the_one_that_pulls():
    here, there = wires()
    mine, other = RecordedGpu(0), RecordedGpu(1)
    trains = beside(
        lambda: cuda_copies.trains_from(here, 1, mine, 0.01), lambda: cuda_copies.lend(there, 0, other)
    )
    assert fit(trains.comparable()).beta_s_per_byte == pytest.approx(2e-12, rel=0.01)
    assert mine.open == set()
    assert other.copied == []
    assert max(mine.copied) <= BUFFER_BYTES
    tiny = beside(lambda: cuda_copies.latencies(here, 1, mine), lambda: cuda_copies.lend(there, 0, other))
    assert min(tiny) == pytest.approx(ALPHA_S, rel=0.01)


def test_only_the_sizes_asked_for_are_copied():
    here, there = wires()
    gpu = RecordedGpu(0)
    asked = (1 << 20, 2 << 20)
    trains = beside(
        lambda: cuda_copies.trains_from(here, 1, gpu, 0.001, asked),
        lambda: cuda_copies.lend(there, 0, RecordedGpu(1)),
    )
    assert tuple(trains.seconds) == asked
    assert all(5 <= len(values) <= 32 for values in trains.seconds.values())


def test_each_way_between_gpu_and_cpu_has_its_own_cost():
    copies = cuda_copies.host_copies(3, RecordedGpu(0), 0.01)
    assert copies.rank == 3
    assert copies.to_device_beta_s_per_byte == pytest.approx(4e-11, rel=0.01)
    assert copies.to_host_beta_s_per_byte == pytest.approx(8e-11, rel=0.01)
    assert [copies.to_device_alpha_s, copies.to_host_alpha_s] == pytest.approx([ALPHA_S] * 2, rel=0.01)


class CudaError(Exception):
    pass


def recorded_cupy(failing=""):
    """Stands where the module cupy stands: hands out addresses and notes each call of the runtime."""
    calls = []

    def runtime(name, answer):
        def call(*arguments):
            calls.append((name, *arguments))
            if name == failing:
                raise CudaError(f"{name} failed")
            return answer

        return call

    addresses = itertools.count(1000, 1000)
    answers = {
        "ipcGetMemHandle": b"handle",
        "ipcOpenMemHandle": 77,
        "ipcCloseMemHandle": None,
        "memcpyAsync": None,
        "deviceGetPCIBusId": "0000:1B:00.0",
        "getDeviceCount": 4,
    }
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            CUDARuntimeError=CudaError, **{name: runtime(name, answer) for name, answer in answers.items()}
        ),
        driver=SimpleNamespace(CUDADriverError=CudaError),
        Device=lambda number: SimpleNamespace(use=lambda: calls.append(("use", number))),
        Memory=lambda size: SimpleNamespace(ptr=next(addresses), size=size),
        alloc_pinned_memory=lambda size: SimpleNamespace(ptr=next(addresses)),
        Stream=lambda non_blocking: SimpleNamespace(ptr=5),
        Event=lambda: SimpleNamespace(
            record=lambda stream: calls.append(("record",)), synchronize=lambda: calls.append(("wait",))
        ),
        get_elapsed_time=lambda first, last: 0.25,
    )
    return SimpleNamespace(cuda=cuda, calls=calls)


def test_a_gpu_lends_a_whole_allocation_and_times_copies_between_its_events(monkeypatch):
    cupy = recorded_cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    end = CudaEnd(2)
    assert (end.name, end.bus_id, end.lend()) == ("cuda:2", "0000:1B:00.0", b"handle")
    with end.borrowed(b"theirs") as address:
        cupy.calls.clear()
        assert end.pull_s(address, 4096) == 0.25e-3
        assert cupy.calls == [("record",), ("memcpyAsync", 2000, 77, 4096, 4, 5), ("record",), ("wait",)]
    assert cupy.calls[-1] == ("ipcCloseMemHandle", 77)
    end.from_host_s(64)
    end.to_host_s(64)
    copies = [call[1:4] for call in cupy.calls if call[0] == "memcpyAsync"]
    assert copies[1:] == [(2000, 3000, 64), (3000, 2000, 64)]


@pytest.mark.parametrize("failing", ["ipcGetMemHandle", "memcpyAsync"])
def test_what_cuda_refuses_is_told(monkeypatch, failing):
    monkeypatch.setitem(sys.modules, "cupy", recorded_cupy(failing))
    end = CudaEnd(0)
    with pytest.raises(UnavailableError, match=f"CUDA on GPU 0: {failing} failed"):
        end.lend() if failing == "ipcGetMemHandle" else end.to_host_s(8)


def test_ranks_take_gpus_in_turn(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", recorded_cupy())
    assert [cuda_end("cuda", local).name for local in (0, 3, 4)] == ["cuda:0", "cuda:3", "cuda:0"]
    assert cuda_end("process", 0) is None


@pytest.mark.parametrize("module", [None, recorded_cupy("getDeviceCount")])
def test_without_cuda_it_is_refused_with_the_reason_when_asked_for(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(UnavailableError, match="device cuda: "):
        cuda_end("cuda", 0)


@pytest.mark.gpu
def test_a_real_gpu_copies():
    pytest.importorskip("cupy")
    end = cuda_end("auto", 0)
    if end is None:
        pytest.skip("there is no GPU")
    copies = cuda_copies.host_copies(0, end, 0.05)
    # Nothing between a GPU and its CPU moves less than 0.5 GB or more than 1 TB a second.
    assert 1e-12 < copies.to_device_beta_s_per_byte < 2e-9
    assert 1e-12 < copies.to_host_beta_s_per_byte < 2e-9
    assert len(end.lend()) == 64
