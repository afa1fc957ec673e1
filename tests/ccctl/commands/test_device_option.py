"""--device of the commands that run programs."""

from pathlib import Path

import numpy as np
import pytest

from exec.cuda.kernel.device import Device
from probes.base.errors import UnavailableError

RING = Path(__file__).parents[3] / "examples" / "ring_allreduce.py"


def has_gpu():
    try:
        Device()
    except UnavailableError:
        return False
    return True


@pytest.mark.mpi
@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_without_a_gpu_cuda_is_refused_and_auto_runs(run_ccctl, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(8, dtype="float32").reshape(2, 4))
    asked = ("run", RING, "-p", "ranks=2", "--input", "x.npy", "-o", "y.npy", "--device")
    refused = run_ccctl(*asked, "cuda")
    assert refused.returncode == 69
    assert "--device cuda: rank 0 has no GPU to use" in refused.stderr
    assert "ccctl doctor" in refused.stderr
    done = run_ccctl(*asked, "auto")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [[4, 6, 8, 10]] * 2)


@pytest.mark.mpi
@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_bench_refuses_cuda_too(run_ccctl):
    refused = run_ccctl("bench", RING, "-p", "ranks=2", "-e", "1K", "--device", "cuda")
    assert refused.returncode == 69
    assert "ccctl doctor" in refused.stderr


def test_another_device_is_a_usage_error(run_ccctl, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 4)))
    asked = run_ccctl("run", RING, "-p", "ranks=2", "--input", "x.npy", "--device", "tpu")
    assert asked.returncode == 2
    assert "expected cpu, cuda, auto, found 'tpu'" in asked.stderr
