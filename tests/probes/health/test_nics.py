"""Network ports: the GID to use, the MTU of RoCE, and counters of two readings."""

import pytest
from hypothesis import given, strategies as st

from probes.health import NicHealth, read_ports, regrown
from probes.health.nics import roce_mtu
from tests.helpers.health_machines import make, net, place, port

LOCAL, IPV4 = "fe80:0000:0000:0000:0000:00ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001"
GLOBAL, SELF = "2001:0db8:0000:0000:0000:0000:0000:0009", "0000:0000:0000:0000:0000:ffff:a9fe:0102"
V1, V2 = "IB/RoCE v1", "RoCE v2"


@pytest.mark.parametrize(
    ("table", "index", "kind", "routable"),
    [
        ([(LOCAL, V1), (LOCAL, V2), (IPV4, V1), (IPV4, V2)], 3, V2, True),
        ([(LOCAL, V2), (GLOBAL, V2), (IPV4, V2), (IPV4, V2)], 2, V2, True),
        ([(GLOBAL, V2), (SELF, V2)], 0, V2, True),
        ([(SELF, V2), (LOCAL, V2)], 0, V2, False),
        ([(LOCAL, V1), (IPV4, V1)], 1, V1, True),
        ([], None, "", None),
    ],
)
def test_the_gid_to_use_is_of_roce_v2_and_has_an_address_that_is_routed(
    tmp_path, table, index, kind, routable
):
    changes = {port(0, f"gids/{n}"): None for n in range(5)}
    changes |= {port(0, f"gids/{n}"): gid for n, (gid, _) in enumerate(table)}
    changes |= {port(0, f"gid_attrs/types/{n}"): kind for n, (_, kind) in enumerate(table)}
    nic = read_ports("h", make(tmp_path.resolve(), changes))[0]
    assert (nic.gid_index, nic.gid_type, nic.gid_routable) == (index, kind, routable)


def test_the_tenth_entry_comes_after_the_second(tmp_path):
    changes = {port(0, f"gids/{n}"): None for n in range(5)}
    for n in (2, 10):
        changes |= {port(0, f"gids/{n}"): IPV4, port(0, f"gid_attrs/types/{n}"): V2}
    assert read_ports("h", make(tmp_path.resolve(), changes))[0].gid_index == 2


@pytest.mark.parametrize(
    ("mtu", "payload"), [(1500, 1024), (9000, 4096), (4200, 4096), (4191, 2048), (2148, 2048), (300, None)]
)
def test_the_payload_of_roce_follows_from_the_mtu_as_in_the_kernel(mtu, payload):
    assert roce_mtu(mtu) == payload


def test_an_infiniband_port_that_lost_lanes_states_its_full_speed(tmp_path):
    changes = {
        port(0, "link_layer"): "InfiniBand",
        port(0, "rate"): "100 Gb/sec (1X NDR)",
        net(0, "speed"): None,
    }
    nic = read_ports("h", make(tmp_path.resolve(), changes))[0]
    assert (nic.speed_mbit, nic.speed_most_mbit, nic.gid_type) == (100_000, 400_000, "IB")


def test_virtual_functions_are_marked_and_software_interfaces_left_out(tmp_path):
    card = place(0, "nic")
    changes = {
        f"{card}/physfn/class": "0x020000",
        "sys/devices/virtual/net/br0/type": "1",
        "sys/class/net/br0/type": "1",
    }
    nics = read_ports("h", make(tmp_path.resolve(), changes))
    assert [(nic.name, nic.virtual) for nic in nics] == [
        ("rdma0", True),
        ("rdma1", False),
        ("rdma2", False),
        ("rdma3", False),
    ]


def test_a_port_of_a_bond_is_a_port(tmp_path):
    changes = {port(0, "gid_attrs/ndevs/0"): "bond0", "sys/class/net/bond0/type": "1"}
    changes |= {"sys/class/net/bond0/operstate": "up", "sys/class/net/bond0/mtu": "9000"}
    nics = {nic.name: nic for nic in read_ports("h", make(tmp_path.resolve(), changes))}
    found = nics["bond0"]
    assert (found.rdma_device, found.bus_id, found.virtual) == ("mlx5_0", "0000:14:00.0", False)
    assert (found.state, found.rdma_mtu, found.pcie_width, found.firmware) == (
        "active",
        4096,
        16,
        "28.39.1002",
    )


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 99)),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 99)),
)
def test_growth_is_the_rise_of_each_counter_of_both_readings(before, after):
    (nic,) = regrown([NicHealth("n", counters=before)], [NicHealth("n", counters=after)], 2.0)
    assert nic.counters == after
    assert nic.seconds == 2.0
    for name in "abcd":
        rise = after[name] - before[name] if name in before and name in after else 0
        assert nic.grew.get(name, 0) == max(rise, 0)
    assert all(nic.grew.values())


def test_a_port_that_came_later_has_no_growth():
    (nic,) = regrown([], [NicHealth("n", counters={"a": 3})], 2.0)
    assert (nic.grew, nic.seconds) == ({}, 0.0)
