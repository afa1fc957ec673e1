from __future__ import annotations

import networkx
import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_networks import networks

from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.families import family
from synth.tree_packing.integral_arborescences import flows_fit, graph_of, whole_trees
from synth.tree_packing.integral_packing import gathering_trees


def grown(network, capacity, supply, seed=0):
    flow = np.zeros((network.ranks, network.links), dtype=np.int64)
    lacking = flows_fit(graph_of(network), capacity, supply, flow)
    if lacking.any():
        return lacking, None
    roots = np.random.default_rng(seed).permutation(np.repeat(np.arange(network.ranks), supply))
    return roots, whole_trees(graph_of(network), roots, capacity.copy(), flow, seed)


@settings(max_examples=drawn(80))
@given(networks(most_ranks=8), st.integers(1, 3), st.integers(0, 9), st.data())
def test_as_many_trees_as_flows_promise_or_a_set_that_forbids_them(network, trees, seed, data):
    capacity = np.array([data.draw(st.integers(1, 8)) for _ in range(network.links)])
    supply = np.full(network.ranks, trees)
    found, made = grown(network, capacity, supply, seed)
    if made is None:
        entering = ~found[network.src] & found[network.dst]
        assert capacity[entering].sum() < trees * (~found).sum()
        return
    table, height = made
    assert (np.bincount(table.ravel(), minlength=network.links) <= capacity).all()
    for root, tree, depth in zip(found.tolist(), table, height, strict=True):
        graph = networkx.DiGraph(zip(network.src[tree].tolist(), network.dst[tree].tolist(), strict=True))
        assert networkx.is_arborescence(graph)
        assert graph.in_degree(root) == 0
        assert max(networkx.single_source_shortest_path_length(graph, root).values()) == depth


def test_every_link_of_a_torus_is_used_all_the_time():
    torus = family("torus:5x5", [0.0], [1e9])
    _, (table, _) = grown(torus, np.full(torus.links, 24), np.full(25, 4))
    assert (np.bincount(table.ravel()) == 24).all()


def test_trees_of_a_mesh_are_as_low_as_its_diameter():
    mesh = family("mesh:6x6", [0.0], [1e9])
    _, (_, height) = grown(mesh, np.full(mesh.links, 35), np.full(36, 2))
    assert height.max() == 10


def test_one_root_alone():
    mesh = family("mesh:3x3", [0.0], [1e9])
    supply = 2 * (np.arange(9) == 4)
    roots, (table, _) = grown(mesh, np.ones(mesh.links, dtype=np.int64), supply)
    assert roots.tolist() == [4, 4]
    assert np.bincount(table.ravel()).max() == 1


def test_ranks_that_do_not_reach_each_other_have_no_trees():
    one_way = build("one way", ["a", "b"], [Link(0, 1, 0.0, 1e-9)])
    with pytest.raises(NotApplicableError, match="not every rank reaches every other"):
        gathering_trees(one_way, 1)
