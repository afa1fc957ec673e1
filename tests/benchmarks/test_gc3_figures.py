"""The benchmark beside GC3's figures: its networks are those of the paper, its rows are measured."""

from __future__ import annotations

import gc3_figures
import pytest

from synth.networks.dgx import pod


def test_the_gpus_of_ndv2_are_numbered_along_their_nvlinks() -> None:
    network = gc3_figures.along(pod("ndv2:2"), gc3_figures.RING)
    inside = {
        (int(a), int(b))
        for a, b, alike in zip(network.src, network.dst, network.within_host, strict=True)
        if alike
    }
    assert all((rank, (rank + 1) % 8) in inside for rank in range(8))
    assert all((rank + 8, (rank + 1) % 8 + 8) in inside for rank in range(8))


def test_a_protocol_takes_its_part_of_a_link() -> None:
    network = pod("dgx-a100")
    slower = gc3_figures.by(network, gc3_figures.PROTOCOLS["LL"])
    assert slower.beta_s_per_byte == pytest.approx(2 * network.beta_s_per_byte)


def test_a_ring_is_timed_by_the_fastest_protocol() -> None:
    runner = gc3_figures.Runner("ring", gc3_figures.compiled("ring_allreduce", ranks=8))
    small_s, small = gc3_figures.time_s(runner, pod("dgx-a100"), 1 << 10)
    large_s, large = gc3_figures.time_s(runner, pod("dgx-a100"), 1 << 28)
    assert (small, large) == ("LL", "Simple")
    assert 0 < small_s < large_s


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit, match="usage"):
        gc3_figures.main("--al")
