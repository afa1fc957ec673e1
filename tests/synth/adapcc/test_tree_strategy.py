"""AdapCC's strategies: trees that reach every node, no better than their bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sample_networks import named, networks

from synth.adapcc.logical_graph import node_graph, opposites
from synth.adapcc.tree_milp import Demand
from synth.adapcc.tree_strategy import plan
from synth.adapcc.two_level_strategy import Planner, nodes_of, require_size
from synth.errors import NotApplicableError
from synth.network import Link, build
from synth.networks.families import family

TENSOR_BYTES = 1 << 24


def _graph(network, *, numbers=1, both=False):
    return node_graph(network, np.arange(network.ranks), numbers=numbers, both=both)


def _leads_to_root(tree):
    for node in range(len(tree.above)):
        seen = set()
        while tree.above[node] is not None:
            assert node not in seen
            seen.add(node)
            node = tree.above[node].dst
        assert node == tree.root
    return True


@settings(max_examples=8)
@given(network=networks(most_ranks=5), count=st.integers(1, 2), root=st.sampled_from([None, 0]))
def test_trees_reach_every_node_and_shares_are_the_whole(network, count, root):
    demands = [Demand((m,), root) for m in range(count)]
    found = plan(_graph(network, numbers=count), demands, TENSOR_BYTES, 1 << 16, time_limit_s=600)
    assert sum(tree.share for tree in found.trees) == pytest.approx(1)
    assert all(_leads_to_root(tree) for tree in found.trees)
    assert root is None or all(tree.root == root for tree in found.trees)
    assert 0 < found.bound_s <= found.time_s
    assert 0 <= found.gap < 1


def test_two_trees_share_what_one_would_fill():
    # Rank 1 has two ways to the root: both together carry twice as much.
    links = [Link(1, 0, 0, 1e-9), Link(1, 2, 0, 1e-9), Link(2, 0, 0, 1e-9)]
    network = build("two ways", ["a", "b", "c"], links)
    one, two = (
        plan(
            _graph(network, numbers=count),
            [Demand((m,), 0) for m in range(count)],
            TENSOR_BYTES,
            1 << 10,
            time_limit_s=600,
        )
        for count in (1, 2)
    )
    assert one.busy_s == pytest.approx(TENSOR_BYTES * 1e-9)
    assert two.busy_s <= one.busy_s * (1 + 1e-9)


def test_where_no_tree_reaches_all_there_is_no_plan():
    network = build("apart", ["a", "b", "c"], [Link(1, 0, 0, 1e-9)])
    assert plan(_graph(network), [Demand((0,), 0)], TENSOR_BYTES, 1 << 10) is None


def test_links_pair_up_with_those_that_lead_back():
    network = named("mesh")
    back = opposites(network)
    assert (network.src[back] == network.dst).all()
    assert (back[back] == np.arange(network.links)).all()
    one_way = build("one way", ["a", "b"], [Link(0, 1, 0, 1e-9)])
    assert opposites(one_way).tolist() == [-1]
    assert _graph(one_way, both=True).edges == ()


def test_each_sub_collective_uses_links_of_its_own_ranks():
    hosts = family("switch_switch:2x2", [5e-7], [100e9, 25e9])
    node_of = nodes_of(hosts)
    if len(set(node_of.tolist())) == 2:
        graph = node_graph(hosts, node_of, numbers=2)
        for edge in graph.edges:
            assert len(edge.links) == 2
            assert all(node_of[hosts.src[link]] == edge.src for link in edge.links)
            assert all(node_of[hosts.dst[link]] == edge.dst for link in edge.links)


def test_hosts_that_do_not_hold_together_are_ranks_by_themselves():
    ring = [Link(a, (a + 1) % 4, 0, 1e-9) for a in range(4)]
    assert nodes_of(build("split", ["a", "b", "a", "b"], ring)).tolist() == [0, 1, 2, 3]
    both = ring + [Link((a + 1) % 4, a, 0, 1e-9) for a in range(4)]
    assert nodes_of(build("joined", ["a", "a", "b", "b"], both)).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["reduce", "broadcast", "all_reduce", "all_gather", "reduce_scatter"])
def test_a_plan_leads_every_rank_to_its_roots(kind):
    links = [
        Link(a, b, 1e-6, 1e-11 if a // 2 == b // 2 else 1e-10) for a in range(6) for b in range(6) if a != b
    ]
    network = build("three hosts", [f"h{rank // 2}" for rank in range(6)], links)
    planned = Planner(network, kind, 1, TENSOR_BYTES, 2, time_limit_s=600).plan()
    towards = network.transposed() if kind in ("broadcast", "all_gather") else network
    count = 6 if kind in ("all_gather", "reduce_scatter") else 2
    assert len(planned.up) == len(planned.share) == count
    assert sum(planned.share) == pytest.approx(1)
    for up in planned.up:
        assert (up < 0).sum() == 1
        root = int(np.argmax(up < 0))
        for rank in range(6):
            hops = 0
            while rank != root:
                assert towards.src[up[rank]] == rank
                rank, hops = int(towards.dst[up[rank]]), hops + 1
                assert hops < 6
    assert planned.gap < 1


def test_a_program_that_is_too_large_for_its_time_is_refused():
    network = named("mesh")
    require_size(network, 1000, 60.0)
    for flows, limit_s in ((1000, 0.1), (10**6, 3600.0)):
        with pytest.raises(NotApplicableError, match="columns for flows"):
            require_size(network, flows, limit_s)


def test_without_time_to_solve_a_chain_keeps_the_roots_port_free():
    # Through one port each, shortest paths would bring three tensors to the root one after the other.
    links = [Link(a, b, 1e-6, 1e-9, (f"{a} out", f"{b} in")) for a in range(4) for b in range(4) if a != b]
    network = build("switch", ["a", "b", "c", "d"], links)
    found = plan(_graph(network), [Demand((0,), 0)], TENSOR_BYTES, 1 << 10, time_limit_s=0.0)
    assert found.busy_s == pytest.approx(TENSOR_BYTES * 1e-9)
