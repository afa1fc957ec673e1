"""Prices of links and ports bound an all_reduce, and pairs of trees meet them."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from racked_networks import racked

from synth.bounds.lower_bounds import bounds
from synth.bounds.spanning_trees import spanning_tree_s_per_byte
from synth.collective import collective
from synth.network import Link, Network, build
from synth.networks import found_symmetry, pod
from synth.networks.families import family
from synth.tree_packing.arborescence_pairs import pack_pairs

SECONDS_A_BYTE = st.sampled_from([8e-8, 1.3e-7, 2e-7, 3.2e-7])


@st.composite
def racks(draw: st.DrawFn) -> Network:
    """Hosts with NICs of one rate or of two, in racks behind trunks."""
    rack = draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    out = [draw(SECONDS_A_BYTE) for _ in rack]
    into = [draw(SECONDS_A_BYTE) for _ in rack]
    trunk = draw(SECONDS_A_BYTE)
    links = []
    for src in range(len(rack)):
        for dst in range(len(rack)):
            if src == dst:
                continue
            far = rack[src] != rack[dst]
            ports = (f"out {src}", f"in {dst}", *((f"up {rack[src]}", f"down {rack[dst]}") if far else ()))
            links.append(Link(src, dst, 0, max(out[src], into[dst], trunk if far else 0.0), ports))
    return build("racks", [f"h{rank}" for rank in range(len(rack))], links)


@settings(max_examples=drawn(30))
@given(racks())
def test_no_pairs_of_trees_are_faster_than_the_prices_say(network):
    proven = spanning_tree_s_per_byte(network)
    assert proven <= pack_pairs(network).s_per_byte * (1 + 1e-6)
    found = bounds(network, collective("all_reduce", network.ranks, 1), 1 << 30, fluid=True)
    others = [bound for bound in found if bound.name == "total traffic" or bound.name.startswith("partition")]
    assert proven * 2**30 >= max(bound.time_s for bound in others) * (1 - 0.005)


def test_three_racks_of_unequal_size_are_bounded_by_their_trunks():
    # Each chunk crosses four times, and three trunks carry what leaves a rack.
    network = racked([3, 2, 1], inside=8e-8, across=2e-7, alpha_s=0)
    largest, *others = bounds(network, collective("all_reduce", 6, 1), 1 << 30, fluid=True)
    assert largest.name == "spanning trees"
    assert largest.time_s == pytest.approx(4 / 3 * 2**30 * 2e-7, rel=0.003)
    assert all(bound.time_s < 0.9 * largest.time_s for bound in others)


def test_where_directions_cost_the_same_it_is_what_spanning_trees_carry():
    links = [Link(a, b, 0, 1e-9) for a in range(5) for b in range(5) if a != b]
    network = build("mesh", list("abcde"), links)
    # Twenty links, of which each tree uses eight.
    assert spanning_tree_s_per_byte(network) == pytest.approx(8 / 20 * 1e-9, rel=0.003)


def test_parallel_links_count_once_each():
    links = [Link(0, 1, 0, 1e-9), Link(0, 1, 0, 1e-9), Link(1, 0, 0, 1e-9), Link(1, 0, 0, 1e-9)]
    network = build("pair", ["a", "b"], links)
    assert np.isclose(spanning_tree_s_per_byte(network), 0.5e-9, rtol=0.003)


def test_links_without_shared_ports_are_left_to_cuts_and_partitions():
    found = bounds(family("torus:4x4", [5e-7], [50e9]), collective("all_reduce", 16, 16), 1 << 20)
    assert "spanning trees" not in {bound.name for bound in found}


@settings(max_examples=drawn(20))
@given(racks(), st.permutations([0.0, 0.9, 1.0, 1.1]))
def test_what_was_asked_before_changes_no_answer(network, parts):
    """A search goes on from where an earlier one for the same network ended."""
    known = spanning_tree_s_per_byte(network)
    for part in parts:
        alone = spanning_tree_s_per_byte(replace(network), part * known)
        assert spanning_tree_s_per_byte(network, part * known) == alone


def test_orbits_of_a_symmetric_network_have_one_price_and_prove_as_much():
    network = pod("dgx-a100:2")
    beta = np.array(network.beta_s_per_byte)
    beta[0] *= 1 - 1e-6
    uneven = replace(network, beta_s_per_byte=beta)
    assert found_symmetry(network) is not None and found_symmetry(uneven) is None
    assert spanning_tree_s_per_byte(network) == pytest.approx(spanning_tree_s_per_byte(uneven), rel=0.004)
