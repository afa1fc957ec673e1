"""Channels against exhaustive search, the linear bound and the links of hosts."""

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, permutations

import numpy as np
import pytest
from gpu_boxes import box

from probes.paths.bandwidth import load
from probes.topology import FabricLink
from synth.nccl_graphs.capacities import capacities_of
from synth.nccl_graphs.channels import GraphChannel, candidates, packed, total_gbs, usage
from synth.nccl_graphs.planner import plan_graphs


def room(host, *, nics=(), measured=None):
    return capacities_of(host, nics, load(), measured)


def test_two_channels_are_the_best_of_all_pairs():
    host = room(box(4, links=[(0, 1), (2, 3), (0, 2)]))
    rings = [GraphChannel((0, *rest)) for rest in permutations((1, 2, 3))]
    best = max(total_gbs(host, pair) for pair in combinations_with_replacement(rings, 2))
    assert packed(host, candidates(host, between_hosts=False), channels=2).total_gbs == pytest.approx(best)


@pytest.mark.parametrize("links", [[], [(0, 1)], [(0, 1), (2, 3)], [(0, 2), (1, 3), (0, 3)]])
def test_no_set_of_channels_carries_more_than_the_bound(links):
    host = room(box(4, links=links))
    found = packed(host, candidates(host, between_hosts=False))
    assert 0 < found.total_gbs <= found.most_gbs * (1 + 1e-9)
    rings = [GraphChannel((0, *rest)) for rest in permutations((1, 2, 3))]
    for chosen in combinations_with_replacement(rings, 3):
        assert total_gbs(host, chosen) <= found.most_gbs * (1 + 1e-9)


def test_channels_are_as_fast_as_the_busiest_link_allows():
    host = room(box(8, links=[(0, 1), (2, 3)]))
    found = packed(host, candidates(host, between_hosts=False))
    busy = found.gbs * usage(host, found.channels).sum(axis=0)
    assert busy.max() == pytest.approx(1.0)


def test_a_pair_that_was_measured_slow_is_gone_around():
    every = [(a, b) for a in range(4) for b in range(a)]
    plain = box(4, links=every)
    slow = {
        (plain.gpus[0].bus_id, plain.gpus[1].bus_id): 5.0,
        (plain.gpus[1].bus_id, plain.gpus[0].bus_id): 5.0,
    }
    graphs = plan_graphs(plain, between_hosts=False, measured=slow)
    assert graphs.plain_gbs == pytest.approx(5.0)
    for channel in graphs.ring.channels:
        ring = [*channel.gpus, channel.gpus[0]]
        assert all({a, b} != {0, 1} for a, b in pairwise(ring))
    assert graphs.ring.total_gbs > 10 * graphs.plain_gbs


def test_a_measured_rate_above_the_declared_one_counts():
    plain = box(2)
    pair = {(a.bus_id, b.bus_id): 100.0 for a in plain.gpus for b in plain.gpus if a is not b}
    assert plan_graphs(plain, between_hosts=False).ring.total_gbs < 50
    assert plan_graphs(plain, between_hosts=False, measured=pair).ring.total_gbs == pytest.approx(100.0)


def test_a_switch_makes_all_orders_alike():
    host = box(4)
    fabric = tuple(FabricLink(gpu.bus_id, "nvswitch", "switch", "nvlink", 12, "test") for gpu in host.gpus)
    switched = replace(host, fabric=fabric)
    assert room(switched).alike
    assert not room(host).alike
    assert plan_graphs(switched, between_hosts=False).alike


def test_sixteen_gpus_are_ordered_by_chance_and_always_alike():
    host = room(box(16, links=[(at, (at + 5) % 16) for at in range(16)]))
    first, again = (candidates(host, between_hosts=False, seed=3) for _ in range(2))
    assert first == again
    assert all(sorted(channel.gpus) == list(range(16)) for channel in first)
    found = packed(host, first)
    # Steps of five around a ring of NVLinks: no other order has links alone.
    assert found.total_gbs > 3 * total_gbs(host, [GraphChannel(tuple(range(16)))])


def test_a_tree_leaves_by_its_second_gpu():
    host = box(4, nics=1)
    shares = room(host, nics=host.nics)
    chain = [GraphChannel((0, 1, 2, 3), 0)]
    used = usage(shares, chain, tree=True)[0]
    ways = (
        shares.into[0, 0]
        + shares.out[1, 0]
        + shares.between[0, 1]
        + shares.between[1, 2]
        + shares.between[2, 3]
    )
    assert np.allclose(used, ways)
