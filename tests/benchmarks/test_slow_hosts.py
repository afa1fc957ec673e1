"""Random populations of slow hosts: the worst is named first, and no healthy host is named."""

import numpy as np
import pytest
import slow_hosts
from hypothesis import given, settings, strategies as st


@settings(max_examples=150)
@given(st.integers(3, 16), st.integers(0, 2**32))
def test_the_worst_of_some_slow_hosts_is_named_first_and_no_healthy_one(hosts, seed):
    found = slow_hosts.outcome(slow_hosts.population(hosts, seed), 0.01, seed)
    assert found.worst_first
    assert found.alarms == 0


@settings(max_examples=60)
@given(st.integers(3, 16), st.integers(0, 2**32))
def test_no_host_is_named_where_all_are_healthy(hosts, seed):
    assert slow_hosts.outcome(slow_hosts.healthy(hosts), 0.02, seed) == slow_hosts.Outcome(True, 0, 0)


@pytest.mark.parametrize("hosts", [4, 5, 8])
def test_half_of_the_hosts_may_be_slow_by_the_same_factor(hosts):
    faulty = slow_hosts.healthy(hosts)
    faulty.sends[: hosts // 2] = faulty.receives[: hosts // 2] = 0.4
    assert slow_hosts.outcome(faulty, 0.01, 1) == slow_hosts.Outcome(True, 0, 0)


def test_where_all_hosts_are_unequal_the_slowest_is_named():
    faulty = slow_hosts.healthy(5)
    faulty.sends[:] = np.array([1.0, 0.8, 0.6, 0.5, 0.3])
    assert slow_hosts.outcome(faulty, 0.01, 1).worst_first
