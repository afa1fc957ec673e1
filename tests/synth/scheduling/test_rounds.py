"""Schedules of one chunk in few rounds are right, keep to their rounds, and have few sends."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.check.schedule import check
from synth.network import Link, Network, build
from synth.networks.families import family
from synth.scheduling.rounds import RoundSearch, RoundSends
from synth.simulation import replay

_ATTEMPTS, _REPEATS = 30, 4


def _hypercube(dimensions: int) -> Network:
    ranks = 1 << dimensions
    pairs = [(a, a ^ 1 << bit) for a in range(ranks) for bit in range(dimensions)]
    return build("hypercube", [f"h{a}" for a in range(ranks)], [Link(*pair, 1e-6, 1e-9) for pair in pairs])


def _improved(search: RoundSearch, rounds: int, seed: int) -> RoundSends:
    """Return the best of the sends that some attempts find."""
    draw = np.random.default_rng(seed)
    cost = np.ones((rounds, search.network.links))
    begun = [sends for _ in range(_ATTEMPTS) if (sends := search.begun(rounds, draw))]
    for _ in range(_REPEATS):
        begun = [search.improved(sends, cost, draw) for sends in begun]
    return min(begun, key=lambda sends: len(sends.link))


@settings(max_examples=drawn(30))
@given(networks(), st.integers(0, 5), st.integers(0, 3))
def test_every_schedule_is_proven(network, more, seed):
    search, draw = RoundSearch(network), np.random.default_rng(seed)
    if more >= len(search.counts):
        return
    rounds = search.counts[more]
    begun = search.begun(rounds, draw)
    if begun is None:
        return
    better = search.improved(begun, draw.random((rounds, network.links)), draw)
    for sends in (begun, better):
        found = search.schedule(1024, sends)
        assert check(found, replay(found)) == []
        once = set(zip(sends.link.tolist(), sends.round.tolist(), strict=True))
        assert len(once) == len(sends.link) and sends.round.max() < rounds
        assert found.sends <= len(sends.link)


@pytest.mark.parametrize(("rounds", "most"), [(6, 38), (7, 30), (8, 30)])
def test_fewer_rounds_need_more_sends(rounds, most):
    """On a hypercube of 16 ranks a tree and its reverse send 30 times in 8 rounds."""
    search = RoundSearch(_hypercube(4))
    assert rounds in search.counts
    sends = _improved(search, rounds, seed=2)
    assert len(sends.link) <= most
    found = search.schedule(1024, sends)
    assert check(found, replay(found)) == []


def test_dear_links_are_left_out():
    """On a ring in twice the radius rounds, a tree leaves one pair of neighbours without a send."""
    network = family("ring:6", [1e-6], [1e9])
    search, draw = RoundSearch(network), np.random.default_rng(3)
    rounds, dear = search.counts[-1], np.sort((network.src, network.dst), axis=0).T.tolist()
    closing = np.array([pair == [0, 5] for pair in dear])
    cost = np.where(closing, 100.0, 1.0) * np.ones((rounds, 1))
    begun = [sends for _ in range(8) if (sends := search.begun(rounds, draw))]
    best = min(
        (search.improved(sends, cost, draw) for sends in begun), key=lambda sends: cost[0, sends.link].sum()
    )
    assert not closing[best.link].any() and len(best.link) == 2 * (network.ranks - 1)


def test_sends_that_another_schedule_has_too_many_of_are_removed():
    network = _hypercube(3)
    search, draw = RoundSearch(network), np.random.default_rng(0)
    rounds = search.counts[-1]
    link, when = np.meshgrid(np.arange(network.links), np.arange(rounds))
    sends = search.pruned(link.ravel(), when.ravel(), draw)
    assert sends is not None and len(sends.link) < network.links * rounds / 4
    assert search.pruned(sends.link[:6], sends.round[:6], draw) is None


def test_large_and_mixed_networks_are_not_searched():
    slow = build(
        "mixed",
        ["a", "b", "c"],
        [Link(a, b, 1e-6 * (1 + a), 1e-9) for a in range(3) for b in range(3) if a != b],
    )
    assert RoundSearch(slow).counts == []
    assert RoundSearch(family("ring:65", [1e-6], [1e9])).counts == []
