"""The classic methods take the steps and the bytes that the books say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from synth.check.schedule import check
from synth.collective import collective, uneven
from synth.errors import NotApplicableError
from synth.methods import (
    bidirectional,
    direct,
    doubling,
    hierarchical,
    ring,
    tree,
    two_step,
)
from synth.network import Link, build, fastest_links
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.simulation.schedule import replay

ALPHA, BETA = 1e-6, 1e-9


def uniform(ranks):
    return family(f"fully_connected:{ranks}", [ALPHA], [1 / BETA])


def time_s(method, network, kind, chunks, chunk_bytes):
    schedule = method(network, collective(kind, network.ranks, chunks), chunk_bytes)
    assert check(schedule) == []
    return replay(schedule).time_s


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 12])
def test_ring_all_reduce_costs_what_ds_sync_says(ranks):
    """2(N−1)(α + Sβ/N) (DS-Sync Table I)."""
    chunk_bytes = 12_000
    found_s = time_s(ring.synthesize, uniform(ranks), "all_reduce", ranks, chunk_bytes)
    assert found_s == pytest.approx(2 * (ranks - 1) * (ALPHA + chunk_bytes * BETA))


@pytest.mark.parametrize("ranks", [4, 8, 16, 32])
@pytest.mark.parametrize("chunks", [2, 8, 32])
def test_double_tree_all_reduce_costs_no_more_than_ds_sync_says(ranks, chunks):
    """2(log N + k)(α + Sβ/k) (DS-Sync Table I), k chunks; on a switch, where children share a port."""
    network = family(f"switch:{ranks}", [ALPHA], [1 / BETA])
    found_s = time_s(tree.synthesize, network, "all_reduce", chunks, 12_000)
    formula_s = 2 * (math.log2(ranks) + chunks) * (ALPHA + 12_000 * BETA)
    assert 0.4 * formula_s <= found_s <= 1.25 * formula_s


@pytest.mark.parametrize(("hosts", "size"), [(2, 4), (4, 4), (3, 2), (4, 8)])
def test_hierarchical_all_reduce_costs_what_ds_sync_says(hosts, size):
    """2(G−1)Sβ₁/G + 2(C−1)Sβ₂/C (DS-Sync Table II) with a rail for each rank, which divides S by G there."""
    network = family(f"switch_switch:{size}x{hosts}", [0.0], [100e9, 10e9])
    ranks = hosts * size
    buffer = 12_000 * ranks
    found_s = time_s(hierarchical.synthesize, network, "all_reduce", ranks, 12_000)
    inside_s = 2 * (size - 1) / size * buffer / 100e9
    across_s = 2 * (hosts - 1) / hosts * (buffer / size) / 10e9
    assert max(inside_s, across_s) * (1 - 1e-9) <= found_s <= (inside_s + across_s) * 1.3


@pytest.mark.parametrize("ranks", [4, 5, 7, 8, 13, 16])
def test_doubling_takes_the_logarithm_of_the_ranks(ranks):
    network = family(f"switch:{ranks}", [ALPHA], [1e15])
    # A chunk waits for no other, so that the steps it does not need cost it nothing.
    most = math.ceil(math.log2(ranks))
    least = max(place.bit_count() for place in range(ranks))
    for method, kind, laps, phases in (
        (doubling.synthesize, "all_gather", 1, 1),
        (doubling.synthesize, "broadcast", 1, 1),
        (doubling.synthesize, "reduce", 1, 1),
        (doubling.halving_doubling, "reduce_scatter", ranks, 1),
        (doubling.halving_doubling, "all_reduce", ranks, 2),
    ):
        steps = time_s(method, network, kind, laps, 1) / ALPHA / phases
        assert least * (1 - 1e-3) <= steps <= most * (1 + 1e-3)


@pytest.mark.parametrize("ranks", [4, 6, 8, 16])
def test_halving_doubling_sends_as_much_as_a_ring(ranks):
    network = family(f"switch:{ranks}", [0.0], [1 / BETA])
    least_s = 2 * (ranks - 1) * 1000 * BETA
    found_s = time_s(doubling.halving_doubling, network, "all_reduce", ranks, 1000)
    assert found_s <= (1.0 if ranks & (ranks - 1) == 0 else 1.5) * least_s * (1 + 1e-9)


@pytest.mark.parametrize("ranks", [3, 4, 5, 8])
def test_direct_takes_one_step_and_all_pairs_two(ranks):
    step_s = ALPHA + 1000 * BETA
    for kind in (
        "all_gather",
        "all_to_all",
        "reduce_scatter",
        "broadcast",
        "scatter",
        "gather",
        "all_to_next",
    ):
        assert time_s(direct.synthesize, uniform(ranks), kind, 1, 1000) == pytest.approx(step_s)
    schedule = direct.all_pairs(uniform(ranks), collective("all_reduce", ranks, ranks), 1000)
    assert replay(schedule).time_s == pytest.approx(2 * step_s)
    assert schedule.method == "all_pairs"


@pytest.mark.parametrize("ranks", [3, 4, 5, 8, 9])
def test_both_ways_round_take_half_the_steps(ranks):
    network = family(f"ring:{ranks}", [ALPHA], [1 / BETA])
    steps = ranks // 2
    assert time_s(bidirectional.synthesize, network, "all_gather", 1, 1000) <= steps * (
        ALPHA + 1000 * BETA
    ) * (1 + 1e-9)
    # Long buffers: what the first and the last chunk wait for counts little.
    halves = time_s(bidirectional.synthesize, network, "all_reduce", 8 * ranks, 10_000)
    assert halves <= time_s(ring.synthesize, network, "all_reduce", 8 * ranks, 10_000) / 2 * 1.25


def test_two_step_all_to_all_crosses_between_hosts_once_and_only_to_the_same_place():
    network = pod("dgx-a100:2")
    for method in (two_step.synthesize, two_step.three_step):
        schedule = method(network, collective("all_to_all", 16, 16), 1000)
        assert check(schedule) == []
        src, dst = network.src[schedule.link], network.dst[schedule.link]
        across = src // 8 != dst // 8
        assert (src[across] % 8 == dst[across] % 8).all()
        assert across.sum() == 2 * 8 * 8


def test_three_step_gathers_what_goes_to_one_host():
    network = pod("dgx-a100:3")
    schedule = two_step.three_step(network, collective("all_to_all", 24, 24), 1000)
    src, dst = network.src[schedule.link], network.dst[schedule.link]
    across = src // 8 != dst // 8
    pairs = set(zip(src[across].tolist(), (dst[across] // 8).tolist(), strict=True))
    # Two of a host's 8 ranks send to each of two other hosts.
    assert len(pairs) == 3 * 2 * 2


def test_the_best_ring_enters_every_host_once():
    host = np.random.default_rng(5).permutation(np.arange(24) % 3)
    links = [
        Link(a, b, ALPHA, 1 / (300e9 if host[a] == host[b] else 25e9))
        for a in range(24)
        for b in range(24)
        if a != b
    ]
    network = build("shuffled", [f"h{at}" for at in host], links)
    order = ring.cycle(network, network.travel_s(1 << 20), fastest_links(network, 1 << 20))
    assert sorted(order) == list(range(24))
    assert sum(host[a] != host[b] for a, b in zip(order, order[1:] + order[:1], strict=True)) == 3


@pytest.mark.parametrize("method", [hierarchical.synthesize, two_step.synthesize, two_step.three_step])
def test_methods_for_hosts_need_hosts_of_equal_size(method):
    kind = "all_reduce" if method is hierarchical.synthesize else "all_to_all"
    for network in (family("switch:8", [0.0], [1e9]), pod("dgx-a100")):
        with pytest.raises(NotApplicableError, match="two hosts or more"):
            method(network, collective(kind, 8, 8), 1000)


@pytest.mark.parametrize(
    ("spec", "fills"),
    [("switch:8", True), ("fat_tree:4x4/2", True), ("torus:4x4", False), ("switch_switch:2x4", False)],
)
def test_a_ring_fills_networks_whose_ranks_have_one_port(spec, fills):
    bandwidth = [100e9, 25e9] if spec.startswith("switch_switch") else [50e9]
    network = family(spec, [5e-7], bandwidth)
    assert ring.fills(network, collective("all_reduce", network.ranks, network.ranks)) == fills
    assert not ring.fills(network, collective("broadcast", network.ranks, 1))


@given(
    st.sampled_from(["all_gather", "reduce_scatter"]),
    st.lists(st.integers(0, 9), min_size=2, max_size=9).filter(any),
    st.booleans(),
)
def test_an_uneven_ring_is_right_and_its_busiest_link_never_waits(kind, blocks, ports):
    """Each link carries all blocks but one; the last chunk then has at most a hop for each rank."""
    ranks = len(blocks)
    network = family(f"{'switch' if ports else 'ring'}:{ranks}", [1e-6], [1e9])
    shape = uneven(kind, ranks, [1000 * block for block in blocks], 1000)
    schedule = ring.synthesize(network, shape, 1000)
    assert check(schedule) == []
    assert replay(schedule).time_s <= (sum(blocks) + ranks) * 1e-6 + ranks * 1e-6


@pytest.mark.parametrize("kind", ["gather", "scatter", "all_to_all"])
def test_a_ring_serves_no_other_uneven_collective(kind):
    sizes = [1000] * (9 if kind == "all_to_all" else 3)
    with pytest.raises(NotApplicableError):
        ring.synthesize(family("ring:3", [1e-6], [1e9]), uneven(kind, 3, sizes, 1000), 1000)
