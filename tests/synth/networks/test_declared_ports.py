"""Ports of a declared PCI tree on the links of a measured network."""

import numpy as np
import pytest

from probes.base.errors import UsageError
from probes.topology import Gpu, Host, Nic, NumaNode, PciDevice, Topology
from synth import Request, synthesize
from synth.check.schedule import check
from synth.network import Link, build
from synth.networks.declared_ports import with_declared_ports


def pci(bus_id, parent="", role="device", **more):
    return PciDevice(bus_id, "test", parent, "pci0", role, max_speed_gts=16.0, max_width=16, **more)


def box(name, *, nic=True):
    """Two switches at the root, two GPUs under each; the NIC is under the first."""
    devices = [pci(f"r{s}", "", "root") for s in (0, 1)]
    devices += [pci(f"s{s}", f"r{s}", "switch") for s in (0, 1)]
    devices += [pci(f"g{g}", f"s{g // 2}") for g in range(4)]
    devices += [pci("n0", "s0")] if nic else []
    gpus = tuple(Gpu(f"g{g}", "test", index=g) for g in range(4))
    nics = (Nic("mlx5_0", "test", physical=True, bus_id="n0", speed_mbit=200_000),) if nic else ()
    return Host(name, "test", pci=tuple(devices), gpus=gpus, nics=nics)


def measured(hosts, beta=1 / 20e9):
    ranks = [(host, gpu) for host in hosts for gpu in range(4)]
    links = [Link(a, b, 2e-6, beta) for a in range(len(ranks)) for b in range(len(ranks)) if a != b]
    devices = [f"cuda:{gpu}" for _, gpu in ranks]
    return build("measured", [host for host, _ in ranks], links), devices


def ports_of(network, src, dst):
    (row,) = np.flatnonzero((network.src == src) & (network.dst == dst))
    return {network.ports[port] for port in network.ports_of(int(row))}


def test_links_cross_the_uplinks_of_their_switches():
    network, devices = measured(["a"])
    found = with_declared_ports(network, devices, Topology((box("a"),)))
    # Under one switch only the GPUs' own; between switches both uplinks.
    assert ports_of(found, 0, 1) == {"a PCIe g0 up", "a PCIe g1 down"}
    assert ports_of(found, 0, 2) == {"a PCIe g0 up", "a PCIe s0 up", "a PCIe s1 down", "a PCIe g2 down"}
    assert found.problems() == []
    assert (found.beta_s_per_byte == network.beta_s_per_byte).all()


def test_what_leaves_a_host_crosses_the_way_to_its_nic():
    network, devices = measured(["a", "b"])
    found = with_declared_ports(network, devices, Topology((box("a"), box("b"))))
    near, far = ports_of(found, 0, 4), ports_of(found, 2, 4)
    assert "a PCIe s1 up" not in near
    assert {"a PCIe s1 up", "a PCIe s0 down", "a PCIe n0 down", "b PCIe n0 up"} <= far


def test_numa_links_are_ports_where_their_rate_is_known():
    host = box("a", nic=False)
    devices = tuple(
        PciDevice(**{**{f: getattr(d, f) for f in d.__dataclass_fields__}, "numa": int(d.bus_id[1:] in "23")})
        if d.bus_id.startswith("g")
        else d
        for d in host.pci
    )
    nodes = tuple(NumaNode(n, "test", arch="x86_64", vendor="GenuineIntel", model=85) for n in (0, 1))
    gpus = tuple(Gpu(f"g{g}", "test", index=g, numa=g // 2) for g in range(4))
    host = Host("a", "test", numa=nodes, pci=devices, gpus=gpus)
    network, names = measured(["a"])
    found = with_declared_ports(network, names, Topology((host,)))
    assert "a NUMA 0 to 1" in ports_of(found, 0, 2)
    assert "a NUMA 1 to 0" in ports_of(found, 3, 1)
    assert not any("NUMA" in port for port in ports_of(found, 0, 1))


def test_a_port_that_makes_nobody_wait_is_left_out():
    network, devices = measured(["a"], beta=1 / 5e9)
    found = with_declared_ports(network, devices, Topology((box("a"),)))
    assert found.ports == network.ports


def test_a_schedule_minds_the_uplink():
    network, devices = measured(["a"])
    found = with_declared_ports(network, devices, Topology((box("a"),)))
    times = []
    for one in (network, found):
        made = synthesize(Request(one, "all_to_all", size_bytes=1 << 26, solving=False)).schedule
        assert check(made) == []
        times.append(made.outcome.time_s)
    # 2 · 2 of 16 MiB cross each uplink of 20 GB/s.
    assert times[1] > times[0]
    assert times[1] >= 4 * (1 << 24) / 20e9


def test_what_the_topology_does_not_place_is_refused():
    network, devices = measured(["a"])
    with pytest.raises(UsageError, match="not on a GPU"):
        with_declared_ports(network, ["process"] * 4, Topology((box("a"),)))
    with pytest.raises(UsageError, match="not cuda:7"):
        with_declared_ports(network, [*devices[:3], "cuda:7"], Topology((box("a"),)))
