"""Trees in time reach all ranks in order, avoid dear slots, and tell when the time is too short."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.network import Link, build
from synth.networks import distances_s
from synth.networks.families import family
from synth.scheduling.priced_trees import add_cheapest_tree
from synth.scheduling.slot_loads import add, held_by, slots_s, timed_links, unloaded


def _tree(network, root, inward, within_s, chunk_bytes=100, crowded=(), ready=None):
    """Return (price, link of each rank, slot of each rank, slots' begins, timed links)."""
    begin_s, held = slots_s(network, chunk_bytes, within_s), held_by(network, chunk_bytes)
    links, load = timed_links(network, begin_s, within_s), unloaded(network, begin_s, held)
    for link in crowded:
        for slot in range(len(begin_s) - 1):
            for _ in range(30):
                add(link, slot, held, load, 1.0)
    link_of, slot_of = np.empty(network.ranks, np.int64), np.zeros(network.ranks, np.int64)
    ready = (len(begin_s) - 1 if inward else 0) if ready is None else ready
    every = np.arange(network.links)
    price = add_cheapest_tree(links, held, load, every, root, ready, inward, math.inf, link_of, slot_of)
    return price, link_of.tolist(), slot_of.tolist(), begin_s, links


@settings(max_examples=drawn(60))
@given(networks(), st.booleans(), st.integers(0, 6), st.floats(1.0, 3.0))
def test_every_rank_has_the_data_before_it_sends_it_on(network, inward, root, longer):
    root %= network.ranks
    far_s = distances_s(network, network.alpha_s, np.arange(network.ranks))
    within_s = longer * float(max(far_s.max(), 1e-6)) + 1e-9
    price, link_of, slot_of, _, links = _tree(network, root, inward, within_s)
    assert 0 < price < math.inf
    assert [rank for rank, link in enumerate(link_of) if link < 0] == [root]
    for rank, link in enumerate(link_of):
        if rank == root:
            continue
        # A rank sends its sum over its link, or gets the data over it.
        assert (network.src if inward else network.dst)[link] == rank
        assert slot_of[rank] <= links.last[links.latency[link]]
        other = int((network.dst if inward else network.src)[link])
        if other != root:
            early, late = (rank, other) if inward else (other, rank)
            assert links.next[links.latency[link_of[early]], slot_of[early]] <= slot_of[late]
        hops = 0
        while link_of[rank] >= 0:
            rank, hops = int((network.dst if inward else network.src)[link_of[rank]]), hops + 1
            assert hops < network.ranks


@pytest.mark.parametrize("inward", [False, True])
def test_a_crowded_link_is_left_out_where_another_way_is_in_time(inward):
    network = family("ring:4", [1e-6], [1e9])
    crowded = [int(row) for row in np.flatnonzero((network.src == 0) & (network.dst == 1))]
    crowded += [int(row) for row in np.flatnonzero((network.src == 1) & (network.dst == 0))]
    for within_s, uses in ((3.5e-6, False), (2.5e-6, True)):
        _, link_of, *_ = _tree(network, 0, inward, within_s, crowded=crowded)
        assert bool(set(link_of) & set(crowded)) == uses


@pytest.mark.parametrize("inward", [False, True])
def test_a_time_shorter_than_the_farthest_path_has_no_tree(inward):
    network = family("ring:6", [1e-6], [1e9])
    assert _tree(network, 0, inward, 2.9e-6)[0] == math.inf


def test_one_dear_port_is_shared_by_no_star():
    """Each send over a port makes the next one dearer, so that a tree over other ports is the cheapest."""
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    links = [Link(a, b, 1e-6, 1e-9, (f"out {a}", f"in {b}")) for a, b in pairs]
    network = build("switch", ["h"] * 6, links)
    _, link_of, *_ = _tree(network, 0, False, 8e-6, chunk_bytes=200)
    assert sum(link >= 0 and network.src[link] == 0 for link in link_of) < 5
