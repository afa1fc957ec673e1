"""DTensors that move between layouts, on ranks of gloo."""

import pytest

pytest.importorskip("torch")

from torch_started import finished


@pytest.mark.parametrize("size", [2, 4])
def test_tensors_end_as_dtensor_lays_them_out(size):
    said = finished("torch_redistribution.py", "", size)
    assert all("redistributed" in one for one in said)
