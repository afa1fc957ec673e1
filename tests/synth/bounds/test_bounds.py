"""Bounds: known optima by formula, and the agreement of max-flow cuts with networkx and brute force."""

from __future__ import annotations

from itertools import combinations, permutations

import networkx
import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings
from sample_networks import named, networks

from synth.bounds.cuts import candidate_cuts, cut_around, distinct_cuts, gates
from synth.bounds.lower_bounds import bounds
from synth.bounds.min_cut import slowest_sets
from synth.collective import collective
from synth.network import Link, build
from synth.networks.families import family

GIB = 2.0**30


def _largest(network, kind, chunk_bytes, chunks=1, **options):
    return bounds(network, collective(kind, network.ranks, chunks), chunk_bytes, **options)[0]


@pytest.mark.parametrize(
    ("spec", "steps"),
    [("mesh:4x4", 8), ("mesh:10x10", 50), ("hypercube:64", 11), ("torus:5x5x5", 21)],
)
def test_ingress_of_an_all_gather_counts_whole_chunks_and_the_first_stall(spec, steps):
    network = family(spec, [5e-7], [50 * GIB])
    hold_s = 2**20 / (50 * GIB)
    bound = _largest(network, "all_gather", 1 << 20)
    assert bound.name.startswith("ingress of rank")
    # After its own chunk a neighbour has nothing new until a first chunk has travelled to it.
    assert bound.time_s == pytest.approx(steps * hold_s + 2 * 5e-7, rel=1e-9)


def test_tacos_model_counts_alpha_with_every_chunk():
    network = family("mesh:10x10", [5e-7], [50 * GIB], hold_alpha=True)
    assert _largest(network, "all_gather", 1 << 20).time_s == pytest.approx(1001.56e-6, rel=1e-5)


def test_all_reduce_on_a_mesh_is_bounded_by_counting():
    network = family("mesh:10x10", [5e-7], [50 * GIB])
    bound = _largest(network, "all_reduce", (256 << 20) // 100, chunks=100, fluid=True)
    assert bound.name == "total traffic"
    assert bound.time_s == pytest.approx(2.750e-3, rel=1e-3)


def test_hosts_behind_a_switch_are_a_cut():
    network = family("rfs:2x4x4", [5e-7], [200e9, 100e9, 50e9])
    bound = _largest(network, "all_gather", 1 << 20)
    assert bound.name == "traffic into the host of ranks 0–7"
    # Three slots of the switch bring 24 chunks; of the last eight a rank gets one at once, three over the
    # ring and three from its clique in a fourth slot, at whose end the switch could bring one more.
    assert bound.time_s == pytest.approx((24 / 8 + 1) * 2**20 / 50e9 + 5e-7, rel=1e-9)


def test_reduce_scatter_is_all_gather_turned_round():
    links = [
        Link(0, 1, 0, 1e-9),
        Link(1, 0, 0, 5e-9),
        Link(1, 2, 0, 1e-9),
        Link(2, 0, 0, 2e-9),
        Link(2, 1, 0, 1e-9),
    ]
    network = build("lopsided", ["a", "b", "c"], links)
    scatter, gather = (
        _largest(network, "reduce_scatter", 1000),
        _largest(network.transposed(), "all_gather", 1000),
    )
    assert scatter.time_s == gather.time_s
    turned = {"ingress": "egress", "egress": "ingress", "latency": "latency"}
    assert scatter.name.split()[0] == turned[gather.name.split()[0]]


def test_a_broadcast_waits_for_its_farthest_rank():
    network = family("mesh:5x5", [1e-6], [1e9])
    assert _largest(network, "broadcast", 1000).name == "latency"
    assert _largest(network, "broadcast", 1000).time_s == pytest.approx(8 * 2e-6)


def test_one_rank_needs_no_time():
    from synth.network import Network

    alone: Network = build("alone", ["a"], [])
    assert _largest(alone, "all_reduce", 1000).time_s == 0


def test_what_cannot_be_reached_takes_for_ever():
    network = build("cut", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    assert _largest(network, "all_gather", 1000).time_s == np.inf


@settings(max_examples=drawn(60))
@given(networks(most_ranks=6))
def test_max_flow_finds_the_slowest_set_among_all(network):
    supply = np.full(network.ranks, 1000.0)
    slowest_s = 0.0
    for size in range(1, network.ranks):
        for members in combinations(range(network.ranks), size):
            inside = np.isin(np.arange(network.ranks), members)
            rate = gates(network, cut_around(network, inside, "", "")).bytes_per_s
            slowest_s = max(slowest_s, (~inside).sum() * 1000.0 / rate)
    found_s = 0.0
    for inside in slowest_sets(network, supply, 0.0):
        rate = gates(network, cut_around(network, inside, "", "")).bytes_per_s
        found_s = max(found_s, (~inside).sum() * 1000.0 / rate)
    if len(network.ports) == 0:
        assert found_s == pytest.approx(slowest_s, rel=1e-4)
    else:
        # Links with several ports are looser in the flow network than in a cut: never above the truth.
        assert found_s <= slowest_s * (1 + 1e-6)


@settings(max_examples=drawn(40))
@given(networks(most_ranks=6))
def test_a_fluid_broadcast_is_at_least_bytes_over_the_least_max_flow(network):
    if network.ports:
        return
    graph = networkx.DiGraph()
    for link in range(network.links):
        src, dst = int(network.src[link]), int(network.dst[link])
        before = graph.get_edge_data(src, dst, {"capacity": 0.0})["capacity"]
        graph.add_edge(src, dst, capacity=before + float(round(1 / network.beta_s_per_byte[link])))
    least = min(networkx.maximum_flow_value(graph, 0, rank) for rank in range(1, network.ranks))
    bound = _largest(network, "broadcast", 1 << 20, fluid=True)
    assert bound.time_s >= (1 << 20) / least * (1 - 1e-4)


def test_mixed_costs_agree_with_the_named_networks():
    for name in ("uneven mesh", "ring, clique, switch"):
        found = bounds(named(name), collective("all_gather", named(name).ranks), 1 << 20)
        assert found[0].time_s == max(bound.time_s for bound in found)
        assert {"latency", "ingress", "egress"} <= {bound.name.split()[0] for bound in found}


def _racks(per_rack, racks, beta_s_per_byte):
    """Racks of hosts, links between all; those between racks share a trunk up and a trunk down."""
    links = []
    for src, dst in permutations(range(per_rack * racks), 2):
        ports = (f"trunk {src // per_rack} →", f"trunk → {dst // per_rack}")
        far = src // per_rack != dst // per_rack
        links.append(Link(src, dst, 1e-4, beta_s_per_byte[far], ports if far else ()))
    return build("racks", [f"h{rank}" for rank in range(per_rack * racks)], links)


def test_two_racks_are_parted_by_the_trunk_between_them():
    network = _racks(2, 2, (8 / 100e6, 8 / 50e6))
    for fluid in (False, True):
        found = bounds(network, collective("all_reduce", 4, 4), 2 << 20, fluid=fluid)
        # A whole chunk crosses the trunk only when its rack has summed it.
        before_s = 0.0 if fluid else (2 << 20) * 8 / 100e6
        assert found[0].time_s == pytest.approx((8 << 20) * 8 / 50e6 + before_s, rel=1e-3)
        assert {"traffic into ranks 0–1", "partition into 2 clusters"} <= {bound.name for bound in found}


def test_trunks_part_racks_though_every_link_alone_is_as_fast():
    network = _racks(4, 4, (8e-8, 8e-8))
    found = bounds(network, collective("all_reduce", 16, 16), 1 << 20)
    assert found[0].name == "partition into 4 clusters"
    # 2 (4 − 1) crossings of 16 MiB over four trunks.
    assert found[0].time_s == pytest.approx(6 * (16 << 20) * 8e-8 / 4, rel=1e-3)


def test_the_chunks_that_cross_last_still_go_to_every_rank_of_a_host():
    network = family("switch_switch:4x4", [5e-7], [200e9, 50e9])
    bound = _largest(network, "all_gather", 1 << 20)
    assert bound.name.startswith("traffic into the host")
    # Four chunks arrive at the end of the third slot, and each rank needs three of them over one port.
    assert bound.time_s == pytest.approx(3 * 2**20 / 50e9 + 5e-7 + 3 * 2**20 / 200e9 + 5e-7, rel=1e-9)


def test_a_wavefront_sees_the_alpha_before_a_bottleneck():
    links = [Link(0, 1, 1e-3, 1e-9), Link(1, 2, 1e-3, 1e-9), Link(2, 3, 1e-3, 1e-6)]
    network = build(
        "chain", ["a", "b", "c", "d"], [*links, *(Link(each.dst, each.src, 0, 1e-9) for each in links)]
    )
    found = bounds(network, collective("broadcast", 4, 10), 1000)
    assert found[0].name == "wavefront"
    assert found[0].time_s == pytest.approx(3e-3 + 2e-6 + 10e-3)


@pytest.mark.parametrize("spec", ["torus:3x4", "dragonfly:5x4", "fat_tree:4x4/2"])
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
def test_one_cut_of_each_orbit_proves_what_all_of_them_do(spec, kind, monkeypatch):
    network = family(spec, [1e-6], [4e10, 2e10] if spec.startswith("dragonfly") else [4e10])
    shape = collective(kind, network.ranks, network.ranks if kind == "all_reduce" else 1)
    few = list(distinct_cuts(network))
    assert len(few) < len(list(candidate_cuts(network)))
    proven = bounds(network, shape, 1 << 14, fluid=True)[0].time_s
    monkeypatch.setattr("synth.bounds.multicast.distinct_cuts", candidate_cuts)
    assert bounds(network, shape, 1 << 14, fluid=True)[0].time_s == pytest.approx(proven)
