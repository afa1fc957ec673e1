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


def test_connections_share_a_nic_that_one_of_them_does_not_fill():
    network = gc3_figures.by_connections(pod("dgx-a100:2"), 2)
    between = ~network.within_host
    assert network.beta_s_per_byte[between] == pytest.approx(1 / 14e9)
    nics = [at for at, name in enumerate(network.ports) if "nic" in name]
    assert network.port_s_per_byte[nics] == pytest.approx(1 / 25e9)
    assert int(between.sum()) == 2 * int((~pod("dgx-a100:2").within_host).sum())


def test_a_ring_is_timed_by_the_fastest_protocol() -> None:
    runner = gc3_figures.Runner("ring", gc3_figures.compiled("ring_allreduce", ranks=8))
    small_s, small = gc3_figures.time_s(runner, pod("dgx-a100"), 1 << 10)
    large_s, large = gc3_figures.time_s(runner, pod("dgx-a100"), 1 << 28)
    assert (small, large) == ("LL", "Simple")
    assert 0 < small_s < large_s


def test_a_cost_of_each_step_explains_the_gain_of_figure_8() -> None:
    (figure,) = (one for one in gc3_figures.figures(()) if one.name == "Fig. 8")
    size_bytes = 2 << 20
    without, found = (
        gc3_figures.gain_of(figure, size_bytes, gc3_figures.Costs(step_s=step_s)) for step_s in (0.5e-6, 4e-6)
    )
    assert without < 1 < 1.48 < found
    first, gains = gc3_figures.explained(figure, "step_s", "each step took", size_bytes, 1.48)
    assert 0.5 < float(first.split()[-2]) < 4
    assert gains.count("x at") == len(figure.sizes)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit, match="usage"):
        gc3_figures.main("--al")
