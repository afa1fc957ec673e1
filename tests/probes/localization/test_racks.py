"""Racks from the plan, from latencies, from trunks, and from what reaches what."""

import itertools

import numpy as np
import pytest
from drawn_examples import drawn
from faulty_profile import Faulty
from hypothesis import given, settings, strategies as st

from probes.link_costs import SharedPort
from probes.localization.latency import one_a_pair
from probes.localization.links import tables_of
from probes.localization.model import FabricPlan
from probes.localization.racks import by_latency, by_plan, by_ports, by_reach, moved


def test_a_host_that_the_plan_does_not_name_has_no_rack():
    racks = by_plan(FabricPlan({"A": ("a", "b"), "B": ("c",)}), ["c", "a", "x", "b"])
    assert racks.of_host.tolist() == [1, 0, -1, 0]
    assert racks.names == ("A", "B")


def test_a_trunk_divides_its_hosts():
    port = SharedPort("trunk b,a → c", (0,), "measured")
    racks = by_ports([port, SharedPort("a NIC egress", (0,), "host")], ["a", "b", "c", "d"])
    assert racks is not None
    assert racks.of_host.tolist() == [0, 0, 1, -1]
    assert racks.names == ("a,b", "c")


def test_without_trunks_ports_divide_nothing():
    assert by_ports([SharedPort("a NIC egress", (0,), "host")], ["a", "b"]) is None


@settings(max_examples=drawn(40), deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(0, 2**32 - 1), st.booleans())
def test_latencies_show_racks_also_beside_a_far_host(sizes, seed, far):
    net = Faulty(hosts=sum(sizes), seed=seed)
    ends = np.cumsum([0, *sizes])
    racks = [list(range(a, b)) for a, b in itertools.pairwise(ends.tolist())]
    net.racks(*racks, extra_s=8e-6)
    if far:
        net.alpha_s[net.of(0)] += 1e-3
    once = one_a_pair(tables_of(net.profile())[0])
    found = by_latency(once, once.alpha, net.names())
    told = {key for key in found.key() if key} if found is not None else set()
    expected = [frozenset(rack) - ({0} if far else set()) for rack in racks]
    if sum(len(rack) > 1 for rack in expected) > 1:
        assert told == {rack for rack in expected if len(rack) > 1}


def test_equal_latencies_show_no_racks():
    once = one_a_pair(tables_of(Faulty(hosts=8).profile())[0])
    assert by_latency(once, once.alpha, Faulty(hosts=8).names()) is None


def test_what_reaches_each_other_at_full_rate_is_a_group():
    table = tables_of(Faulty(hosts=5).profile())[0]
    fast = (table.src_host < 2) == (table.dst_host < 2)
    found = by_reach(table, fast, Faulty(hosts=5).names())
    assert found is not None and found.of_host.tolist() == [0, 0, 1, 1, 1]
    assert by_reach(table, np.ones(len(table), dtype=np.bool_), Faulty(hosts=5).names()) is None


@pytest.mark.parametrize("extra_s", [0.0, 1e-3])
def test_a_host_moves_to_the_rack_of_its_latencies_and_a_far_one_stays(extra_s):
    net = Faulty(hosts=9)
    net.racks([0, 1, 2], [3, 4, 5], [6, 7, 8])
    net.alpha_s[net.of(7)] += extra_s
    names = net.names()
    plan = FabricPlan({"A": (*names[:3], names[8]), "B": tuple(names[3:6]), "C": tuple(names[6:8])})
    once = one_a_pair(tables_of(net.profile())[0])
    ends = np.array([once.src_host, once.dst_host])
    classes = np.zeros(len(once), dtype=np.int64)
    assert moved(by_plan(plan, names), ends, once.alpha, classes, once.jitter) == {8: 2}


def test_a_host_moves_although_latencies_within_racks_waited_for_cores():
    net = Faulty(hosts=8)
    net.racks([0, 1, 2, 3], [4, 5, 6, 7], extra_s=3e-3)
    chance = np.random.default_rng(5)
    near = net.alpha_s < 1e-3
    waits = chance.uniform(1.0, 10.0, near.shape)
    net.alpha_s[near] *= np.minimum(waits, waits.T)[near]
    net.jitter[near] = 20.0
    names = net.names()
    plan = FabricPlan({"A": (*names[:4], names[6]), "B": (names[4], names[5], names[7])})
    once = one_a_pair(tables_of(net.profile())[0])
    ends = np.array([once.src_host, once.dst_host])
    classes = np.zeros(len(once), dtype=np.int64)
    assert moved(by_plan(plan, names), ends, once.alpha, classes, once.jitter) == {6: 1}
