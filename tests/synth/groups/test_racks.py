"""Racks and what is slow in them, found from ports, hosts and bandwidth."""

import pytest
from racked_networks import racked

from synth.groups.racks import find_racks, slow_parts
from synth.networks.dgx import pod
from synth.networks.families import family


@pytest.mark.parametrize("trunks", [True, False])
@pytest.mark.parametrize("sizes", [[4, 4], [2, 2, 2], [5, 3, 2], [6]])
def test_racks_by_ports_or_by_bandwidth(sizes, trunks):
    racks, remarks = find_racks(racked(sizes, trunks=trunks))
    assert [len(rack) for rack in racks] == sizes
    assert remarks == ()


def test_ports_tell_racks_where_bandwidth_does_not():
    network = family("fat_tree:4x2/4", [1e-6], [1e9])
    assert find_racks(network)[0] == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_hosts_are_racks_where_links_within_are_faster():
    racks, _ = find_racks(pod("dgx-a100:2", hold_alpha=False))
    assert [len(rack) for rack in racks] == [8, 8]


def test_a_switch_is_one_rack():
    assert find_racks(family("switch:5", [0.0], [1e9]))[0] == (tuple(range(5)),)


def test_a_rank_that_is_slow_to_all_is_placed_by_latency_or_with_a_remark():
    racks, remarks = find_racks(racked([5, 4], slow_ranks=[5], trunks=False, reach_s=20e-6))
    assert racks == ((0, 1, 2, 3, 4), (5, 6, 7, 8)) and remarks == ()
    racks, remarks = find_racks(racked([5, 4], slow_ranks=[4], trunks=False))
    assert racks == ((0, 1, 2, 3, 4), (5, 6, 7, 8)) and "rank 4" in remarks[0]


@pytest.mark.parametrize("slow_ranks, slow_racks", [([], []), ([3], []), ([], [2]), ([0, 11], [1])])
def test_what_is_slow(slow_ranks, slow_racks):
    network = racked([4] * 4, slow_ranks=slow_ranks, slow_racks=slow_racks)
    layout = slow_parts(network, find_racks(network)[0])
    assert (list(layout.slow_ranks), list(layout.slow_racks)) == (slow_ranks, slow_racks)


def test_of_a_slow_pair_the_other_racks_tell_which_it_is():
    network = racked([2, 4], slow_ranks=[1])
    assert slow_parts(network, ((0, 1), (2, 3, 4, 5))).slow_ranks == (1,)
