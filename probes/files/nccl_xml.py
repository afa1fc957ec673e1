"""NCCL's topology XML, as NVIDIA's and AMD's libraries dump it and as clouds ship it in part.

A dump has an element for every GPU and every network port. A file that a cloud ships often has PCI
functions only, to be completed on the machine: then their class says what they are. Counting rule:
a GPU is a ``<gpu>`` or, where a host has none, a function of a GPU's class; a NIC is one network
port: one ``<net>`` of each name, and each network function that has no ``<net>`` inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

from probes import devices
from probes.errors import DataError
from probes.files.nccl_links import FarEnd, links_of
from probes.files.nccl_values import affinity_list, architecture, capability, flag, integer, speed_gts
from probes.files.xml_tree import Element, parse_xml
from probes.topology import FabricLink, Finding, Gpu, Host, Nic, NumaNode, PciDevice, Topology, normal_bus_id

__all__ = ["METHOD", "read"]

METHOD = "nccl_xml"
_HINT = "NCCL writes its topology to the file that NCCL_TOPO_DUMP_FILE names."
_SOFTWARE = re.compile(
    r"lo$|br[-\d]|(tun|tap|gre|erspan|sit|ip6tnl|ip_vti|ip6_vti|dummy|ifb|bond|team|veth|vnet|virbr|docker"
    r"|podman|cni|cali|lxc|lxd|flannel|cilium|vxlan|geneve|kube|weave|ovs|macv|ipvl|wg|zt|tailscale)"
)


@dataclass
class _Reading:
    """One host while its elements are read."""

    name: str
    numa: dict[int, NumaNode] = field(default_factory=dict)
    pci: dict[str, PciDevice] = field(default_factory=dict)
    gpus: dict[str, Gpu] = field(default_factory=dict)
    nics: dict[str, Nic] = field(default_factory=dict)
    places: dict[str, set[str]] = field(default_factory=dict)
    far_ends: list[FarEnd] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    roots: int = 0


def read(content: bytes, source: str) -> Topology:
    """The machine that an NCCL topology file describes; one host for each host hash in it.

    Raises DataError for what is not such a file, and for one that holds neither GPU nor NIC.
    """
    try:
        readings = _read(parse_xml(content, source), source)
    except DataError as error:
        error.hint = error.hint or _HINT
        raise
    findings: list[Finding] = []
    hosts = []
    for reading in readings:
        links, odd = links_of(reading.far_ends, reading.gpus, METHOD)
        hosts.append(_host(reading, links))
        findings += [replace(f, where=f"{reading.name}/{f.where}") for f in (*reading.findings, *odd)]
    return Topology(tuple(hosts), tuple(findings), tuple(note for r in readings for note in r.notes))


def _read(root: Element, source: str) -> list[_Reading]:
    if root.tag == "graphs":
        text = (
            "expected NCCL's topology (<system>), found an NCCL graph file (<graphs>): rings and trees only"
        )
        hint = "Pass the file of NCCL_TOPO_DUMP_FILE, not that of NCCL_GRAPH_DUMP_FILE."
        raise DataError(source, [text], hint=hint)
    if root.tag != "system":
        raise DataError(source, [f"expected NCCL's topology (<system>), found <{root.tag}>"])
    # Devices outside any <cpu> are read as if in one whose NUMA node is unknown.
    loose = [element for element in root.children if element.tag in ("pci", "nic")]
    cpus = [element for element in root.children if element.tag == "cpu"]
    cpus += [Element("cpu", {"numaid": "-1"}, root.line, loose)] if loose else []
    stem, hashes = PurePath(source).stem, list(dict.fromkeys(cpu.get("host_hash") for cpu in cpus))
    readings = {key: _Reading(stem if len(hashes) == 1 else f"{stem}-{i}") for i, key in enumerate(hashes)}
    for cpu in cpus:
        _cpu(cpu, readings[cpu.get("host_hash")])
    for reading in readings.values():
        _classify(reading)
    problems = [problem for reading in readings.values() for problem in reading.problems]
    if not problems and not any(reading.gpus or reading.nics for reading in readings.values()):
        problems = [_neither([device for reading in readings.values() for device in reading.pci.values()])]
    if problems:
        raise DataError(source, problems)
    return list(readings.values())


def _neither(found: list[PciDevice]) -> str:
    if not found:
        return "holds neither a GPU nor a NIC: there is no PCI device in it"
    nameless = sum(not device.pci_class for device in found)
    if nameless:
        return (
            f"holds neither a GPU nor a NIC that can be told: {nameless} of its {len(found)} PCI devices "
            "have no class and nothing inside (such a file only means something on the machine it is for)"
        )
    return f"holds neither a GPU nor a NIC: its {len(found)} PCI devices are of other classes"


def _cpu(cpu: Element, reading: _Reading) -> None:
    index = integer(cpu.get("numaid"))
    node = NumaNode(
        index=-1 if index is None else index,
        method=METHOD,
        cpus=affinity_list(cpu.get("affinity")),
        arch=cpu.get("arch"),
        vendor=cpu.get("vendor"),
        family=integer(cpu.get("familyid")),
        model=integer(cpu.get("modelid")),
    )
    reading.numa.setdefault(node.index, node)
    numa = node.index if node.index >= 0 else None
    _inside(cpu, PciDevice("", METHOD, root=f"cpu{reading.roots}", numa=numa), reading)
    reading.roots += 1


def _inside(element: Element, above: PciDevice, reading: _Reading) -> None:
    for child in element.children:
        if child.tag == "pci":
            _pci(child, above, reading)
        elif child.tag == "gpu":
            _gpu(child, above, reading)
        elif child.tag == "nic":
            for net in child.children:
                if net.tag == "net":
                    _net(net, above, reading)


def _pci(element: Element, above: PciDevice, reading: _Reading) -> None:
    bus_id = _bus_id(element, "busid", reading)
    if not bus_id:
        return
    if bus_id in reading.pci:
        text = f"line {element.line} has this PCI device again; where the first is, is taken"
        reading.findings.append(Finding("repeated", bus_id, text))
    is_bridge = devices.is_bridge(element.get("class")) or any(e.tag == "pci" for e in element.children)
    device = PciDevice(
        bus_id=bus_id,
        method=METHOD,
        parent=above.bus_id,
        root=above.root,
        role="switch" if is_bridge else "device",
        pci_class=element.get("class").lower(),
        vendor=element.get("vendor").lower(),
        device=element.get("device").lower(),
        subsystem_vendor=element.get("subsystem_vendor").lower(),
        subsystem_device=element.get("subsystem_device").lower(),
        numa=above.numa,
        max_speed_gts=speed_gts(element.get("link_speed")),
        # Virtual machines and drivers that cannot tell write a width of 0.
        max_width=integer(element.get("link_width")) or None,
    )
    _inside(element, reading.pci.setdefault(bus_id, device), reading)


def _gpu(element: Element, above: PciDevice, reading: _Reading) -> None:
    if not above.bus_id:
        reading.problems.append(f"line {element.line}: expected <gpu> inside a <pci>, found it outside")
        return
    sm, gcn = element.get("sm"), element.get("gcn")
    gpu = _bare_gpu(above, integer(element.get("dev")))
    reading.gpus[above.bus_id] = replace(
        gpu,
        vendor=gpu.vendor or ("amd" if gcn else "nvidia"),
        arch=architecture(sm, gcn),
        compute_capability=capability(sm, gcn),
        gpudirect=flag(element.get("gdr")),
    )
    for child in element.children:
        if child.tag in ("nvlink", "xgmi", "c2c"):
            _far_end(child, above, reading)


def _bare_gpu(device: PciDevice, index: int | None) -> Gpu:
    return Gpu(
        bus_id=device.bus_id,
        method=METHOD,
        index=index,
        vendor=devices.gpu_vendor(device.vendor),
        numa=device.numa,
    )


def _far_end(element: Element, above: PciDevice, reading: _Reading) -> None:
    kind: Literal["nvlink", "xgmi", "c2c"] = "nvlink"
    if element.tag in ("xgmi", "c2c"):
        kind = "xgmi" if element.tag == "xgmi" else "c2c"
    target = "" if kind == "c2c" else _bus_id(element, "target", reading)
    count = integer(element.get("count"))
    numa = -1 if above.numa is None else above.numa
    target_class = element.get("tclass").lower()
    reading.far_ends.append(
        FarEnd(above.bus_id, target, kind, 1 if count is None else count, target_class, numa)
    )


def _net(element: Element, above: PciDevice, reading: _Reading) -> None:
    port = integer(element.get("port")) or None
    name = _port_name(element.get("name") or f"net{element.get('dev')}", port, above, reading)
    reading.places.setdefault(name, set()).add(above.bus_id or above.root)
    speed = integer(element.get("speed"))
    nic = Nic(
        name=name,
        method=METHOD,
        bus_id=above.bus_id,
        port=port,
        speed_mbit=speed if speed and speed > 0 else None,
        numa=above.numa,
        guid=element.get("guid"),
        gpudirect=flag(element.get("gdr")),
    )
    reading.nics.setdefault(name, nic)


def _port_name(name: str, port: int | None, above: PciDevice, reading: _Reading) -> str:
    """A name of its own: both ports of a card, or the cards of a plugin, may have the same in the file."""
    if not above.bus_id:
        return name
    if name in reading.nics and reading.nics[name].bus_id != above.bus_id:
        name = f"{name}@{above.bus_id}"
    if name in reading.nics and reading.nics[name].port != port:
        name = f"{name}:{port or 0}"
    return name


def _bus_id(element: Element, attribute: str, reading: _Reading) -> str:
    try:
        return normal_bus_id(element.get(attribute))
    except ValueError as error:
        reading.problems.append(f"line {element.line}: <{element.tag}> {attribute}: {error}")
        return ""


def _classify(reading: _Reading) -> None:
    """Tell real ports from software ones, and let classes say what no element does."""
    for name, nic in reading.nics.items():
        reading.nics[name] = replace(nic, physical=_is_physical(nic, reading))
    carriers = {nic.bus_id for nic in reading.nics.values()}
    from_class = not reading.gpus
    for bus_id, device in reading.pci.items():
        maker = "" if device.vendor in ("0x0000", "0xffff") else device.vendor
        if devices.is_network(device.pci_class) and bus_id not in carriers:
            reading.nics[bus_id] = Nic(bus_id, METHOD, physical=True, bus_id=bus_id, numa=device.numa)
        elif from_class and devices.is_gpu(device.pci_class, maker):
            reading.gpus[bus_id] = _bare_gpu(device, len(reading.gpus))
        elif not device.pci_class and device.role == "device" and bus_id not in {*carriers, *reading.gpus}:
            reading.findings.append(Finding("no-class", bus_id, "has no class: neither a GPU nor a NIC"))
    if from_class and reading.gpus:
        reading.notes.append(f"{reading.name}: GPUs are told by their PCI class: the file has no NVLinks")


def _is_physical(nic: Nic, reading: _Reading) -> bool:
    if "+" in nic.name:  # NCCL's own fusion of several ports, which are listed too
        return False
    if nic.bus_id:
        return True
    # Without a PCI device NCCL shows a software interface below every CPU that has a GPU.
    if len(reading.places[nic.name]) > 1 or _SOFTWARE.match(nic.name):
        return False
    reading.notes.append(f"{reading.name}/{nic.name} has no PCI device: counted as a port for its name")
    return True


def _host(reading: _Reading, links: tuple[FabricLink, ...]) -> Host:
    return Host(
        name=reading.name,
        method=METHOD,
        numa=tuple(reading.numa[index] for index in sorted(reading.numa)),
        pci=tuple(reading.pci.values()),
        gpus=tuple(reading.gpus.values()),
        nics=tuple(reading.nics.values()),
        fabric=links,
    )
