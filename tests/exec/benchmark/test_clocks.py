"""Offsets of clocks, from meetings whose true times are known."""

import numpy as np
from hypothesis import given, strategies as st

from exec.benchmark.clocks import offsets_of


@given(
    ahead=st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
def test_no_offset_is_further_off_than_it_says(ahead, seed):
    random = np.random.default_rng(seed)
    ranks, meetings = len(ahead) + 1, 10
    true_ns = np.array([0, *ahead])
    came = np.arange(meetings) * 1_000_000 + random.integers(0, 50_000, (ranks, meetings))
    left = came.max(axis=0) + random.integers(1, 30_000, (ranks, meetings))
    stamps = np.stack([came + true_ns[:, None], left + true_ns[:, None]], axis=2)
    kernels = ["first", *(f"kernel {rank}" for rank in range(1, ranks))]
    found, error = offsets_of(stamps, kernels)
    assert np.abs(np.array(found) - true_ns).max() <= error + 1
    assert error <= 50_000 + 30_000


def test_one_kernel_has_one_clock():
    stamps = np.zeros((3, 2, 2), dtype=np.int64)
    stamps[2] = 500, 900
    stamps[0] = stamps[1] = 0, 400
    found, _ = offsets_of(stamps, ["here", "here", "there"])
    assert found == (0, 0, 500)
