"""AMD's GPUs and their xGMI links, from the kernel's compute driver (KFD) under /sys/class/kfd.

KFD's nodes are CPUs and GPUs. A GPU's ``io_links`` lead to other nodes. Each io_link states its least and its
most MB/s; most / least is the number of xGMI links on that path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from probes.base import LARGEST, whole
from probes.sysfs.text import lines
from probes.topology import FabricLink, Gpu, Host, Topology

__all__ = ["METHOD", "read"]

METHOD = "kfd"
# CRAT_IOLINK_TYPE_XGMI of the kernel's kfd_crat.h.
_XGMI = 11
# KFD prints 64-bit properties without a sign.
_LARGEST_U64 = (1 << 64) - 1
# HSA_MEM_HEAP_TYPE_FB_PUBLIC and HSA_MEM_HEAP_TYPE_FB_PRIVATE of the kernel's KFD headers.
_MEMORY_IN_VRAM = (1, 2)


@dataclass(frozen=True)
class _Node:
    """One node: its number, its properties and its folder."""

    number: int
    properties: dict[str, int]
    folder: Path

    @property
    def bus_id(self) -> str:
        """The PCI function of a GPU; "" for a CPU."""
        place = self.properties.get("location_id", 0)
        if not self.properties.get("simd_count"):
            return ""
        domain = self.properties.get("domain", 0)
        return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def read(host: str, root: Path = Path("/")) -> Topology:
    """Read AMD's GPUs of one host; a host without the driver has no GPUs and no note."""
    folder = root / "sys/class/kfd/kfd/topology/nodes"
    if not folder.is_dir():
        return Topology((Host(host, METHOD),))
    nodes = {node.number: node for node in _nodes(folder)}
    gpus = [node for number, node in sorted(nodes.items()) if node.bus_id]
    unread = [str(number) for number, node in sorted(nodes.items()) if not node.properties]
    found = Host(
        name=host,
        method=METHOD,
        gpus=tuple(_gpu(node, index) for index, node in enumerate(gpus)),
        fabric=tuple(link for node in gpus for link in _links(node, nodes)),
    )
    notes = (f"{host}: kfd: nodes {', '.join(unread)} may not be read by this process",) if unread else ()
    return Topology((found,), notes=notes)


def _nodes(folder: Path) -> Iterator[_Node]:
    for entry in folder.iterdir():
        number = whole(entry.name)
        if number is not None:
            yield _Node(number, _properties(entry), entry)


def _properties(folder: Path) -> dict[str, int]:
    """Return the ``name value`` lines of a node, a link or a memory bank."""
    found = {}
    for line in lines(folder / "properties").splitlines():
        name, _, value = line.partition(" ")
        number = whole(value.strip(), low=-LARGEST, high=_LARGEST_U64)
        if number is not None:
            found[name] = number
    return found


def _gpu(node: _Node, index: int) -> Gpu:
    hive = node.properties.get("hive_id", 0)
    unique = node.properties.get("unique_id", 0)
    return Gpu(
        bus_id=node.bus_id,
        method=METHOD,
        index=index,
        vendor="amd",
        uuid=f"GPU-{unique:016x}" if unique else "",
        memory_bytes=_memory_bytes(node) or None,
        arch=_architecture(node.properties.get("gfx_target_version", 0)),
        usable=True,
        fabric_cluster=f"{hive:016x}" if hive else "",
    )


def _architecture(version: int) -> str:
    """Return gfx942 for 90402, whose last four digits are two for minor and two for stepping."""
    if not version:
        return ""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _memory_bytes(node: _Node) -> int:
    banks = (_properties(bank) for bank in sorted(node.folder.glob("mem_banks/*")))
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _MEMORY_IN_VRAM)


def _links(node: _Node, nodes: dict[int, _Node]) -> Iterator[FabricLink]:
    for entry in sorted(node.folder.glob("io_links/*"), key=lambda path: path.name.zfill(4)):
        properties = _properties(entry)
        far = nodes.get(properties.get("node_to", -1))
        # A process that may not use a GPU cannot read the GPU's node, which then looks like a CPU.
        if properties.get("type") != _XGMI or far is None or not far.properties:
            continue
        least, most = properties.get("min_bandwidth", 0), properties.get("max_bandwidth", 0)
        yield FabricLink(
            source=node.bus_id,
            target=far.bus_id or f"numa{_cpu_number(far, nodes)}",
            target_kind="gpu" if far.bus_id else "cpu",
            kind="xgmi",
            count=max(1, round(most / least)) if least else 1,
            method=METHOD,
            state="up",
        )


def _cpu_number(node: _Node, nodes: dict[int, _Node]) -> int:
    """Return the NUMA node of a CPU node: CPU nodes are in the order of NUMA nodes."""
    return sum(
        other.number < node.number for other in nodes.values() if other.properties and not other.bus_id
    )
