import sys

import pynvml
import pytest

from probes.base import UnavailableError
from probes.health import pcie_load, read_gpus


def test_a_load_needs_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnavailableError, match="CuPy"):
        pcie_load(pynvml)


@pytest.mark.gpu
def test_links_under_load_are_as_fast_as_at_rest_or_faster():
    gpus, unread = read_gpus(pynvml, pcie_load(pynvml))
    assert gpus
    assert "PCIe links under load" not in unread
    for gpu in gpus:
        assert gpu.pcie_gts_load >= gpu.pcie_gts
        assert gpu.pcie_width_load >= gpu.pcie_width
