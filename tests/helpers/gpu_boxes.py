"""Hosts with GPUs in pairs below PCIe switches, as a topology has them, for tests and benchmarks."""

from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice

_CLASSES = {"switch": "0x060400", "gpu": "0x030200", "nic": "0x020000"}
_EVERY = [(a, b) for a in range(8) for b in range(a)]
_CUBE_MESH = [
    *((a + half, b + half) for half in (0, 4) for a in range(4) for b in range(a)),
    *((a, a + 4) for a in range(4)),
]
# Two GPUs with NVLinks between them and a NIC, as NCCL writes the host.
BOX_XML = """<system version="1"><cpu numaid="0" affinity="ff" vendor="GenuineIntel">
 <pci busid="0000:10:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
  <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16 GT/s">
   <gpu dev="0" sm="80"><nvlink target="0000:21:00.0" count="4" tclass="0x030200"/></gpu></pci>
  <pci busid="0000:12:00.0" class="0x020700"><nic><net name="mlx5_0" speed="200000"/></nic></pci>
 </pci></cpu><cpu numaid="1" affinity="ff00">
 <pci busid="0000:21:00.0" class="0x030200" vendor="0x10de" device="0x20b0">
  <gpu dev="1" sm="80"><nvlink target="0000:11:00.0" count="4" tclass="0x030200"/></gpu></pci>
</cpu></system>"""
# Keywords of `box` for machines on which the order of GPUs in a ring matters.
ODD = {
    "8 GPUs, PCIe alone": {"gpus": 8, "nics": 4},
    "8 GPUs, three bridges across": {"gpus": 8, "links": [(0, 4), (1, 5), (2, 6)], "nics": 2},
    "4 GPUs, bridges crossed": {"gpus": 4, "links": [(0, 2), (1, 3)], "nics": 2},
    "8 GPUs, hybrid cube mesh": {"gpus": 8, "links": _CUBE_MESH, "nics": 4},
    "8 GPUs, three dead links": {
        "gpus": 8,
        "links": [pair for pair in _EVERY if pair not in ((1, 0), (3, 2), (5, 4))],
        "nics": 4,
    },
    "6 GPUs, bridges across": {"gpus": 6, "links": [(0, 3), (1, 4), (2, 5)], "nics": 2},
}


def box(gpus=4, links=(), *, nics=1, index=True, name="box", intel=False):
    """GPUs in pairs below PCIe switches, a NUMA node for every four; NVLinks between the pairs ``links``."""
    pci = [_function(number, "switch") for number in range((gpus + 1) // 2)]
    pci += [_function(number, "gpu", number // 2) for number in range(gpus)]
    pci += [_function(number, "nic", number % (gpus // 2)) for number in range(nics)]
    found = [
        Gpu(
            _bus_id("gpu", number),
            "test",
            index=number,
            vendor="nvidia",
            arch="sm_80",
            compute_capability="8.0",
            numa=number // 4,
            gpudirect=True,
        )
        for number in range(gpus)
    ]
    ports = [
        Nic(
            f"mlx5_{number}",
            "test",
            physical=True,
            bus_id=_bus_id("nic", number),
            speed_mbit=200_000,
            rdma_device=f"mlx5_{number}",
            gpudirect=True,
            index=number if index else None,
        )
        for number in range(nics)
    ]
    fabric = [
        FabricLink(found[a].bus_id, found[b].bus_id, "gpu", "nvlink", 4, "test")
        for pair in links
        for a, b in (pair, pair[::-1])
    ]
    nodes = range((gpus + 3) // 4)
    cpu = {"vendor": "GenuineIntel", "family": 6, "model": 85} if intel else {"vendor": "AuthenticAMD"}
    numa = tuple(NumaNode(node, "test", arch="x86_64", **cpu) for node in nodes)
    return Host(name, "test", 64, "", None, numa, tuple(pci), tuple(found), tuple(ports), tuple(fabric))


def _bus_id(kind, number):
    return f"0000:{ {'switch': 0x10, 'gpu': 0x40, 'nic': 0x80}[kind] + number:02x}:00.0"


def _function(number, kind, switch=None):
    numa = (number if switch is None else switch) // 2
    return PciDevice(
        _bus_id(kind, number),
        "test",
        parent="" if switch is None else _bus_id("switch", switch),
        root=f"pci0000:{numa:02x}",
        role="switch" if kind == "switch" else "device",
        pci_class=_CLASSES[kind],
        vendor="0x10de" if kind == "gpu" else "0x15b3",
        numa=numa,
        max_speed_gts=16.0,
        max_width=16,
    )
