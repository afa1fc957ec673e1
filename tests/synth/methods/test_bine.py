"""Bine trees are right for all eight collectives, with the distances and bytes of the paper."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st

from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import bine
from synth.network import Link, build
from synth.networks.families import family
from synth.schedules import REDUCE
from synth.simulation.schedule import replay

ALPHA, BETA = 1e-6, 1e-9
KINDS = bine._SERVED
NETWORKS = (
    *("ring:2", "ring:8", "ring:16", "torus:2x4", "torus:4x4", "torus:2x2x4", "mesh:2x8", "hypercube:16"),
    *("switch:2", "switch:8", "fully_connected:16", "fat_tree:4x4", "dragonfly:4x2", "switch_switch:4x4"),
)


def made(network, kind, chunks, chunk_bytes=1000, root=0):
    schedule = bine.synthesize(network, collective(kind, network.ranks, chunks, root=root), chunk_bytes)
    assert check(schedule) == []
    return schedule


def hop_lengths(schedule):
    """Return (send, distance round the ring of all ranks)."""
    network = schedule.network
    apart = np.abs(network.src[schedule.link] - network.dst[schedule.link])
    return np.minimum(apart, network.ranks - apart)


@settings(max_examples=drawn(80), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(NETWORKS),
    st.sampled_from(KINDS),
    st.integers(1, 6),
    st.sampled_from([1, 1000, 1 << 20]),
    st.integers(0, 15),
)
def test_all_collectives_are_proven(spec, kind, chunks, chunk_bytes, root):
    dimensions = spec.count("x") + 1
    rates = [1 / BETA] * (dimensions if spec.startswith(("switch_", "dragonfly")) else 1)
    network = family(spec, [ALPHA], rates)
    schedule = made(network, kind, chunks, chunk_bytes, root % network.ranks)
    assert schedule.method == "bine"


@settings(max_examples=drawn(120), suppress_health_check=[HealthCheck.too_slow])
@given(st.permutations(range(4)) | st.permutations(range(8)), st.integers(1, 16), st.data())
def test_partners_without_a_link_reach_each_other_through_other_trees_or_not_at_all(ring, chunks, data):
    """The trees of two groups may cross at a rank on the way; then sums are not exchanged."""
    ranks = len(ring)
    chord = st.tuples(*[st.integers(0, ranks - 1)] * 2).filter(lambda pair: pair[0] != pair[1])
    pairs = {*pairwise([*ring, ring[0]]), *data.draw(st.lists(chord, max_size=ranks))}
    links = [Link(*ends, ALPHA, BETA, ()) for pair in sorted(pairs) for ends in {pair, pair[::-1]}]
    network = build("crossed", [f"host{rank}" for rank in range(ranks)], list(dict.fromkeys(links)))
    with suppress(NotApplicableError):
        made(network, "all_reduce", chunks, 100_000)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32, 64])
def test_trees_take_log_steps_and_go_near_more_often(ranks):
    """Each of the log₂ N steps doubles the ranks that have the data; distances are 1, 1, 3, 5, 11 …"""
    network = family(f"fully_connected:{ranks}", [ALPHA], [1e18])
    schedule = made(network, "broadcast", 1)
    steps = ranks.bit_length() - 1
    assert replay(schedule).time_s == pytest.approx(steps * ALPHA, rel=1e-6)
    far = [abs(1 - (-2) ** (step + 1)) // 3 for step in range(steps)]
    expected = {}
    for step, distance in enumerate(far):
        near = min(distance, ranks - distance)
        expected[near] = expected.get(near, 0) + (1 << (steps - 1 - step))
    counts = np.bincount(hop_lengths(schedule))
    assert {at: int(count) for at, count in enumerate(counts) if count} == expected


@pytest.mark.parametrize("ranks", [8, 16, 32, 64, 128])
def test_data_travels_two_thirds_as_far_as_in_recursive_doubling(ranks):
    """Section 2: 2/3 of the distance in the limit, summed over the bytes of a butterfly of whole sums."""
    network = family(f"fully_connected:{ranks}", [ALPHA], [1 / BETA])
    travelled = hop_lengths(made(network, "all_reduce", 1)).sum() / ranks
    doubling = sum(min(1 << step, ranks - (1 << step)) for step in range(ranks.bit_length() - 1))
    assert 2 / 3 - 1e-9 <= travelled / doubling <= 0.75


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_long_buffers_take_the_bytes_of_a_ring_and_short_ones_log_steps(ranks):
    network = family(f"switch:{ranks}", [0.0], [1 / BETA])
    assert replay(made(network, "all_reduce", ranks)).time_s == pytest.approx(2 * (ranks - 1) * 1000 * BETA)
    slow = family(f"switch:{ranks}", [ALPHA], [1e18])
    steps = ranks.bit_length() - 1
    assert replay(made(slow, "all_reduce", 1)).time_s == pytest.approx(steps * ALPHA, rel=1e-6)
    assert replay(made(slow, "all_reduce", ranks)).time_s == pytest.approx(2 * steps * ALPHA, rel=1e-6)


@pytest.mark.parametrize(("kind", "chunks"), [("all_gather", 6), ("reduce_scatter", 6 * 64)])
def test_on_a_torus_of_rings_of_four_all_links_carry_the_same(kind, chunks):
    network = family("torus:4x4x4", [0.0], [1 / BETA])
    schedule = made(network, kind, chunks)
    assert set(np.bincount(schedule.link, minlength=network.links)) == {63}
    assert (schedule.op == REDUCE).all() == (kind == "reduce_scatter")


@pytest.mark.parametrize("spec", ["ring:6", "switch:3", "torus:3x4"])
def test_other_numbers_of_ranks_are_refused(spec):
    network = family(spec, [ALPHA], [1 / BETA])
    with pytest.raises(NotApplicableError, match="2, 4, 8"):
        bine.synthesize(network, collective("broadcast", network.ranks), 1000)


def test_other_collectives_are_refused():
    network = family("switch:4", [ALPHA], [1 / BETA])
    with pytest.raises(NotApplicableError, match="all_to_next"):
        bine.synthesize(network, collective("all_to_next", 4), 1000)
