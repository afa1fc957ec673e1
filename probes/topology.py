"""The topology artifact: the hosts of a cluster with their CPUs, GPUs, NICs and the links between them.

Each record names the method that found it ("sysfs", "nvml", "psutil", "nccl_xml" …). ``method_of`` names the
fields that another method filled in. A field that the source does not state is None, "" or (), so that
partial topologies can be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from probes.base import is_cpu_list, not_finite

__all__ = [
    "PCIE_GTS",
    "FabricLink",
    "FabricState",
    "Finding",
    "Gpu",
    "Host",
    "Matrix",
    "Nic",
    "NumaNode",
    "PciDevice",
    "Probed",
    "Topology",
    "label",
    "place",
]

# Speed of each PCIe generation in GT/s per lane (PCI Express Base Specification 6.0).
PCIE_GTS: Mapping[int, float] = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
# Highest rate that is accepted, in GB/s or GT/s; above any real one.
_MOST_RATE = 1e12
FabricState: TypeAlias = Literal["not supported", "not started", "in progress", "completed", ""]


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node; ``index`` is -1 if the machine does not number it.

    ``cpus`` is in the kernel's list form ("0-23,48-71"); ``distances`` are to nodes 0, 1, 2, …
    """

    index: int
    method: str
    cpus: str = ""
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()
    arch: str = ""
    vendor: str = ""
    family: int | None = None
    model: int | None = None
    method_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PciDevice:
    """One PCI function; ``parent`` is the bridge above it ("" at the top), ``root`` its host bridge.

    The ``role`` "switch" stands for a whole PCIe switch, as in NCCL's files; "root", "upstream" and
    "downstream" are single ports. Speeds are in GT/s per lane, current and maximum. ``raw_gbs`` is the
    current GB/s on the wire, for sources that give only that.
    """

    bus_id: str
    method: str
    parent: str = ""
    root: str = ""
    role: Literal["root", "upstream", "downstream", "switch", "device", ""] = ""
    pci_class: str = ""
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    physical_function: str = ""
    numa: int | None = None
    cpus: str = ""
    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None
    raw_gbs: float | None = None
    method_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one partition of a GPU that its users see as a GPU.

    Partitions that share a PCI function are "0002:81:00.0/0" and "0002:81:00.0/1". ``arch`` is "sm_90" or
    "gfx942". ``usable`` is False if the GPU is on the bus but the driver does not give it to this process.
    ``peers`` are the bus ids of GPUs that it can read directly. If a source has only numbers, the bus id of
    GPU 3 is "gpu3". GPUs with equal ``fabric_cluster`` and ``fabric_clique`` reach each other over NVLink (or
    the xGMI hive of that id), also between hosts, when ``fabric_state`` is "completed".
    """

    bus_id: str
    method: str
    index: int | None = None
    vendor: Literal["nvidia", "amd", ""] = ""
    name: str = ""
    uuid: str = ""
    memory_bytes: int | None = None
    arch: str = ""
    compute_capability: str = ""
    numa: int | None = None
    cpus: str = ""
    mig: bool | None = None
    gpudirect: bool | None = None
    usable: bool | None = None
    peers: tuple[str, ...] = ()
    fabric_cluster: str = ""
    fabric_clique: int | None = None
    fabric_state: FabricState = ""
    method_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Nic:
    """One network port; a card with two ports is two records.

    ``physical`` is False for software interfaces (bridge, veth, tunnel, bond) and virtual functions.
    ``bus_id`` is the PCI function, or the bridge above it in files that hide the function; "" if the port is
    not on PCI. ``errors`` are the error counters of an RDMA port since its driver was loaded. ``index`` is
    its device number in NCCL's network plugin, known only from NCCL's own files.
    """

    name: str
    method: str
    physical: bool | None = None
    bus_id: str = ""
    port: int | None = None
    speed_mbit: int | None = None
    state: str = ""
    physical_state: str = ""
    mtu: int | None = None
    mac: str = ""
    addresses: tuple[str, ...] = ()
    numa: int | None = None
    rdma_device: str = ""
    link_layer: str = ""
    guid: str = ""
    gpudirect: bool | None = None
    errors: dict[str, int] = field(default_factory=dict)
    index: int | None = None
    method_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FabricLink:
    """The NVLinks (or xGMI, C2C) from one GPU to one target, as that GPU reports them.

    ``target`` is a bus id, "nvswitch" for a switch that does not identify itself, or "numa<n>" for a CPU
    ("cpu" if the node is unknown). Both ends report a link between two GPUs. ``gbs`` is GB/s of one link in
    one direction; ``numbers`` are the links' own numbers on the GPU. Links that are down have the target ""
    and the kind "unknown".
    """

    source: str
    target: str
    target_kind: Literal["gpu", "switch", "cpu", "unknown"]
    kind: Literal["nvlink", "xgmi", "c2c"]
    count: int
    method: str
    version: str = ""
    gbs: float | None = None
    state: Literal["up", "down", ""] = ""
    numbers: tuple[int, ...] = ()
    method_of: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Matrix:
    """Facts that a source states for pairs of devices; ``cells[i][j]`` is the fact about devices i and j.

    For "path", cells are path types ("PIX", "NV12"; "X" for a device with itself). Otherwise they say whether
    one GPU can access the other: "OK", or the reason why not ("CNS" chipset, "GNS" GPU, "TNS" topology, "NS"
    not supported, "DR" disabled, "U" unknown). "" is unstated. ``devices`` are bus ids of GPUs and names of
    NICs.
    """

    what: Literal["path", "p2p", "p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_pcie"]
    devices: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    method: str

    def cell(self, a: str, b: str) -> str:
        """Return the cell of two devices; "" if the matrix lacks a device."""
        if a not in self.devices or b not in self.devices:
            return ""
        return self.cells[self.devices.index(a)][self.devices.index(b)]


@dataclass(frozen=True)
class Probed:
    """The answer of an active probe, in addition to what the machine reports (AdapCC, Sec. IV-A).

    ``devices`` are bus ids of GPUs and names of NICs. The answer to "nic_numa" is the NUMA node nearest to
    the NIC; to "gpu_switch", whether two GPUs share a PCIe switch ("yes", "no"); to "nic_switch", the GPUs
    that share one with the NIC (bus ids with commas). "" is no answer, and ``reason`` says why. ``measured``
    holds the median of each alternative: seconds, or the GB/s while another device transfers, too, divided by
    the GB/s alone.
    """

    what: Literal["nic_numa", "gpu_switch", "nic_switch"]
    devices: tuple[str, ...]
    answer: str = ""
    confidence: float | None = None
    measured: dict[str, float] = field(default_factory=dict)
    repetitions: int = 0
    seed: int = 0
    reason: str = ""
    method: str = "active"


@dataclass(frozen=True)
class Finding:
    """A fault or doubt: ``what`` is a fixed keyword, ``where`` names the host and the record."""

    what: str
    where: str
    text: str


@dataclass(frozen=True)
class Host:
    """One machine; ``cpus`` are the CPUs that this process may use, in the kernel's list form."""

    name: str
    method: str
    cores: int | None = None
    cpus: str = ""
    memory_bytes: int | None = None
    numa: tuple[NumaNode, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    fabric: tuple[FabricLink, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    probed: tuple[Probed, ...] = ()
    method_of: dict[str, str] = field(default_factory=dict)

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """All GPUs except those known to be unusable for this process."""
        return tuple(gpu for gpu in self.gpus if gpu.usable is not False)

    @property
    def physical_nics(self) -> tuple[Nic, ...]:
        """The ports of real network cards."""
        return tuple(nic for nic in self.nics if nic.physical)

    def fabric_links(self) -> int:
        """Return the number of NVLinks and xGMI links whose far end is known.

        A link that both ends report counts once.
        """
        pairs: dict[tuple[str, ...], dict[str, int]] = {}
        for link in self.fabric:
            if link.kind != "c2c" and link.target_kind != "unknown":
                ends = pairs.setdefault(tuple(sorted((link.source, link.target))), {})
                ends[link.source] = ends.get(link.source, 0) + link.count
        return sum(max(reported.values()) for reported in pairs.values())


@dataclass(frozen=True)
class Topology:
    """The hosts of a cluster; ``notes`` say what could not be detected and why."""

    hosts: tuple[Host, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        """Return every contradiction between the records, as ``path: what is wrong``."""
        names = _repeated(host.name for host in self.hosts)
        found = [f"hosts: {name!r} is there {count} times" for name, count in names]
        found += not_finite(self)
        for index, host in enumerate(self.hosts):
            found += [f"hosts[{index}].{problem}" for problem in _host_problems(host)]
        return found


def label(device: Gpu | Nic) -> str:
    """Return the usual name of a device: GPU3, mlx5_0."""
    return f"GPU{device.index}" if isinstance(device, Gpu) else device.rdma_device or device.name


def place(host: Host, device: Gpu | Nic) -> str:
    """Return the ``where`` of a finding on a device of ``host``."""
    return f"{host.name}/{device.bus_id if isinstance(device, Gpu) else device.name}"


def _repeated(names: Iterator[str]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in Counter(names).items() if count > 1]


def _rate_problems(host: Host) -> Iterator[str]:
    """Yield link rates outside the bounds, which keep products and sums of rates finite."""
    for label, rows, names in (
        ("pci", host.pci, ("speed_gts", "max_speed_gts", "raw_gbs")),
        ("fabric", host.fabric, ("gbs",)),
    ):
        for row, link in enumerate(rows):
            for name in names:
                rate = getattr(link, name)
                if rate is not None and not 0 <= rate <= _MOST_RATE:
                    yield f"{label}[{row}].{name}: expected a rate from 0 to {_MOST_RATE:g}, found {rate:g}"


def _host_problems(host: Host) -> Iterator[str]:
    for label, keys in (
        ("numa", (str(node.index) for node in host.numa)),
        ("pci", (device.bus_id for device in host.pci)),
        ("gpus", (gpu.bus_id for gpu in host.gpus)),
        ("gpus", (f"index {gpu.index}" for gpu in host.gpus)),
        ("nics", (nic.name for nic in host.nics)),
    ):
        yield from (f"{label}: {name} is there {count} times" for name, count in _repeated(keys))
    for row, node in enumerate(host.numa):
        if not is_cpu_list(node.cpus):
            yield f"numa[{row}].cpus: expected CPUs as 0-23,48-71, found {node.cpus[:40]!r}"
    yield from _tree_problems(host)
    known = {gpu.bus_id for gpu in host.gpus}
    for row, link in enumerate(host.fabric):
        if link.source not in known:
            yield f"fabric[{row}].source: there is no GPU {link.source}"
        if link.count < 1:
            yield f"fabric[{row}].count: expected a number ≥ 1, found {link.count}"
    yield from _rate_problems(host)
    yield from _matrix_problems(host)


def _matrix_problems(host: Host) -> Iterator[str]:
    known = {gpu.bus_id for gpu in host.gpus} | {nic.name for nic in host.nics}
    for row, matrix in enumerate(host.matrices):
        unknown = [device for device in matrix.devices if device not in known]
        if unknown:
            yield f"matrices[{row}].devices: there is no device {', '.join(unknown)}"
        size = len(matrix.devices)
        if len(matrix.cells) != size or any(len(cells) != size for cells in matrix.cells):
            yield f"matrices[{row}].cells: expected {size} rows of {size} cells"


def _tree_problems(host: Host) -> Iterator[str]:
    parents = {device.bus_id: device.parent for device in host.pci}
    for row, device in enumerate(host.pci):
        if device.parent and device.parent not in parents:
            yield f"pci[{row}].parent: there is no device {device.parent}"
        seen, here = {device.bus_id}, device.parent
        while here and here not in seen:
            seen.add(here)
            here = parents.get(here, "")
        if here == device.bus_id:
            yield f"pci[{row}].parent: {device.bus_id} is its own ancestor"
