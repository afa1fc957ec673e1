"""Gossip is proven on drawn networks, reaches what exchanges cannot, and passes sums on through relays."""

from __future__ import annotations

import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import networks

from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.portfolio.rank_subsets import serve
from synth.scheduling import gossip
from synth.simulation import replay


def _kautz(letters):
    words = [(a, b) for a in range(letters) for b in range(letters) if a != b]
    links = [
        Link(one, other, 2e-6, 1 / 50e9)
        for one, first in enumerate(words)
        for other, second in enumerate(words)
        if first[1] == second[0]
    ]
    return build("kautz", ["h"] * len(words), links)


def _star(leaves):
    pairs = [pair for leaf in range(1, leaves + 1) for pair in ((0, leaf), (leaf, 0))]
    return build("star", ["h"] * (leaves + 1), [Link(*pair, 1e-6, 1 / 50e9) for pair in pairs])


@settings(max_examples=drawn(20), suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.integers(1, 5), st.integers(0, 3))
def test_every_schedule_is_proven_and_no_bound_is_above_it(network, chunks, seed):
    try:
        found = gossip.synthesize(network, collective("all_reduce", network.ranks, chunks), 4096, seed=seed)
    except NotApplicableError:
        return
    timing = replay(found)
    assert check(found, timing) == []
    proven = bounds(network, found.collective, found.chunk_bytes)
    assert all(bound.time_s <= timing.time_s * (1 + 1e-9) for bound in proven)


def test_on_one_way_links_it_comes_within_a_tenth_of_the_bound():
    network, shape = _kautz(3), collective("all_reduce", 6, 8)
    found = gossip.synthesize(network, shape, 8192)
    proven = bounds(network, shape, 8192, fluid=True)
    assert replay(found).time_s < 1.1 * max(bound.time_s for bound in proven)


@pytest.mark.parametrize("chunks", [1, 8])
def test_a_relay_passes_sums_on_without_a_part_of_its_own(chunks):
    network = _star(6)
    shape = collective("all_reduce", 7, chunks, 1, tuple(range(1, 7)))
    found = serve(gossip.synthesize, network, shape, 4096, relays=True)
    assert check(found) == []
    whole = gossip.synthesize(network, collective("all_reduce", 7, chunks), 4096)
    assert replay(found).time_s <= replay(whole).time_s * 1.02


def test_the_same_seed_gives_the_same_sends():
    network, shape = _kautz(3), collective("all_reduce", 6, 3)
    one, other = (gossip.synthesize(network, shape, 4096, seed=5) for _ in range(2))
    assert one.chunk.tolist() == other.chunk.tolist() and one.addend.tolist() == other.addend.tolist()


@pytest.mark.parametrize("kind", ["all_gather", "broadcast"])
def test_other_collectives_are_refused(kind):
    with pytest.raises(NotApplicableError):
        gossip.synthesize(_kautz(3), collective(kind, 6, 6), 4096)
