"""Balanced trees: each spans all ranks, and together they load edges about evenly."""

import networkx as nx
import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings
from random_networks import random_networks

from synth.networks.families import family
from synth.tree_packing.balanced_packing import balanced_trees, exchanged
from synth.tree_packing.spanning_trees import pair_links
from synth.tree_packing.two_way_trees import hung


def _span(edges, trees):
    for tree in trees:
        graph = nx.MultiGraph(zip(edges.a[tree].tolist(), edges.b[tree].tolist(), strict=True))
        if len(tree) != edges.network.ranks - 1 or not nx.is_tree(graph):
            return False
    return True


@settings(max_examples=drawn(20), deadline=None)
@given(network=random_networks())
def test_all_are_spanning_trees_before_and_after_exchanges(network):
    edges = pair_links(network)
    trees = balanced_trees(edges, 9)
    assert _span(edges, trees)
    most = np.full(edges.count, 5)
    after = exchanged(edges, trees, most)
    assert _span(edges, after)
    before_load, load = (np.bincount(each.ravel(), minlength=edges.count) for each in (trees, after))
    assert np.maximum(load - most, 0).sum() <= np.maximum(before_load - most, 0).sum()


@pytest.mark.parametrize(
    ("spec", "trees", "most"), [("mesh:10x10", 20, 11), ("mesh:4x4", 8, 5), ("ring:8", 8, 7)]
)
def test_exchanges_meet_the_partition_bound(spec, trees, most):
    """Nash-Williams and Tutte: mesh 10x10 has 180 edges and trees of 99, so 20 trees fit into 11 copies."""
    edges = pair_links(family(spec, [0.0], [1e9]))
    assert trees * (edges.network.ranks - 1) <= most * edges.count
    found = exchanged(edges, balanced_trees(edges, trees), np.full(edges.count, most))
    assert _span(edges, found)
    assert np.bincount(found.ravel()).max() == most


def test_shared_ports_are_loaded_evenly_too():
    edges = pair_links(family("switch:8", [0.0], [1e9]))
    trees = balanced_trees(edges, 64)
    load = edges.load @ np.bincount(trees.ravel(), minlength=edges.count)
    least = 64 * 2 * 7 / 8 * 1e-9
    assert load.max() <= 1.1 * least


def test_low_trees_are_low_and_spread_over_roots():
    edges = pair_links(family("dragonfly:5x4", [0.0], [1e9]))
    low, even = (balanced_trees(edges, 8, low=low) for low in (True, False))
    assert _span(edges, low)
    heights = [max(hung(edges, tree).up_depth.max() for tree in trees) for trees in (low, even)]
    assert heights[0] == 3
    assert heights[0] <= heights[1]
