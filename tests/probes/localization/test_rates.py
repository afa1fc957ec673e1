"""Rates: unequal hosts, single disturbed links, and the same links measured again."""

import numpy as np
import pytest
from drawn_examples import drawn
from faulty_profile import Faulty
from hypothesis import given, settings, strategies as st

from probes.localization import locate


@settings(max_examples=drawn(30), deadline=None)
@given(st.integers(6, 20), st.integers(0, 2**32 - 1))
def test_hosts_that_differ_by_a_hundredth_have_no_faults(hosts, seed):
    net = Faulty(hosts, seed=seed)
    able = np.exp(np.random.default_rng(seed).normal(0, 0.01, hosts))
    net.rate *= np.minimum(able[:, None], able[None, :])
    assert locate(net.profile()) == []


@pytest.mark.parametrize("flag", ["", "retested"])
def test_many_single_slow_links_are_faults_only_if_they_were_slow_alone(flag):
    net = Faulty(hosts=12)
    slow = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    for pair in slow:
        net.rate[pair] *= 0.5
        net.flags[pair] = flag
    found = {fault.parts for fault in locate(net.profile())}
    assert found == ({(f"gpu{a + 1}", f"gpu{b + 1}") for a, b in slow} if flag else set())


def test_a_disturbed_pass_of_one_link_is_no_flapping():
    net = Faulty(hosts=8)
    net.late[2, 3] = 1.15
    assert locate(net.profile()) == []


@pytest.mark.parametrize("busy", [False, True])
def test_an_unsteady_link_of_a_host_that_waits_for_cores_is_no_fault(busy):
    net = Faulty(hosts=6)
    net.late[2, 3] = 3.0
    if busy:
        net.flags[5, 2] = net.flags[2, 5] = "preempted"
    found = [(fault.kind, fault.parts) for fault in locate(net.profile())]
    assert found == ([] if busy else [("flapping", ("gpu3", "gpu4"))])


@pytest.mark.parametrize(("links", "confirmed"), [(2, False), (5, True)])
def test_a_third_of_a_hosts_links_confirms_that_it_flaps_where_no_other_link_is_unsteady(links, confirmed):
    net = Faulty(hosts=14, samples=2)
    for to in range(links):
        net.late[8, to] = 6.4
    [fault] = locate(net.profile())
    assert (fault.kind, fault.parts, fault.confirmed) == ("flapping", ("gpu9",), confirmed)
