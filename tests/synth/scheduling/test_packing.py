"""Packing keeps the order of a plan's sends and the given time, and shares links among plans."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from probes.base import bytes_of, floats, offsets
from synth.network import Link, build
from synth.networks.families import family
from synth.schedules import COPY
from synth.scheduling.packing import ChunkPacking, ChunkPlan

_ALPHA_S, _BYTE_S = 1e-6, 1e-9
_TRIANGLE = [(a, b) for a in range(3) for b in range(3) if a != b]


def _network(pairs, ranks, ports=()):
    links = [Link(*pair, _ALPHA_S, _BYTE_S, tuple(ports)) for pair in pairs]
    return build("drawn", ["h"] * ranks, links)


def _chain(network, *ranks):
    """Return the plan of a broadcast along ``ranks``."""
    pairs = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    link = np.array([pairs.index(pair) for pair in pairwise(ranks)])
    sends = len(link)
    return ChunkPlan(
        link,
        bytes_of([COPY] * sends),
        offsets([0] * sends),
        np.empty(0, np.int64),
        floats(np.arange(sends) * _ALPHA_S),
        sends * _ALPHA_S,
    )


def _packing(network, *plans):
    return ChunkPacking(network, plans, np.arange(network.links)[None])


def test_two_chains_that_share_no_link_carry_about_half_of_the_chunks_each():
    network = _network(_TRIANGLE, 3)
    packing = _packing(network, _chain(network, 0, 1, 2), _chain(network, 0, 2, 1))
    found = packing.packed(64, 100, 8e-6)
    assert 28 <= np.bincount(found.plan)[0] <= 36


def test_a_shared_port_costs_both_links():
    """Behind one port a chain of two hops loads it twice, so the chain of one hop carries all chunks."""
    network = _network([(0, 1), (1, 2), (0, 2)], 3, ["port"])
    packing = _packing(network, _chain(network, 0, 1, 2), _chain(network, 0, 2))
    assert packing.packed(16, 1000, 40e-6).plan.tolist() == [1] * 16


def test_no_plan_is_longer_than_the_time():
    network = _network([(0, 1), (1, 2), (0, 2)], 3)
    packing = _packing(network, _chain(network, 0, 1, 2), _chain(network, 0, 2))
    assert packing.packed(16, 1000, 1.5e-6).plan.tolist() == [1] * 16
    assert packing.packed(16, 1000, 1.0e-6) is None


def test_only_the_given_plans_are_taken():
    network = _network(_TRIANGLE, 3)
    packing = _packing(network, _chain(network, 0, 1, 2), _chain(network, 0, 2, 1))
    assert packing.packed(8, 1000, 40e-6, np.array([1])).plan.tolist() == [1] * 8


def test_chunks_use_the_images_in_turn():
    network = family("ring:4", [_ALPHA_S], [1 / _BYTE_S])
    pairs = list(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    images = np.array(
        [[pairs.index(((a + shift) % 4, (b + shift) % 4)) for a, b in pairs] for shift in range(4)]
    )
    alone, turned = (
        ChunkPacking(network, [_chain(network, 0, 1, 2)], some).packed(8, 1000, 5e-6)
        for some in (images[:1], images)
    )
    # Prices tell how full links are: without images two links carry everything.
    assert turned.cost.max() < alone.cost.max()


@settings(max_examples=drawn(30))
@given(st.permutations(range(6)), st.integers(1, 20), st.floats(5.01e-6, 60e-6), st.integers(1, 1000))
def test_sends_start_after_those_they_wait_for_and_arrive_in_time(order, chunks, within_s, chunk_bytes):
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    network = _network(pairs, 6)
    plans = [_chain(network, *order), _chain(network, *reversed(order)), _chain(network, *order[:3])]
    found = _packing(network, *plans).packed(chunks, chunk_bytes, within_s)
    start = offsets([len(plans[plan].link) for plan in found.plan.tolist()])
    assert start[-1] == len(found.start_s)
    for first, past in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        starts_s = found.start_s[first:past]
        assert starts_s[0] >= 0 and starts_s[-1] + _ALPHA_S <= within_s * (1 + 1e-9)
        assert (np.diff(starts_s) >= _ALPHA_S * (1 - 1e-9)).all()


@pytest.mark.parametrize("alpha_s", [0.0, 1e-6])
def test_links_without_latency_are_packed_too(alpha_s):
    network = build("pair", ["h"] * 2, [Link(0, 1, alpha_s, _BYTE_S), Link(1, 0, alpha_s, _BYTE_S)])
    assert _packing(network, _chain(network, 0, 1)).packed(4, 1000, 9e-6).plan.tolist() == [0] * 4
