import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from machine_changes import recorded

from probes.health import (
    HostHealth,
    NicHealth,
    default_interface,
    environment,
    nic_of_gpus,
    source_file,
)
from probes.topology import Gpu, Host, Nic, PciDevice


def values(host, interface="", **known):
    found = environment(host, HostHealth(host.name, **known), interface)
    assert all(reason for _, reason in found.values())
    return {name: value for name, (value, _) in found.items()}


def over_tcp(name, *, alone=False):
    """Return the variables for an interface; Open MPI uses it for messages only without RDMA ports."""
    links = {"OMPI_MCA_btl_tcp_links": "2"} if alone else {}
    return links | {
        "NCCL_SOCKET_IFNAME": f"={name}",
        "GLOO_SOCKET_IFNAME": name,
        "OMPI_MCA_btl_tcp_if_include": name,
        "OMPI_MCA_oob_tcp_if_include": name,
        "FI_TCP_IFACE": name,
    }


def host_of(name):
    (host,) = recorded(name).hosts
    return host


SEVEN = "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1"


def test_a_dgx_uses_the_infiniband_ports_that_are_up():
    """The port of GPU 7 is down, so there is no rail for each GPU; bond0 and ens0 may both carry TCP."""
    host = host_of("linux-nvidia-dgxa100")
    assert values(host) == {"NCCL_IB_HCA": f"={SEVEN}", "UCX_NET_DEVICES": SEVEN}
    assert values(host, "bond0") == {
        "NCCL_IB_HCA": f"={SEVEN}",
        "UCX_NET_DEVICES": SEVEN,
        **over_tcp("bond0"),
    }


def roce(index, count=8, kind="RoCE v2"):
    return tuple(
        NicHealth(f"eth{n}", f"mlx5_{n}", 1, link_layer="Ethernet", gid_index=index, gid_type=kind)
        for n in range(count)
    )


def test_a_host_of_rails_over_ethernet_states_the_index_of_the_address():
    ports = ",".join(f"mlx5_{n}:1" for n in range(8))
    host = host_of("linux-supermicro-mi300x")
    rails = {"NCCL_IB_HCA": f"={ports}", "NCCL_CROSS_NIC": "0", "UCX_NET_DEVICES": ports}
    assert values(host) == rails
    assert values(host, nics=roce(3)) == {**rails, "NCCL_IB_GID_INDEX": "3", "UCX_IB_GID_INDEX": "3"}


@pytest.mark.parametrize(
    "nics", [roce(3, 7), (*roce(3, 7), *roce(5)[7:]), roce(1, kind="IB/RoCE v1"), roce(None)]
)
def test_an_index_that_not_all_ports_share_is_not_stated(nics):
    found = values(host_of("linux-supermicro-mi300x"), nics=nics)
    assert not {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX"} & set(found)


def test_infiniband_needs_no_index():
    nics = (NicHealth("ib0", "mlx5_0", 1, link_layer="InfiniBand", gid_index=0, gid_type="IB"),)
    assert "NCCL_IB_GID_INDEX" not in values(host_of("linux-hpe-ibdown"), nics=nics)


def test_a_guest_uses_gpudirect_though_it_is_shown_no_switch():
    """The second port of the card is down, and eth0 or eth1 may carry TCP."""
    host = host_of("linux-hyperv-h100")
    assert values(host) == {"NCCL_IB_HCA": "=mlx5_0:1", "UCX_NET_DEVICES": "mlx5_0:1"}
    assert values(host, "eth0", virtual_machine="microsoft") == {
        "NCCL_IB_HCA": "=mlx5_0:1",
        "NCCL_NET_GDR_LEVEL": "SYS",
        "NCCL_IB_PCI_RELAXED_ORDERING": "1",
        "UCX_NET_DEVICES": "mlx5_0:1",
        **over_tcp("eth0"),
    }


def test_a_guest_whose_card_refuses_relaxed_ordering_does_not_demand_it():
    nics = (NicHealth("mlx5_0", "mlx5_0", 1, link_layer="InfiniBand", relaxed_ordering=False),)
    found = values(host_of("linux-hyperv-h100"), nics=nics, virtual_machine="microsoft")
    assert "NCCL_IB_PCI_RELAXED_ORDERING" not in found


def test_a_port_that_polls_is_not_used():
    assert values(host_of("linux-hpe-ibdown")) == {
        "NCCL_IB_HCA": "=mlx5_0:1",
        "UCX_NET_DEVICES": "mlx5_0:1",
        **over_tcp("eno1"),
    }


def test_a_host_without_rdma_names_its_interface_alone():
    assert values(host_of("linux-kvm-a100"), virtual_machine="kvm") == over_tcp("ens12", alone=True)


def near(gpudirect):
    """A host whose GPU and port are below one host bridge."""
    pci = (
        PciDevice("0000:01:00.0", "sysfs", root="pci0000:00", numa=0),
        PciDevice("0000:02:00.0", "sysfs", root="pci0000:00", numa=0),
    )
    gpu = Gpu("0000:01:00.0", "nvml", index=0, vendor="nvidia", numa=0, gpudirect=gpudirect)
    nic = Nic("ib0", "sysfs", physical=True, bus_id="0000:02:00.0", state="up", rdma_device="mlx5_0",
              link_layer="InfiniBand", port=1, numa=0, gpudirect=gpudirect)  # fmt: skip
    return Host("box", "sysfs", pci=pci, gpus=(gpu,), nics=(nic,))


@pytest.mark.parametrize(("gpudirect", "level"), [(True, "PHB"), (None, None), (False, None)])
def test_the_distance_of_gpudirect_is_stated_only_where_it_works(gpudirect, level):
    assert values(near(gpudirect)).get("NCCL_NET_GDR_LEVEL") == level


def test_a_port_that_two_gpus_share_is_named_once():
    host = near(None)
    two = replace(host, gpus=(*host.gpus, replace(host.gpus[0], bus_id="0000:03:00.0", index=1)))
    found = values(two)
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert "NCCL_CROSS_NIC" not in found


def test_ports_of_one_link_layer_are_used():
    """A job cannot mix InfiniBand and RoCE, so the layer with more bandwidth is taken."""
    host = host_of("linux-supermicro-mi300x")
    nics = tuple(
        replace(nic, link_layer="InfiniBand") if nic.rdma_device == "mlx5_0" else nic for nic in host.nics
    )
    assert values(replace(host, nics=nics))["NCCL_IB_HCA"] == "=" + ",".join(
        f"mlx5_{n}:1" for n in range(1, 8)
    )


def test_each_gpu_has_the_nearest_port_that_is_up():
    host = host_of("linux-nvidia-dgxa100")
    found = {bus_id: nic.rdma_device for bus_id, nic in nic_of_gpus(host).items()}
    assert found["0000:13:00.0"] == "mlx5_0"
    assert found["0000:73:00.0"] == "mlx5_6"
    assert found["0000:75:00.0"] in SEVEN
    assert nic_of_gpus(host_of("linux-kvm-a100")) == {}


def test_an_interface_with_an_address_is_taken_before_others():
    nics = (
        Nic("eno1", "sysfs", physical=True, state="up"),
        Nic("bond0", "sysfs", physical=False, state="up", addresses=("10.0.0.7", "fe80::1")),
        Nic("docker0", "sysfs", physical=False, state="up", addresses=("172.17.0.1",)),
        Nic("ib0", "sysfs", physical=True, state="up", addresses=("10.1.0.7",), link_layer="InfiniBand"),
    )
    assert values(Host("box", "sysfs", nics=nics)) == over_tcp("bond0", alone=True)
    assert values(Host("box", "sysfs", nics=nics[:1])) == over_tcp("eno1", alone=True)
    assert values(Host("box", "sysfs", nics=())) == {}


HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
ROUTES = {
    "one": ("eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n", "", "eth0"),
    "the lower metric": (
        "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
        "eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
        "",
        "eno1",
    ),
    "a network": ("eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", "", ""),
    "IPv6": (
        "",
        f"{'0' * 32} 00 {'0' * 32} 00 fe80{'0' * 27}1 00000400 00000001 00000000 00000003 eth1\n"
        f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200 lo\n",
        "eth1",
    ),
    "none": ("", "", ""),
    "nonsense": ("a b\n\x00\n" + "x " * 9, "y " * 10, ""),
}


@pytest.mark.parametrize("name", ROUTES)
def test_the_interface_of_the_default_route(tmp_path, name):
    four, six, expected = ROUTES[name]
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(HEAD + four)
    (tmp_path / "proc/net/ipv6_route").write_text(six)
    assert default_interface(tmp_path) == expected


def test_a_machine_without_proc_has_no_default_interface(tmp_path):
    assert default_interface(tmp_path) == ""


def test_the_file_has_a_reason_above_each_export():
    text = source_file(environment(host_of("linux-hpe-ibdown"), HostHealth("box")))
    lines = text.splitlines()
    assert lines[1] == "export NCCL_IB_HCA='=mlx5_0:1'"
    assert all(line.startswith("# ") for line in lines[::2])
    assert all(line.startswith("export ") for line in lines[1::2])


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True).map("T_".__add__),
        st.tuples(
            st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=9),
            st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=9),
        ),
        max_size=3,
    )
)
def test_any_value_and_reason_is_read_by_a_shell_as_it_is(variables):
    script = source_file(variables) + "".join(f'printf "%s\\0" "${name}"\n' for name in variables)
    shell = shutil.which("sh")
    run = subprocess.run([shell], input=script.encode(), capture_output=True, check=True, timeout=20)
    assert run.stderr == b""
    assert run.stdout == b"".join(value.encode() + b"\0" for value, _ in variables.values())
