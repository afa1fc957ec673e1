"""NCCL's topology XML, as NVIDIA's and AMD's libraries dump it and as clouds ship it in part.

A dump has an element for every GPU and every network port. A cloud's file often lists PCI functions only,
because NCCL completes it on the machine; then the PCI class tells what a function is. Counting rule: a GPU is
a ``<gpu>``, or a function of a GPU's class if a host has no ``<gpu>``. A NIC is one network port: one
``<net>`` of each name, and each network function without a ``<net>``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from probes.base import DataError
from probes.files import XmlElement, parse_xml
from probes.nccl.elements import METHOD, HostReader, bare_gpu, read_cpu
from probes.nccl.links import links_of
from probes.nccl.ports import is_physical
from probes.paths import pci_ids
from probes.topology import FabricLink, Finding, Host, Nic, PciDevice, Topology

__all__ = ["read"]

_HINT = "NCCL writes its topology to the file that NCCL_TOPO_DUMP_FILE names."


def read(content: bytes, source: str) -> Topology:
    """Read the machine that an NCCL topology file describes; one host for each host hash in it.

    Raises DataError for other files, and for a topology with neither a GPU nor a NIC.
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


def _read(root: XmlElement, source: str) -> list[HostReader]:
    _refuse_other_files(root, source)
    # Devices outside any <cpu> are read as if they were inside a <cpu> whose NUMA node is unknown.
    loose = [element for element in root.children if element.tag in ("pci", "nic")]
    cpus = [element for element in root.children if element.tag == "cpu"]
    cpus += [XmlElement("cpu", {}, root.line, loose)] if loose else []
    stem = PurePath(source).stem
    hashes = list(dict.fromkeys(cpu.get("host_hash") for cpu in cpus if cpu.get("host_hash"))) or [""]
    readings = {key: HostReader(stem if len(hashes) == 1 else f"{stem}-{i}") for i, key in enumerate(hashes)}
    for cpu in cpus:
        read_cpu(cpu, readings[cpu.get("host_hash") or hashes[0]])
    found = list(readings.values())
    for reading in found:
        _classify(reading)
    problems = [problem for reading in found for problem in reading.problems]
    if not problems and not any(r.gpus or any(nic.physical for nic in r.nics.values()) for r in found):
        problems = [_neither([device for reading in found for device in reading.pci.values()])]
    if problems:
        raise DataError(source, problems)
    return found


def _refuse_other_files(root: XmlElement, source: str) -> None:
    if root.tag == "graphs":
        text = (
            "expected NCCL's topology (<system>), found a graph file of NCCL (<graphs>): rings and trees only"
        )
        hint = "Pass the file of NCCL_TOPO_DUMP_FILE, not that of NCCL_GRAPH_DUMP_FILE."
        raise DataError(source, [text], hint=hint)
    if root.tag != "system":
        raise DataError(source, [f"expected NCCL's topology (<system>), found <{root.tag}>"])


def _neither(found: list[PciDevice]) -> str:
    if not found:
        return "holds neither a GPU nor the port of a NIC: there is no PCI device in it"
    nameless = sum(not device.pci_class for device in found)
    if nameless:
        return (
            f"holds neither a GPU nor a NIC that can be recognized: {nameless} of its {len(found)} PCI "
            "devices have neither a class nor elements inside (NCCL completes such a file on its machine)"
        )
    return f"holds neither a GPU nor a NIC: its {len(found)} PCI devices are of other classes"


def _classify(reading: HostReader) -> None:
    """Separate real ports from software ones, and classify functions without an element by their class."""
    for name, nic in reading.nics.items():
        reading.nics[name] = replace(nic, physical=is_physical(nic, reading.places[name]))
        if reading.nics[name].physical and not nic.bus_id:
            why = "has no PCI device: counted as a port because of its name"
            reading.notes.append(f"{reading.name}/{name} {why}")
    shared = {bus_id.partition("/")[0] for bus_id in reading.gpus if "/" in bus_id}
    if shared:
        _number_partitions(reading)
    carriers = {nic.bus_id for nic in reading.nics.values()} | shared
    from_class = not reading.gpus
    for bus_id, device in reading.pci.items():
        maker = "" if device.vendor in ("0x0000", "0xffff") else device.vendor
        if pci_ids.is_network(device.pci_class) and bus_id not in carriers:
            reading.nics[bus_id] = Nic(bus_id, METHOD, physical=True, bus_id=bus_id, numa=device.numa)
        elif from_class and pci_ids.is_gpu(device.pci_class, maker):
            reading.gpus[bus_id] = bare_gpu(device, len(reading.gpus))
        elif not device.pci_class and device.role == "device" and bus_id not in {*carriers, *reading.gpus}:
            reading.findings.append(Finding("no-class", bus_id, "has no class: neither a GPU nor a NIC"))
        elif bus_id not in {*shared, *reading.gpus} and pci_ids.is_gpu(device.pci_class, maker):
            reading.notes.append(f"{reading.name}/{bus_id} has a GPU's class but no <gpu>: it is not counted")
    if from_class and reading.gpus:
        reading.notes.append(
            f"{reading.name}: GPUs are recognized by their PCI class: the file has no NVLinks"
        )


def _number_partitions(reading: HostReader) -> None:
    """Renumber all GPUs: partitions of one GPU share its device number in the file."""

    def place(bus_id: str) -> tuple[int, int]:
        index = reading.gpus[bus_id].index
        return (1 << 31 if index is None else index, order.index(bus_id))

    order = list(reading.gpus)
    for number, bus_id in enumerate(sorted(order, key=place)):
        reading.gpus[bus_id] = replace(reading.gpus[bus_id], index=number)


def _host(reading: HostReader, links: tuple[FabricLink, ...]) -> Host:
    return Host(
        name=reading.name,
        method=METHOD,
        numa=tuple(reading.numa[index] for index in sorted(reading.numa)),
        pci=tuple(reading.pci.values()),
        gpus=tuple(reading.gpus.values()),
        nics=tuple(reading.nics.values()),
        fabric=links,
    )
