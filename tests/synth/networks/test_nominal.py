from __future__ import annotations

import pytest

from probes.errors import UsageError
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, Topology
from synth.bounds.bounds import bounds
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
