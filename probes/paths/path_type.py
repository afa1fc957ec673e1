"""The path type between two devices of a host, as NCCL and nvidia-smi name it: PIX, PXB, PHB, NODE, SYS.

The PCI tree and fabric links take precedence over a tool's statement (``Host.matrices``), which takes
precedence over NUMA nodes alone. The types, from near to far:

- LOC: the device itself
- NVL: NVLink or xGMI, directly or through NVSwitches
- NVB: NVLink over one GPU in between
- C2C: a GPU's chip-to-chip link to its CPU, and on to another GPU or a NIC (NCCL: P2C)
- PIX: at most one PCIe switch; PXB: several
- PXN: over NVLink to a GPU that is near the NIC
- PHB: the host bridge; NODE: several host bridges of one NUMA node
- SYS: between NUMA nodes; NET: between hosts; "?": not stated by the topology

PXN and NET are paths that a library may take (``probes/paths/expected.py``); `Paths` never returns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from probes.paths.pci_tree import chain, functions, numa_of
from probes.topology import FabricLink, Gpu, Host, Nic

__all__ = ["MEANING", "PathType", "Paths", "key_of"]

PathType: TypeAlias = Literal[
    "LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "NET", "?"
]
MEANING: Mapping[PathType, str] = {
    "LOC": "the device itself",
    "NVL": "NVLink or xGMI",
    "NVB": "NVLink over one GPU in between",
    "C2C": "chip-to-chip link of a GPU to its CPU",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches",
    "PXN": "NVLink to a GPU that is near the NIC",
    "PHB": "the PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "across NUMA nodes",
    "NET": "from host to host",
    "?": "not known",
}


@dataclass(frozen=True)
class _Place:
    """The position of a device: itself and the bridges above it up to the root, and its NUMA node."""

    chain: tuple[str, ...]
    root: str
    numa: int | None


class Paths:
    """The path types of one host. A query takes O(depth of the PCI tree), or O(GPUs) for NVB."""

    def __init__(self, host: Host) -> None:
        self._devices = functions(host)
        # The key: bus id, and the NUMA node that the device states. Each device is an end of many pairs.
        self._places: dict[tuple[str, int | None], _Place] = {}
        self._neighbours: dict[str, set[str]] = {gpu.bus_id: set() for gpu in host.gpus}
        self._switched: set[str] = set()
        self._cpu_of: dict[str, str] = {}
        self._with_c2c = {link.source for link in host.fabric if link.kind == "c2c" and link.state != "down"}
        self._matrices = [matrix for matrix in host.matrices if matrix.what == "path"]
        for link in host.fabric:
            self._add(link)

    def between(self, a: Gpu | Nic, b: Gpu | Nic) -> PathType:
        """Return the nearest path type from one device to the other."""
        if type(a) is type(b) and key_of(a) == key_of(b):
            return "LOC"
        if isinstance(a, Gpu) and isinstance(b, Gpu):
            return self._over_fabric(a.bus_id, b.bus_id) or self.over_pci(a, b)
        path = self.over_pci(a, b)
        has_c2c = type(a) is not type(b) and not self._with_c2c.isdisjoint((a.bus_id, b.bus_id))
        return "C2C" if has_c2c and path in ("PHB", "NODE") else path

    def over_pci(self, a: Gpu | Nic, b: Gpu | Nic) -> PathType:
        """Return the path type over PCIe, regardless of other links."""
        return self.in_tree(a, b) or self.stated(a, b) or self._by_numa(a, b)

    def stated(self, a: Gpu | Nic, b: Gpu | Nic) -> PathType | None:
        """Return the type that a tool states for the two; None if none does."""
        words = (matrix.cell(key_of(a), key_of(b)) for matrix in self._matrices)
        word = next((word for word in words if word), "")
        if word.startswith("NV"):
            return "NVL"
        return next((path for path in MEANING if path == word), None)

    def _add(self, link: FabricLink) -> None:
        if link.kind == "c2c" and link.target != "cpu":
            self._cpu_of[link.source] = link.target
        elif link.target_kind == "switch":
            self._switched.add(link.source)
        elif link.target_kind == "gpu":
            self._neighbours.setdefault(link.source, set()).add(link.target)
            self._neighbours.setdefault(link.target, set()).add(link.source)

    def _over_fabric(self, a: str, b: str) -> PathType | None:
        near_a, near_b = self._neighbours.get(a, set()), self._neighbours.get(b, set())
        # In DGX and HGX, all NVSwitches of a host form one fabric.
        if b in near_a or {a, b} <= self._switched:
            return "NVL"
        if near_a & near_b:
            return "NVB"
        if a in self._cpu_of and self._cpu_of[a] == self._cpu_of.get(b):
            return "C2C"
        return None

    def in_tree(self, a: Gpu | Nic, b: Gpu | Nic) -> PathType | None:
        """Return the type of the path in the PCI tree; None if the tree lacks a device or its root."""
        here, there = self._place(a), self._place(b)
        common = next((bus_id for bus_id in here.chain if bus_id in there.chain), None)
        if common is not None:
            crossed = {
                bus_id
                for above in (here.chain, there.chain)
                for bus_id in above[: above.index(common) + 1]
                if self._devices[bus_id].role in ("upstream", "switch")
            }
            return "PIX" if len(crossed) <= 1 else "PXB"
        if not here.root or not there.root:
            return None
        if here.root == there.root:
            return "PHB"
        return self._by_numa(a, b) if None not in (here.numa, there.numa) else None

    def hides_bridges(self, device: Gpu | Nic) -> bool:
        """Return whether the tree has one host bridge per CPU, as in NCCL's files."""
        return self._place(device).root.startswith("cpu")

    def _by_numa(self, a: Gpu | Nic, b: Gpu | Nic) -> PathType:
        here, there = self._place(a).numa, self._place(b).numa
        if here is None or there is None:
            return "?"
        return "NODE" if here == there else "SYS"

    def _place(self, device: Gpu | Nic) -> _Place:
        key = device.bus_id, device.numa
        if key not in self._places:
            above = chain(device.bus_id, self._devices)
            bus_ids = tuple(one.bus_id for one in above)
            self._places[key] = _Place(
                bus_ids, above[0].root if above else "", numa_of(device, self._devices)
            )
        return self._places[key]


def key_of(device: Gpu | Nic) -> str:
    """Return the key of a device on its host: a GPU's bus id, a NIC's name."""
    return device.bus_id if isinstance(device, Gpu) else device.name
