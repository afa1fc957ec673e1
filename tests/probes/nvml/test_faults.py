"""NVML fails at each function that detection, health and the choice of wires ask: the rest is still read."""

import pynvml
import pytest
from gpu_recordings import bus_id, h100s

from exec.cuda import capabilities
from probes.health import read_gpus
from probes.nvml import RecordedNvml, gpus

SWITCHED = {
    "nvmlDeviceGetHandleByPciBusId": {"*": 0},
    "nvmlDeviceGetP2PStatus": {"*": 0},
    "nvmlDeviceGetTopologyCommonAncestor": {"*": 10},
}


class FailingNvml:
    """NVML whose function ``fails`` gives an error from its call number ``first`` on; it notes all calls."""

    def __init__(self, fails="", first=0):
        self._nvml, self._fails, self._first, self.calls = (
            RecordedNvml(h100s(2, **SWITCHED), pynvml),
            fails,
            first,
            [],
        )

    def __getattr__(self, name):
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or isinstance(found, type):
            return found

        def call(*arguments):
            self.calls.append(name)
            if name == self._fails and self.calls.count(name) > self._first:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
            return found(*arguments)

        return call


def detection(nvml):
    return gpus.read("h", nvml)


def nvlink(nvml):
    """Ask for NVLink, as the choice between LL128 and Simple does."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("nvmlInit", "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetP2PStatus", "nvmlShutdown"):
            patch.setattr(pynvml, name, getattr(nvml, name))
        return capabilities._has_nvlink_to(bus_id(0), {bus_id(1)})


@pytest.mark.parametrize("ask", [detection, read_gpus, nvlink])
def test_a_fault_of_each_function_leaves_the_driver_shut_down(ask):
    whole = FailingNvml()
    ask(whole)
    for name in dict.fromkeys(whole.calls):
        for first in (0, 1):
            broken = FailingNvml(name, first)
            found = ask(broken)
            begun = not (name == "nvmlInit" and first == 0)
            assert broken.calls.count("nvmlShutdown") == begun, name
            if name != "nvmlShutdown" and broken.calls.count(name) > first and ask is nvlink:
                assert found is False
    print(f"{ask.__name__}: {len(set(whole.calls))} functions")


@pytest.mark.parametrize("name", sorted({*FailingNvml()._nvml._answers} - {"nvmlInit", "nvmlShutdown"}))
def test_a_gpu_whose_driver_lacks_one_answer_is_still_found(name):
    topology = detection(FailingNvml(name))
    without = {"nvmlDeviceGetCount", "nvmlDeviceGetPciInfo", "nvmlDeviceGetHandleByIndex"}
    assert len(topology.hosts[0].gpus) == (0 if name in without else 2)
    if name in without:
        assert any(name in note for note in topology.notes)
