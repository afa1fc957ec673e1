"""Paths weigh latency against load."""

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective, uneven
from synth.errors import NotApplicableError
from synth.methods import paths
from synth.network import Link, build
from synth.networks.families import family
from synth.networks.path_search import distances_s
from synth.portfolio.request import divided
from synth.redistribution import MeshLayout, Moved, redistribution
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

    """A quarter of a rank's chunks once shared one relay, as a search over all links takes long there."""
    """Where a search over all links takes long, a quarter of a rank's chunks once shared one relay."""
    monkeypatch.setattr(paths, "_WORK", 1)
    network = family("fully_connected:24", [1e-6], [25e9])
    sizes = [1 << 20 if rank % 4 == 1 else 0 for rank in range(24)]
    gathered = uneven("gather", 24, sizes, chunk_bytes=1 << 14)
    found = paths.synthesize(network, gathered, 1 << 14)
    assert check(found) == []
    assert replay(found).time_s <= 1.2 * max(bound.time_s for bound in bounds(network, gathered, 1 << 14))


def test_links_choose_among_chunks_that_several_ranks_hold():
    """Trees that were fixed beforehand took 1.25 times as long, as their sends waited for one chunk each."""
    network = family("ring_fc_switch:2x4x5", [2e-6], [50e9, 25e9, 50e9])
    ranks = np.random.default_rng(0).permutation(network.ranks).tolist()
    source = MeshLayout(tuple(ranks[:13]), (1, 13), (None, 1))
    target = MeshLayout(tuple(ranks[20:]), (10, 2), (None, 1))
    one, size_bytes = redistribution(network.ranks, [Moved((369, 2827), 2, source, target)]).request()
    chunk_bytes = size_bytes // one.sets.total_bytes(1)
    found = paths.synthesize(network, one.sets, chunk_bytes)
    assert check(found) == []
    bound_s = max(bound.time_s for bound in bounds(network, one.sets, chunk_bytes))
    assert replay(found).time_s <= 1.5 * bound_s


def test_blocks_with_several_holders_take_turns_until_links_are_level():
    """Each block once kept its first way: the busiest link then carried 1.26 times as much as necessary."""
    network = family("torus:4x6", [1e-6], [25e9])
    holders = (7, 11, 22, 18, 2, 9, 3, 21, 19, 14, 5, 0, 16, 12, 17)
    takers = (19, 6, 15, 13, 12, 10, 18, 14, 4, 16, 11, 0, 17, 8, 9, 1, 5, 2, 3)
    source, target = MeshLayout(holders, (3, 5), (None, 1)), MeshLayout(takers, (19, 1), (1, 0))
    one, size_bytes = redistribution(24, [Moved((1502, 3054), 2, source, target, 8)]).request()
    shape = divided((one,), 24, 4)
    chunk_bytes = size_bytes // shape.total_bytes(1)
    found = paths.synthesize(network, shape, chunk_bytes)
    assert check(found) == []
    busiest_s = np.bincount(found.link).max() * network.hold_s(chunk_bytes).max()
    assert busiest_s <= 1.1 * max(bound.time_s for bound in bounds(network, shape, chunk_bytes, fluid=True))


def test_where_trees_take_long_a_clique_has_stars_over_ranks_with_less_to_send(monkeypatch):
    """All chunks of a giant block once went to all ranks from their owner: 8 times as long."""
    monkeypatch.setattr(paths, "_MOST_WORK_ON_TREES", 30_000)
    network = family("fully_connected:16", [1e-6], [25e9])
    sizes = [16 << 20 if rank == 3 else 1 << 20 for rank in range(16)]
    spread = uneven("all_gather", 16, sizes, chunk_bytes=1 << 18)
    found = paths.synthesize(network, spread, 1 << 18)
    assert check(found) == []
    assert replay(found).time_s <= 1.05 * max(bound.time_s for bound in bounds(network, spread, 1 << 18))
