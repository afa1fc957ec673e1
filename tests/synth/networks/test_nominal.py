from __future__ import annotations

from dataclasses import replace

import pytest

from probes.base.errors import UsageError
from probes.paths.bandwidth import load
from probes.paths.expected import Expected
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice, Topology
from synth.bounds.lower_bounds import bounds
from synth.collective import collective
from synth.networks.nominal import from_topology


def _host(name, gpus, fabric=(), nics=(), width=16):
    buses = [f"0000:{number + 1:02x}:00.0" for number in range(gpus)]
    pci = tuple(
        PciDevice(bus, "test", root="r", max_speed_gts=16.0, max_width=width, numa=0) for bus in buses
    )
    cards = tuple(Gpu(bus, "test", index=at, arch="sm_80", numa=0) for at, bus in enumerate(buses))
    return Host(name, "test", pci=pci, gpus=cards, nics=tuple(nics), fabric=tuple(fabric))


def _rates(network):
    pairs = zip(network.src.tolist(), network.dst.tolist(), strict=True)
    return dict(zip(pairs, (1 / network.beta_s_per_byte).tolist(), strict=True))


def test_direct_nvlinks_add_up_and_others_go_over_pcie():
    fabric = [
        FabricLink("0000:01:00.0", "0000:02:00.0", "gpu", "nvlink", 4, "test", gbs=20.0),
        FabricLink("0000:02:00.0", "0000:01:00.0", "gpu", "nvlink", 4, "test", gbs=20.0),
    ]
    network = from_topology(Topology((_host("a", 3, fabric),)))
    rates = _rates(network)
    assert rates[0, 1] == rates[1, 0] == pytest.approx(80e9)
    assert rates[0, 2] == rates[2, 1] == pytest.approx(24e9)
    assert sorted(set(network.ports)) == sorted(
        f"rank {r} PCIe {d}gress" for r in range(3) for d in ("e", "in")
    )


def test_behind_a_switch_each_gpu_has_one_port_each_way():
    fabric = [
        FabricLink(f"0000:{n:02x}:00.0", "nvswitch", "switch", "nvlink", 12, "test", gbs=20.0)
        for n in (1, 2, 3)
    ]
    network = from_topology(Topology((_host("a", 3, fabric),)))
    assert list(_rates(network).values()) == pytest.approx([240e9] * 6)
    bound = bounds(network, collective("all_gather", 3), 1 << 20, fluid=True)[0]
    assert bound.time_s == pytest.approx(2 * 2**20 / 240e9, rel=0.1)


def test_hosts_meet_through_nics_that_their_gpus_share():
    hosts = tuple(_host(name, 2, nics=[Nic("ib0", "test", True, speed_mbit=100_000)]) for name in "ab")
    network = from_topology(Topology(hosts))
    across = [
        link
        for link in range(network.links)
        if network.hosts[network.src[link]] != network.hosts[network.dst[link]]
    ]
    assert len(across) == 8
    names = {network.ports[port] for link in across for port in network.ports_of(link)}
    assert names == {"a ib0 egress", "a ib0 ingress", "b ib0 egress", "b ib0 ingress"}
    assert _rates(network)[0, 2] == pytest.approx(12.5e9)


@pytest.mark.parametrize(
    ("hosts", "words"),
    [((_host("a", 1),), "needs two GPUs"), ((_host("a", 1), _host("b", 1)), "no NIC to reach other hosts")],
)
def test_refuses_and_says_why(hosts, words):
    with pytest.raises(UsageError, match=words):
        from_topology(Topology(hosts))


def test_gpus_that_the_driver_withholds_are_no_ranks():
    host = _host("a", 3)
    withheld = Gpu("0000:09:00.0", "test", index=7, usable=False)
    network = from_topology(Topology((Host("a", "test", pci=host.pci, gpus=(*host.gpus, withheld)),)))
    assert network.ranks == 3


def test_a_gpu_with_a_chip_to_chip_link_reaches_its_nic_over_it_in_network_and_matrix_alike():
    pci = (
        PciDevice("0000:01:00.0", "test", root="a", max_speed_gts=32.0, max_width=4, numa=0),
        PciDevice("0001:01:00.0", "test", root="b", max_speed_gts=2.5, max_width=16, numa=0),
    )
    hosts = tuple(
        Host(
            name,
            "test",
            pci=pci,
            gpus=(Gpu("0001:01:00.0", "test", index=0, arch="sm_121", numa=0),),
            nics=(Nic("ib0", "test", True, bus_id="0000:01:00.0", speed_mbit=200_000, numa=0),),
            fabric=(FabricLink("0001:01:00.0", "numa0", "cpu", "c2c", 8, "test", gbs=43.0),),
        )
        for name in "ab"
    )
    way = Expected(hosts[0], load()).between(hosts[0].gpus[0], hosts[0].nics[0])
    assert (way.path, way.gbs) == ("C2C", 12.0)
    assert _rates(from_topology(Topology(hosts)))[0, 1] == pytest.approx(12e9)


def test_the_network_carries_between_gpus_what_the_matrix_of_the_topology_says():
    host = _host("a", 4, width=8)
    far = tuple(replace(one, numa=at // 2, root=f"r{at // 2}") for at, one in enumerate(host.pci))
    nodes = tuple(NumaNode(at, "test", arch="x86_64", vendor="GenuineIntel", model=85) for at in (0, 1))
    gpus = tuple(replace(gpu, numa=at // 2) for at, gpu in enumerate(host.gpus))
    host = replace(host, pci=far, gpus=gpus, numa=nodes)
    rates = _rates(from_topology(Topology((host,))))
    ways = Expected(host, load())
    for a, b in rates:
        assert rates[a, b] == pytest.approx(1e9 * ways.between(gpus[a], gpus[b]).gbs)
    assert rates[0, 2] == pytest.approx(1e10)
