from __future__ import annotations

import networkx
import numpy as np
import pytest
from drawn_examples import chessboard

from synth.bounds.lower_bounds import bounds
from synth.bounds.packing_lp import link_load
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.families import family
from synth.tree_packing.arborescences import pack_rooted

SPECS = [
    ("mesh:3x3", [50e9]),
    ("mesh:4x3", [50e9, 20e9]),
    ("torus:4x4", [50e9]),
    ("switch:6", [50e9]),
    ("rfs:2x2x3", [200e9, 100e9, 50e9]),
]


@pytest.mark.parametrize(("case", "kind"), chessboard(SPECS, ["all_gather", "broadcast"]))
def test_the_optimum_is_met_by_trees_that_span(case, kind):
    spec, bandwidth = case
    network = family(spec, [0.0], bandwidth)
    ranks = network.ranks
    demand = np.full(ranks, 1 / ranks) if kind == "all_gather" else np.eye(ranks)[0]
    packing = pack_rooted(network, demand)
    load = np.zeros(link_load(network).shape[0])
    for tree, root, share in zip(packing.trees, packing.root, packing.share, strict=True):
        graph = networkx.DiGraph(zip(network.src[tree].tolist(), network.dst[tree].tolist(), strict=True))
        assert networkx.is_arborescence(graph)
        assert graph.in_degree(int(root)) == 0
        load += share * link_load(network)[:, tree].sum(axis=1)
    assert load.max() == pytest.approx(packing.s_per_byte, rel=1e-6)
    for root in range(ranks):
        assert packing.share[packing.root == root].sum() == pytest.approx(demand[root])
    shape = collective(kind, ranks)
    least_s = bounds(network, shape, 1 << 30, fluid=True)[0].time_s
    assert packing.s_per_byte * shape.total_bytes(1 << 30) == pytest.approx(least_s, rel=5e-3)


def test_a_root_that_does_not_reach_everyone():
    network = build("cut", ["a", "b", "c"], [Link(0, 1, 0, 1e-9), Link(2, 0, 0, 1e-9)])
    with pytest.raises(NotApplicableError, match="rank 0 does not reach"):
        pack_rooted(network, np.eye(3)[0])
