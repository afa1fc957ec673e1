"""The objects of hwloc's XML: NUMA nodes, PCI functions, and the operating system's names for them.

Versions differ in two points. NUMA nodes are around packages in version 1, and inside them since 2. The kind
of an operating-system device is a number up to version 2, and a sum of bits since 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from probes.base import cpu_list, mask_numbers, normal_bus_id
from probes.files import XmlElement
from probes.nccl import integer, number
from probes.paths import pci_ids
from probes.topology import NumaNode, PciDevice

__all__ = ["METHOD", "MachineReader", "OsDevice", "infos", "of_kind", "read_object"]

METHOD = "hwloc"
_IDS = re.compile(
    r"([0-9a-f]{4})(?:\s*\[([0-9a-f]{4}):([0-9a-f]{4})\])?(?:\s*\[([0-9a-f]{4}):([0-9a-f]{4})\])?.*", re.I
)
_KINDS = {1: "gpu", 2: "network", 3: "rdma", 5: "gpu"}
_KIND_BITS = ((32, "rdma"), (16, "network"), (4, "gpu"), (8, "gpu"))


@dataclass(frozen=True)
class OsDevice:
    """The system's name of a PCI function ("nvml0", "eth0", "mlx5_0"); ``kind``: gpu, network, rdma or ""."""

    name: str
    kind: str
    bus_id: str
    infos: Mapping[str, str]


@dataclass(frozen=True)
class _Above:
    """The ancestors of an object: PCI bridge, host bridge, depth below it, NUMA node, package."""

    bus_id: str = ""
    root: str = ""
    depth: int = 0
    numa: int | None = None
    package: Mapping[str, str] = field(default_factory=dict)


@dataclass
class MachineReader:
    """One machine while its objects are read; ``places`` maps hwloc's own numbers to devices."""

    version: int
    numa: dict[int, NumaNode] = field(default_factory=dict)
    pci: dict[str, PciDevice] = field(default_factory=dict)
    subtypes: dict[str, str] = field(default_factory=dict)
    system: list[OsDevice] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    cores: int = 0
    packages: list[Mapping[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def infos(element: XmlElement) -> dict[str, str]:
    """Return the named facts of an object."""
    return {child.get("name"): child.get("value") for child in element.children if child.tag == "info"}


def read_object(element: XmlElement, reading: MachineReader, above: _Above | None = None) -> None:
    """Read one object and its descendants."""
    above = above or _Above()
    nodes = mask_numbers(element.get("nodeset"))
    if len(nodes) == 1:
        above = replace(above, numa=nodes[0])
    kind = element.get("type")
    if kind in ("Package", "Socket"):
        above = replace(above, package=infos(element))
        reading.packages.append(above.package)
        reading.places[f"Package:{element.get('gp_index')}"] = (
            "" if above.numa is None else f"numa{above.numa}"
        )
    elif kind == "NUMANode":
        _numa(element, reading, above)
    elif kind == "Core":
        reading.cores += 1
    elif kind == "Bridge" and element.get("bridge_type").startswith("0-"):
        above = replace(above, bus_id="", root=f"pci{element.get('bridge_pci')}", depth=0)
    elif kind in ("Bridge", "PCIDev"):
        bus_id = _pci(element, reading, above)
        above = replace(above, bus_id=bus_id or above.bus_id, depth=above.depth + 1)
    elif kind == "OSDev":
        _os_device(element, reading, above)
    for child in element.children:
        if child.tag == "object":
            read_object(child, reading, above)


def _numa(element: XmlElement, reading: MachineReader, above: _Above) -> None:
    index = integer(element.get("os_index"))
    if index is None:
        reading.problems.append(f"line {element.line}: a NUMANode without a number (os_index)")
        return
    about = above.package or next(
        (infos(child) for child in element.children if child.get("type") in ("Package", "Socket")), {}
    )
    reading.numa[index] = NumaNode(
        index=index,
        method=METHOD,
        cpus=cpu_list(mask_numbers(element.get("cpuset"))),
        memory_bytes=integer(element.get("local_memory")),
        vendor=about.get("CPUVendor", ""),
        family=integer(about.get("CPUFamilyNumber", "")),
        model=integer(about.get("CPUModelNumber", "")),
    )


def _pci(element: XmlElement, reading: MachineReader, above: _Above) -> str:
    try:
        bus_id = normal_bus_id(element.get("pci_busid"))
    except ValueError as error:
        reading.problems.append(f"line {element.line}: <object> pci_busid: {error}")
        return ""
    # A device that is hidden from other tools may be listed here; its ids read as zeros.
    ids = _IDS.fullmatch(element.get("pci_type").strip())
    pci_class, vendor, device, *subsystem = (
        "" if not part or part == "0000" else f"0x{part.lower()}"
        for part in (ids.groups() if ids else ("",) * 5)
    )
    speed = number(element.get("pci_link_speed"))
    is_bridge = element.get("type") == "Bridge"
    reading.pci.setdefault(
        bus_id,
        PciDevice(
            bus_id=bus_id,
            method=METHOD,
            parent=above.bus_id,
            root=above.root,
            role=pci_ids.port_role(above.depth) if is_bridge else "device",
            pci_class=pci_class,
            vendor=vendor,
            device=device,
            subsystem_vendor=subsystem[0],
            subsystem_device=subsystem[1],
            numa=above.numa,
            raw_gbs=speed or None,
        ),
    )
    reading.subtypes[bus_id] = element.get("subtype")
    reading.places[f"PCIDev:{element.get('gp_index')}"] = bus_id
    return bus_id


def _os_device(element: XmlElement, reading: MachineReader, above: _Above) -> None:
    type_number = integer(element.get("osdev_type"))
    if reading.version >= 3:
        kind = next((name for bit, name in _KIND_BITS if type_number is not None and type_number & bit), "")
    else:
        kind = _KINDS.get(-1 if type_number is None else type_number, "")
    reading.system.append(OsDevice(element.get("name"), kind, above.bus_id, infos(element)))
    reading.places[f"OSDev:{element.get('gp_index')}"] = above.bus_id


def of_kind(reading: MachineReader, bus_id: str, kind: str) -> Iterator[OsDevice]:
    """Return the system's devices of one kind on a PCI function."""
    return (device for device in reading.system if device.bus_id == bus_id and device.kind == kind)
