"""Requests that are refused before anything runs on a GPU."""

import sys

import pytest
from cubins import NVRTC

from exec.cuda.kernel.device import Device, refuse_too_many
from probes.base.errors import UnavailableError


def test_too_many_threadblocks_are_refused_with_the_numbers():
    refuse_too_many(264, 2, 132)
    with pytest.raises(UnavailableError) as caught:
        refuse_too_many(265, 2, 132)
    assert "265 threadblocks" in caught.value.message
    assert "264 at once: 2 on each of 132 multiprocessors" in caught.value.message
    assert "fewer instances" in caught.value.hint


def test_without_cupy_the_hint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnavailableError, match="CuPy cannot be loaded") as caught:
        Device()
    assert "cupy-cuda12x" in caught.value.hint


@pytest.mark.skipif(not NVRTC, reason="cuda-bindings is not installed")
@pytest.mark.parametrize(("status", "value", "has"), [(0, 1, True), (0, 0, False), (1, 1, False)])
def test_the_driver_says_whether_there_is_multicast_memory(status, value, has, monkeypatch):
    from cuda.bindings import driver

    asked = []

    def attribute_of(attribute, device):
        asked.append((attribute, device))
        return status, value

    monkeypatch.setattr(driver, "cuDeviceGet", lambda number: (0, f"device {number}"))
    monkeypatch.setattr(driver, "cuDeviceGetAttribute", attribute_of)
    device = object.__new__(Device)
    device.number = 3
    assert device.has_multicast() is has
    wanted = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
    assert asked == [(wanted, "device 3")]
