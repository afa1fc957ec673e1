"""Paths weigh latency against load."""

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import paths
from synth.network import Link, build
from synth.networks.path_search import distances_s
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


def test_a_cheapest_path_may_have_many_more_hops_than_the_diameter():
    """Fast links around a ring, and a slow one between every two other ranks."""
    ranks = 24
    around = {(a, b) for a in range(ranks) for b in ((a + 1) % ranks, (a - 1) % ranks)}
    links = [
        Link(a, b, *((1e-8, 1e-11) if (a, b) in around else (1e-4, 1e-6)))
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    ]
    network = build("ring and all", ["h"] * ranks, links)
    found = paths.synthesize(network, collective("all_to_all", ranks, ranks), 1024)
    assert check(found) == []


@pytest.mark.parametrize("seed", range(3))
def test_where_latency_counts_no_path_is_longer_than_the_longest_shortest_path(seed):
    """Detours of twice the diameter once balanced these links a little better, and took 60 % longer."""
    ranks, alpha_s = 17, 1.7e-6
    links = [
        Link(a, (a + step) % ranks, alpha_s, 1 / 50e9)
        for a in range(ranks)
        for step in (1, -1 % ranks, 3, 14)
    ]
    network = build("circulant", ["h"] * ranks, links)
    shape = collective("all_to_all", ranks, 4 * ranks)
    found = paths.synthesize(network, shape, 4096, seed=seed)
    assert check(found) == []
    assert np.bincount(found.chunk).max() <= 3
    assert replay(found).time_s <= 1.2 * max(bound.time_s for bound in bounds(network, shape, 4096))


KINDS_OF_TREES = ("all_gather", "broadcast", "reduce_scatter", "reduce")


@given(st.integers(3, 8), st.randoms(use_true_random=False), st.sampled_from(KINDS_OF_TREES))
@settings(deadline=None, max_examples=drawn(30))
def test_short_data_spreads_along_the_fastest_paths(ranks, rng, kind):
    """Trees of few links once went over slow ones: three times as long on links of 0.5 to 8 µs."""
    pairs = {(rng.randrange(rank), rank) for rank in range(1, ranks)}
    pairs |= {tuple(sorted(rng.sample(range(ranks), 2))) for _ in range(2 * ranks)}
    links = [
        Link(*ends, rng.uniform(0.5e-6, 8e-6), 1 / rng.choice([10e9, 25e9, 100e9]))
        for a, b in sorted(pairs)
        for ends in ((a, b), (b, a))
    ]
    network = build("drawn", ["h"] * ranks, links)
    found = paths.synthesize(network, collective(kind, ranks), 64)
    assert check(found) == []
    # A sum takes the ways of a copy backwards.
    ways = network.transposed() if "reduce" in kind else network
    sources = np.array([0]) if kind in ("broadcast", "reduce") else np.arange(ranks)
    longest_s = distances_s(ways, ways.travel_s(64), sources).max()
    assert replay(found).time_s <= 1.1 * longest_s


def test_many_trees_over_many_links_are_those_of_shortest_paths(monkeypatch):
    whole, ranks = collective("all_gather", 12, 1), 12
    network = build(
        "clique",
        ["h"] * ranks,
        [Link(a, b, 1e-6, 1e-9) for a in range(ranks) for b in range(ranks) if a != b],
    )
    monkeypatch.setattr(paths, "_MOST_WORK_ON_TREES", 10 * whole.chunks * network.links)
    found = paths.synthesize(network, whole, 1 << 16)
    assert check(found) == []
    monkeypatch.setattr(paths, "_MOST_WORK_ON_TREES", 10)
    with pytest.raises(NotApplicableError, match="12 trees over 132 links"):
        paths.synthesize(network, whole, 1 << 16)
