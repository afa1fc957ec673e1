import sys
from contextlib import nullcontext
from itertools import groupby
from types import SimpleNamespace

import pynvml
import pytest
from gpu_recordings import bus_id, h100s

from probes.base import UnavailableError
from probes.health import pcie_load, read_gpus
from probes.nvml import RecordedNvml


def test_a_load_needs_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnavailableError, match="CuPy"):
        pcie_load(pynvml)


class Stage:
    """CuPy's calls that start and await copies, in the order in which they were made."""

    def __init__(self):
        self.calls = []
        errors = {"CUDARuntimeError": KeyError}
        self.runtime = SimpleNamespace(
            deviceGetByPCIBusId=lambda bus_id: self.calls.append(bus_id) or 0,
            memcpyAsync=lambda *_: self.calls.append("copy"),
            **errors,
        )
        self.driver = SimpleNamespace(CUDADriverError=IndexError)
        self.Device = lambda number: nullcontext()
        self.Stream = lambda non_blocking: SimpleNamespace(ptr=0)
        self.alloc = self.alloc_pinned_memory = lambda size: SimpleNamespace(ptr=0)
        self.Event = lambda: SimpleNamespace(
            record=lambda stream: None, synchronize=lambda: self.calls.append("wait")
        )


def test_the_link_is_awake_and_busy_while_the_block_runs_and_free_after_it(monkeypatch):
    stage = Stage()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=stage))
    with pcie_load(RecordedNvml(h100s(2), pynvml))(1):
        before = [name for name, _ in groupby(stage.calls)]
        stage.calls.clear()
    assert before == [bus_id(1), "copy", "wait", "copy"]
    assert [name for name, _ in groupby(stage.calls)] == ["wait"]


@pytest.mark.gpu
def test_links_under_load_are_as_fast_as_at_rest_or_faster():
    pytest.importorskip("cupy")
    if not read_gpus(pynvml)[0]:
        pytest.skip("there is no GPU")
    gpus, unread = read_gpus(pynvml, pcie_load(pynvml))
    assert "PCIe links under load" not in unread
    for gpu in gpus:
        assert gpu.pcie_gts_load >= gpu.pcie_gts
        assert gpu.pcie_width_load >= gpu.pcie_width
