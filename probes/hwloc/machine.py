"""hwloc's XML, as `lstopo topology.xml` writes it: the machine, its NUMA nodes and PCI tree, its devices.

Counting rule: a GPU is a PCI function that NVML, CUDA or ROCm names, or that has a GPU's class. A NIC is one
network port: each network interface of a PCI function, or each RDMA port of a function without interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from probes.base import DataError, cpu_list, mask_numbers
from probes.files import XmlElement, parse_xml
from probes.hwloc.links import links, numa_distances, read_distances
from probes.hwloc.objects import METHOD, MachineReader, OsDevice, infos, of_kind, read_object
from probes.nccl import integer
from probes.paths import Bandwidths, pci_ids
from probes.topology import Gpu, Host, Nic, PciDevice, Topology

__all__ = ["read"]

_HINT = "lstopo writes it: lstopo --of xml topology.xml (older versions: with --whole-io)."
_COMPUTE = re.compile(r"(nvml|rsmi|cuda)([0-9]{1,6})")
_PORT_STATE = re.compile(r"Port([0-9]{1,6})State")
_MEMORY = re.compile(r"([0-9]{1,15})\s*(KiB|MiB|GiB|kB)?")
_UNITS = {"KiB": 1 << 10, "kB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_PORT_STATES = {1: "down", 2: "init", 3: "armed", 4: "active"}


def read(content: bytes, source: str, tables: Bandwidths) -> Topology:
    """Read the machine that hwloc describes; raises DataError for other files."""
    try:
        return _read(parse_xml(content, source, "topology"), source, tables)
    except DataError as error:
        error.hint = error.hint or _HINT
        raise


def _read(root: XmlElement, source: str, tables: Bandwidths) -> Topology:
    if root.tag != "topology":
        raise DataError(source, [f"expected hwloc's <topology>, found <{root.tag}>"])
    machine = next(
        (e for e in root.children if e.tag == "object" and e.get("type") in ("Machine", "System")), None
    )
    if machine is None:
        raise DataError(source, ['expected <object type="Machine"> in hwloc\'s <topology>, found none'])
    reading = MachineReader(integer(root.get("version").partition(".")[0]) or 1)
    read_object(machine, reading)
    matrices = read_distances(root, reading)
    if reading.problems:
        raise DataError(source, reading.problems)
    about = {**infos(machine), **infos(root)}
    gpus = {gpu.bus_id: gpu for gpu in _gpus(reading)}
    switches = {bus_id for bus_id, device in reading.pci.items() if _is_switch(device, reading)}
    distances = numa_distances(matrices)
    host = Host(
        name=about.get("HostName") or PurePath(source).stem,
        method=METHOD,
        cores=reading.cores or None,
        cpus=cpu_list(mask_numbers(machine.get("allowed_cpuset") or machine.get("cpuset"))),
        memory_bytes=sum(node.memory_bytes or 0 for node in reading.numa.values()) or None,
        numa=tuple(
            replace(
                reading.numa[index], distances=distances.get(index, ()), arch=about.get("Architecture", "")
            )
            for index in sorted(reading.numa)
        ),
        pci=tuple(reading.pci.values()),
        gpus=tuple(gpus.values()),
        nics=tuple(_nics(reading)),
        fabric=tuple(links(matrices, gpus, switches, reading.places, tables)),
    )
    notes = (
        ()
        if reading.pci
        else (f"{host.name}: hwloc was not asked for PCI devices: no GPU or NIC can be seen",)
    )
    return Topology((host,), notes=notes)


def _is_switch(device: PciDevice, reading: MachineReader) -> bool:
    return reading.subtypes[device.bus_id] == "NVSwitch" or pci_ids.is_nvswitch(
        device.pci_class, device.vendor
    )


def _gpus(reading: MachineReader) -> Iterator[Gpu]:
    for bus_id, device in reading.pci.items():
        named = [entry for entry in of_kind(reading, bus_id, "gpu") if _COMPUTE.fullmatch(entry.name)]
        if device.role != "device" or not (
            named or pci_ids.is_gpu(device.pci_class, device.vendor, device.device)
        ):
            continue
        said: dict[str, str] = {}
        for entry in of_kind(reading, bus_id, "gpu"):
            said.update(entry.infos)
        yield Gpu(
            bus_id=bus_id,
            method=METHOD,
            index=_index(named),
            vendor=pci_ids.gpu_vendor(device.vendor),
            name=said.get("GPUModel", ""),
            uuid=said.get("NVIDIAUUID") or said.get("AMDUUID", ""),
            memory_bytes=_memory_bytes(said.get("CUDAGlobalMemorySize", "")),
            arch=pci_ids.architecture(device.vendor, device.device),
            numa=device.numa,
        )


def _index(named: list[OsDevice]) -> int | None:
    """Return the GPU's number in NVML or ROCm, else in CUDA, whose numbers depend on the process."""
    numbers = {match[1]: int(match[2]) for entry in named if (match := _COMPUTE.fullmatch(entry.name))}
    return next((numbers[backend] for backend in ("nvml", "rsmi", "cuda") if backend in numbers), None)


def _memory_bytes(text: str) -> int | None:
    match = _MEMORY.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2] or "KiB"] if match else None


def _nics(reading: MachineReader) -> Iterator[Nic]:
    taken: set[str] = set()
    for bus_id, device in reading.pci.items():
        interfaces, cards = list(of_kind(reading, bus_id, "network")), list(of_kind(reading, bus_id, "rdma"))
        rdma = cards[0] if cards else None
        first = Nic("", METHOD, physical=True, bus_id=bus_id, numa=device.numa)
        if rdma:
            first = replace(first, rdma_device=rdma.name, guid=rdma.infos.get("NodeGUID", ""))
        if interfaces:
            ports = [replace(first, name=port.name, mac=port.infos.get("Address", "")) for port in interfaces]
        elif rdma:
            ports = list(_rdma_ports(first, rdma))
        elif pci_ids.is_network(device.pci_class) and device.role == "device":
            ports = [replace(first, name=bus_id)]
        else:
            ports = []
        for port in ports:
            name = f"{port.name}@{bus_id}" if port.name in taken else port.name
            taken.add(name)
            yield replace(port, name=name)


def _rdma_ports(first: Nic, rdma: OsDevice) -> Iterator[Nic]:
    """Yield one NIC for each port whose state is known; if none is, one NIC for port 1."""
    states = {int(m[1]): value for key, value in rdma.infos.items() if (m := _PORT_STATE.fullmatch(key))}
    for number in sorted(states) or [1]:
        state = _PORT_STATES.get(integer(states.get(number, "")) or 0, "")
        name = rdma.name if number == 1 else f"{rdma.name}:{number}"
        yield replace(first, name=name, port=number, state=state)
