from __future__ import annotations

import networkx
import numpy as np
import pytest
from sample_networks import named

from synth.bounds.lower_bounds import bounds
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.tree_packing.spanning_trees import pack, pair_links

SPECS = [
    ("mesh:3x3", [50e9]),
    ("mesh:4x4", [50e9, 20e9]),
    ("torus:4x4", [50e9]),
    ("hypercube:16", [50e9]),
    ("switch:6", [50e9]),
    ("rfs:2x2x3", [200e9, 100e9, 50e9]),
]


@pytest.mark.parametrize(("spec", "bandwidth"), SPECS)
def test_trees_span_and_shares_give_the_load(spec, bandwidth):
    network = family(spec, [0.0], bandwidth)
    edges = pair_links(network)
    packing = pack(edges)
    assert packing.share.sum() == pytest.approx(1.0)
    load = np.zeros(edges.load.shape[0])
    for tree, share in zip(packing.trees, packing.share, strict=True):
        graph = networkx.Graph(zip(edges.a[tree].tolist(), edges.b[tree].tolist(), strict=True))
        assert networkx.is_tree(graph)
        assert len(graph) == network.ranks
        load += share * edges.load[:, tree].sum(axis=1)
    assert load.max() == pytest.approx(packing.s_per_byte, rel=1e-6)
    assert packing.bound_s_per_byte <= packing.s_per_byte * (1 + 1e-9)


@pytest.mark.parametrize(("spec", "bandwidth"), SPECS)
def test_the_packing_meets_the_bound_of_all_algorithms(spec, bandwidth):
    network = family(spec, [0.0], bandwidth)
    least_s = bounds(network, Collective("all_reduce", network.ranks, 1), 1 << 30, fluid=True)[0].time_s
    packing = pack(pair_links(network))
    assert packing.s_per_byte * 2**30 == pytest.approx(least_s, rel=0.01)


def test_pairs_joined_by_several_links_are_one_part_of_the_bound():
    network = pod("mi250:2")
    found = bounds(network, Collective("all_reduce", 32, 1), 1 << 30, fluid=True)[0]
    assert found.name == "partition into 16 clusters"
    assert pack(pair_links(network)).s_per_byte * 2**30 == pytest.approx(found.time_s, rel=0.005)


def test_one_way_links_hold_no_spanning_tree():
    ring = build("one way", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(1, 2, 0, 1e-9), Link(2, 0, 0, 1e-9)])
    with pytest.raises(NotApplicableError, match="links both ways"):
        pair_links(ring)


def test_parallel_links_are_paired_by_cost():
    links = [Link(0, 1, 0, 1e-9), Link(0, 1, 0, 4e-9), Link(1, 0, 0, 4e-9), Link(1, 0, 0, 1e-9)]
    edges = pair_links(build("pair", ["a", "b"], links))
    assert sorted(zip(edges.there.tolist(), edges.back.tolist(), strict=True)) == [(0, 3), (1, 2)]


def test_the_same_seed_gives_the_same_packing():
    first, again = (pack(pair_links(named("mesh")), seed=4) for _ in range(2))
    assert first.trees.tolist() == again.trees.tolist()
    assert first.share.tolist() == again.share.tolist()
