from __future__ import annotations

import networkx
import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.networks.families import family, is_family

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
    ("switch_switch:8x4", 32, 32 * 7 + 32 * 3),
    ("dragonfly:5x4", 20, 80),
    ("dragonfly:9x8", 72, 576),
    ("dragonfly:33x16", 528, 8976),
    ("dragonfly:2x2", 4, 6),
    ("fat_tree:4", 16, 240),
    ("fat_tree:4x2/2", 8, 56),
    ("mesh:1x5", 5, 8),
    ("rail:4x8", 32, 992),
    ("rail:2x3x2", 12, 132),
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


@pytest.mark.parametrize("spec", ["Torus:4x4", "TORUS:4X4"])
def test_a_name_may_be_written_in_capitals(spec):
    assert is_family(spec)
    assert family(spec, [0], [1e9]).links == family("torus:4x4", [0], [1e9]).links


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
        ("ring:", [0], [1e9], "such as ring:8"),
        ("hypercube:x", [0], [1e9], "such as hypercube:8"),
        ("ring:4x4", [0], [1e9], "expected 1 size, found 2"),
        ("ring:1", [0], [1e9], "at least two"),
        ("hypercube:12", [0], [1e9], "2, 4, 8"),
        ("rfs:2x4", [0], [1e9], "expected 3 sizes"),
        ("mesh:4x4", [0], [1e9, 2e9, 3e9], "bandwidth"),
        ("mesh:4x4", [0, 0, 0], [1e9], "alpha"),
        ("dragonfly:9", [0], [1e9], "expected 2 sizes"),
        ("fat_tree:5", [0], [1e9], "even k"),
        ("fat_tree:4x4/x", [0], [1e9], "expected sizes"),
        ("fat_tree:4x4", [0], [1e9, 1e9], "expected 1 value"),
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


@pytest.mark.parametrize(("groups", "ranks"), [(5, 4), (9, 8), (4, 8), (7, 2), (33, 16)])
def test_dragonfly_groups_are_joined_once_and_evenly(groups, ranks):
    network = family(f"dragonfly:{groups}x{ranks}", [1e-6, 2e-6], [400e9, 200e9])
    between = network.src // ranks != network.dst // ranks
    pairs = set(
        zip((network.src // ranks)[between].tolist(), (network.dst // ranks)[between].tolist(), strict=True)
    )
    assert len(pairs) == between.sum() == groups * (groups - 1)
    ends = set(zip(network.src[between].tolist(), network.dst[between].tolist(), strict=True))
    assert ends == {(b, a) for a, b in ends}
    per_rank = np.bincount(network.src[between], minlength=network.ranks)
    assert per_rank.max() - per_rank.min() <= 1
    assert set(network.alpha_s[between].tolist()) == {2e-6}
    assert np.allclose(1 / network.beta_s_per_byte[~between], 400e9)


@pytest.mark.parametrize(
    ("spec", "shift_is_free"), [("fat_tree:4", True), ("fat_tree:4x4x2", True), ("fat_tree:4x4/2", False)]
)
def test_shifts_meet_nowhere_in_a_fat_tree_that_is_not_oversubscribed(spec, shift_is_free):
    network = family(spec, [0.0], [1e9])
    most = 0
    for shift in range(1, network.ranks):
        links = np.flatnonzero((network.dst - network.src) % network.ranks == shift)
        used = np.concatenate([network.ports_of(link) for link in links])
        most = max(most, int(np.bincount(used).max()))
    assert (most == 1) == shift_is_free


def test_a_leaf_has_fewer_uplinks_than_ranks_where_it_is_oversubscribed():
    network = family("fat_tree:4x3/2", [0.0], [1e9])
    for leaf in range(3):
        assert sum(port.startswith(f"switch 0.{leaf} up") for port in network.ports) == 2


def test_unwinding_replaces_a_switch_by_slower_links():
    network = family("switch:6", [1e-6], [120e9], unwind=[2])
    assert not network.ports
    ends = set(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    assert ends == {(rank, (rank + step) % 6) for rank in range(6) for step in (1, 2)}
    assert np.allclose(1 / network.beta_s_per_byte, 60e9)
    assert network.hosts == family("switch:6", [1e-6], [120e9]).hosts


def test_unwinding_takes_a_degree_for_each_switch_and_never_more_than_there_are_peers():
    network = family("switch_switch:8x4", [0.0], [300e9, 25e9], unwind=[7, 1])
    assert network.links == 32 * 7 + 32
    assert family("rfs:2x4x2", [0.0], [1e9], unwind=[5]).links == 16 + 16 * 3 + 16


@pytest.mark.parametrize(
    ("spec", "unwind"), [("mesh:4x4", [1]), ("switch:4", [0]), ("rfs:2x4x2", [1, 1]), ("fat_tree:4", [1])]
)
def test_refuses_to_unwind_what_is_no_switch(spec, unwind):
    with pytest.raises(UsageError, match="unwind"):
        family(spec, [0.0], [1e9], unwind=unwind)


@pytest.mark.parametrize(
    "spec",
    [
        "ring:99999999999",
        "ring:" + "9" * 5000,
        "mesh:100000x100000",
        "mesh:" + "x".join(["2"] * 5000),
        "hypercube:4294967296",
        "fc:5000",
        "switch:9000",
        "switch:65536",
        "fat_tree:90x90",
        "dragonfly:300x300",
        "fat_tree:400",
        "fat_tree:99999999999",
        "fat_tree:4x4/" + "9" * 5000,
        "ring:²",
        "ring:٣",
        "ring:1_0",
        "ring:-4",
        "ring:",
        "ring:1e3",
    ],
)
def test_a_network_is_bounded_before_it_is_made(spec):
    """A large one of equivalent ranks is refused when its links are asked for."""
    with pytest.raises(UsageError, match="network"):
        _ = family(spec, [1e-6], [1e9]).src


def test_a_hierarchy_has_any_kinds():
    network = family("fc_line_ring:3x2x4", [1e-6], [3e9, 2e9, 1e9])
    assert network.ranks == 24
    # Two peers in a full connection, one on a line of two, two on a ring.
    assert (np.bincount(network.src) == 5).all()
    assert len(set(network.beta_s_per_byte.tolist())) == 3
    assert family("ring_fc_switch:2x4x2", [0], [1e9]).links == family("rfs:2x4x2", [0], [1e9]).links
    with pytest.raises(UsageError, match="unknown family"):
        family("ring_torus:2x2", [0], [1e9])
