"""The elements of NCCL's topology files, read one by one into the records of a host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from probes.base import normal_bus_id
from probes.files import XmlElement
from probes.nccl.links import FarEnd
from probes.nccl.ports import own_name
from probes.nccl.values import affinity_list, architecture, capability, flag, hexadecimal, integer
from probes.paths import pci_ids
from probes.topology import Finding, Gpu, Nic, NumaNode, PciDevice

__all__ = ["METHOD", "HostReader", "bare_gpu", "read_cpu"]

METHOD = "nccl_xml"


@dataclass
class HostReader:
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


def read_cpu(cpu: XmlElement, reading: HostReader) -> None:
    """Read everything inside a ``<cpu>``, which is treated as a host bridge of its own."""
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


def _inside(element: XmlElement, above: PciDevice, reading: HostReader) -> None:
    for child in element.children:
        if child.tag == "pci":
            _pci(child, above, reading)
        elif child.tag == "gpu":
            _gpu(child, above, reading)
        elif child.tag == "nic":
            _inside(child, above, reading)
        elif child.tag == "net":
            _net(child, above, reading)


def _pci(element: XmlElement, above: PciDevice, reading: HostReader) -> None:
    bus_id = _bus_id(element, "busid", reading)
    if not bus_id:
        return
    if bus_id in reading.pci:
        text = f"line {element.line} has this PCI device a second time; its first place counts"
        reading.findings.append(Finding("repeated", bus_id, text))
    pci_class = hexadecimal(element.get("class"))
    is_bridge = pci_ids.is_bridge(pci_class) or any(e.tag == "pci" for e in element.children)
    device = PciDevice(
        bus_id=bus_id,
        method=METHOD,
        parent=above.bus_id,
        root=above.root,
        role="switch" if is_bridge else "device",
        pci_class=pci_class,
        vendor=hexadecimal(element.get("vendor")),
        device=hexadecimal(element.get("device")),
        subsystem_vendor=hexadecimal(element.get("subsystem_vendor")),
        subsystem_device=hexadecimal(element.get("subsystem_device")),
        numa=above.numa,
        max_speed_gts=pci_ids.speed_gts(element.get("link_speed")),
        # A width of 0 means unknown, in virtual machines and with some drivers.
        max_width=integer(element.get("link_width")) or None,
    )
    device = reading.pci.setdefault(bus_id, device)
    gpus = [child for child in element.children if child.tag == "gpu"]
    if len({(gpu.get("mlopart"), gpu.get("rank")) for gpu in gpus}) < 2:
        _inside(element, device, reading)
        return
    _inside(replace(element, children=[one for one in element.children if one not in gpus]), device, reading)
    for number, gpu in enumerate(gpus):
        _gpu(gpu, reading.pci.setdefault(f"{bus_id}/{number}", _partition(device, number)), reading)


def _partition(device: PciDevice, number: int) -> PciDevice:
    """Return a PCI record for one of several GPUs that share a PCI function and its link."""
    return replace(
        device,
        bus_id=f"{device.bus_id}/{number}",
        parent=device.bus_id,
        role="device",
        max_speed_gts=None,
        max_width=None,
    )


def _gpu(element: XmlElement, above: PciDevice, reading: HostReader) -> None:
    if not above.bus_id:
        reading.problems.append(f"line {element.line}: expected <gpu> inside a <pci>, found it outside")
        return
    sm, gcn = element.get("sm"), element.get("gcn")
    gpu = bare_gpu(above, integer(element.get("dev")))
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


def bare_gpu(device: PciDevice, index: int | None) -> Gpu:
    """Return the record of a GPU from its PCI function alone."""
    return Gpu(
        bus_id=device.bus_id,
        method=METHOD,
        index=index,
        vendor=pci_ids.gpu_vendor(device.vendor),
        numa=device.numa,
    )


def _far_end(element: XmlElement, above: PciDevice, reading: HostReader) -> None:
    kind: Literal["nvlink", "xgmi", "c2c"] = "nvlink"
    if element.tag in ("xgmi", "c2c"):
        kind = "xgmi" if element.tag == "xgmi" else "c2c"
    target = "" if kind == "c2c" else _bus_id(element, "target", reading)
    count = integer(element.get("count"))
    numa = -1 if above.numa is None else above.numa
    mbs = (integer(element.get("bw")) or 0) if kind == "c2c" else 0
    target_class = hexadecimal(element.get("tclass"))
    reading.far_ends.append(
        FarEnd(
            source=above.bus_id,
            target=target,
            kind=kind,
            count=1 if count is None else count,
            target_class=target_class,
            numa=numa,
            gbs=mbs / 1000 if mbs > 0 else None,
        )
    )


def _net(element: XmlElement, above: PciDevice, reading: HostReader) -> None:
    port = integer(element.get("port")) or None
    name = own_name(element.get("name") or f"net{element.get('dev')}", port, above.bus_id, reading.nics)
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
        index=integer(element.get("dev")),
    )
    reading.nics.setdefault(name, nic)


def _bus_id(element: XmlElement, attribute: str, reading: HostReader) -> str:
    try:
        return normal_bus_id(element.get(attribute))
    except ValueError as error:
        reading.problems.append(f"line {element.line}: <{element.tag}> {attribute}: {error}")
        return ""
