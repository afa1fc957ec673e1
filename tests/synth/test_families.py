from __future__ import annotations

import networkx
import numpy as np
import pytest

from probes.errors import UsageError
from synth.families import family

SHAPES = [
    ("ring:2", 2, 2),
    ("ring:5", 5, 10),
    ("mesh:10x10", 100, 360),
    ("mesh:3x3x3", 27, 108),
    ("torus:4x4", 16, 64),
    ("torus:2x3", 6, 18),
    ("torus:5x5x5", 125, 750),
    ("hypercube:16", 16, 64),
    ("fully_connected:6", 6, 30),
    ("fc:6", 6, 30),
    ("switch:6", 6, 30),
    ("rfs:2x4x4", 32, 32 + 3 * 32 + 3 * 32),
]


@pytest.mark.parametrize(("spec", "ranks", "links"), SHAPES)
def test_shape_and_strong_connection(spec, ranks, links):
    network = family(spec, [1e-6], [1e9])
    assert (network.ranks, network.links) == (ranks, links)
    assert network.problems() == []
    graph = networkx.DiGraph(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert networkx.is_strongly_connected(graph)


@pytest.mark.parametrize(
    ("spec", "peer"),
    [
        ("mesh:4x5", networkx.grid_graph((4, 5))),
        ("torus:4x5", networkx.grid_graph((4, 5), periodic=True)),
        ("hypercube:16", networkx.hypercube_graph(4)),
        ("ring:7", networkx.cycle_graph(7)),
    ],
)
def test_agrees_with_networkx(spec, peer):
    network = family(spec, [0.0], [1e9])
    graph = networkx.Graph(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert networkx.could_be_isomorphic(graph, peer)
    assert networkx.is_isomorphic(graph, peer)


def test_each_dimension_has_its_own_cost():
    network = family("rfs:2x4x3", [1e-6, 2e-6, 3e-6], [200e9, 100e9, 50e9])
    for link in range(network.links):
        distance = abs(int(network.dst[link]) - int(network.src[link]))
        axis = (
            0
            if distance == 1 and network.src[link] // 2 == network.dst[link] // 2
            else 1
            if distance < 8
            else 2
        )
        assert network.alpha_s[link] == pytest.approx((axis + 1) * 1e-6)
        assert 1 / network.beta_s_per_byte[link] == pytest.approx([200e9, 100e9, 50e9][axis])


def test_a_switch_is_one_egress_and_one_ingress_port_a_rank():
    network = family("switch:4", [0.0], [1e9])
    assert len(network.ports) == 8
    start, links = network.port_links
    for port in range(8):
        used = links[start[port] : start[port + 1]]
        ends = network.src[used] if "egress" in network.ports[port] else network.dst[used]
        assert len(used) == 3
        assert len(set(ends.tolist())) == 1


def test_ranks_below_a_switch_share_a_host():
    network = family("rfs:2x2x3", [0.0], [1e9])
    assert network.hosts == tuple(f"n{rank // 4}" for rank in range(12))
    assert len(set(family("mesh:2x2", [0.0], [1e9]).hosts)) == 4


@pytest.mark.parametrize(
    ("spec", "alpha", "bandwidth", "words"),
    [
        ("moebius:4", [0], [1e9], "unknown family"),
        ("mesh:", [0], [1e9], "expected sizes"),
        ("mesh:4xq", [0], [1e9], "expected sizes"),
        ("mesh:0x4", [0], [1e9], "at least two"),
        ("ring:1", [0], [1e9], "at least two"),
        ("hypercube:12", [0], [1e9], "2, 4, 8"),
        ("rfs:2x4", [0], [1e9], "expected 3 sizes"),
        ("mesh:4x4", [0], [1e9, 2e9, 3e9], "--bandwidth"),
        ("mesh:4x4", [0, 0, 0], [1e9], "--alpha"),
        ("switch:9000", [0], [1e9], "more than"),
    ],
)
def test_refuses_and_says_why(spec, alpha, bandwidth, words):
    with pytest.raises(UsageError, match=words):
        family(spec, alpha, bandwidth)


def test_links_of_one_pair_and_direction_are_not_doubled():
    for spec in ("torus:2x2", "ring:2", "mesh:2x2", "hypercube:4"):
        network = family(spec, [0.0], [1e9])
        pairs = np.stack((network.src, network.dst), axis=1)
        assert len(np.unique(pairs, axis=0)) == network.links
