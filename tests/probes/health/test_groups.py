"""Groups of alike hosts: what counts makes another group, what varies does not, and merging has no order."""

import random
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given, strategies as st

from probes.health import (
    GpuHealth,
    HealthGroups,
    HostHealth,
    NicHealth,
    cluster_health,
    differences,
    group_of,
    host_problems,
    merged_groups,
)

NIC = NicHealth("ib0", rdma_device="mlx5_0", board="MT_1", counters={"rx": 5})
HOST = HostHealth("a", alike={"kernel": "6.8"}, nics=(NIC,), gpus=(GpuHealth("0000:1b:00.0", name="H100"),))


def gathered(hosts):
    return cluster_health(reduce(merged_groups, [group_of(at, host) for at, host in enumerate(hosts)]))


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, 1),
        ({"nics": (replace(NIC, counters={"rx": 6}),)}, 1),
        ({"gpus": (replace(HOST.gpus[0], temperature_c=60),)}, 1),
        ({"alike": {"kernel": "5.15"}}, 2),
        ({"gpus": (replace(HOST.gpus[0], bus_id="0000:2b:00.0"),)}, 2),
        ({"interface": "eth1"}, 2),
        ({"unread": {"acs": "root"}}, 2),
    ],
)
def test_what_counts_makes_another_group_and_what_varies_does_not(changes, groups):
    assert len(gathered([HOST, replace(HOST, host="b", **changes)]).hosts) == groups


def test_each_host_keeps_its_own_problems():
    grown = replace(NIC, grew={"symbol_error": 900}, counters={"symbol_error": 1000}, seconds=5.0)
    sick = [replace(HOST, host=name, nics=(grown,)) for name in ("b", "d")]
    found = gathered([HOST, sick[0], replace(HOST, host="c"), sick[1]])
    told = {one.host: len(host_problems(one)) > len(host_problems(HOST)) for one in found.every()}
    assert told == {"a": False, "b": True, "c": False, "d": True}


@given(st.lists(st.sampled_from(["6.8", "5.15", "6.1"]), min_size=3, max_size=40), st.randoms())
def test_hosts_merge_in_any_order_and_differ_as_before(kernels, chance: random.Random):
    hosts = [replace(HOST, host=f"n{at:02}", alike={"kernel": kernel}) for at, kernel in enumerate(kernels)]
    parts = [group_of(at, host) for at, host in enumerate(hosts)]
    expected = gathered(hosts)
    chance.shuffle(parts)
    while len(parts) > 1:
        first, second = parts.pop(), parts.pop(0)
        parts.insert(chance.randrange(len(parts) + 1), merged_groups(first, second))
    found = cluster_health(parts[0])
    assert found == expected
    assert len(found.hosts) == len(set(kernels))
    assert differences(list(found.every())) == differences(hosts)


def test_nothing_gathered_is_nothing():
    assert cluster_health(HealthGroups(), [("a", "no route")]).missing == {"a": "no route"}
