"""Paths weigh latency against load."""

import pytest

from synth.check.schedule import check
from synth.collective import collective
from synth.methods import paths
from synth.network import Link, build
from synth.simulation.schedule import replay


def test_short_chunks_take_the_one_hop_that_long_ones_avoid():
    rates = {(0, 1): 1e11, (1, 2): 1e11, (0, 2): 1e10}
    links = [Link(*ends, 1e-6, 1 / rate) for (a, b), rate in rates.items() for ends in ((a, b), (b, a))]
    network = build("triangle", ["h"] * 3, links)
    shape = collective("all_to_all", 3, 3)
    short, long = (paths.synthesize(network, shape, size) for size in (1 << 12, 1 << 20))
    assert check(short) == check(long) == []
    # 4 KiB over the slow link, 2 hops would take 2 µs at least.
    assert replay(short).time_s == pytest.approx(1e-6 + 4096 / 1e10)
    assert replay(long).time_s < 1e-6 + (1 << 20) / 1e10
