"""This machine as the Linux kernel shows it: CPU, PCI tree, NUMA, network and InfiniBand ports.

The PCI tree is read from the real path of each device below /sys. An attribute that is unset or missing from
an old kernel is unknown. Every function takes the root of the file system, so that recorded machines can be
replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from probes.base import LARGEST, whole
from probes.paths import pci_ids
from probes.sysfs.net import read_nics
from probes.sysfs.text import cpu_list, decimal, lines, number, text
from probes.topology import Gpu, Host, NumaNode, PciDevice, Topology

__all__ = ["METHOD", "read"]

METHOD = "sysfs"
# A VGA controller with less memory of its own counts as integrated graphics, which run no ranks.
_LEAST_VRAM_BYTES = 2 << 30
_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def read(host: str, root: Path = Path("/")) -> Topology:
    """Read one host from /sys below ``root``; missing parts become notes."""
    sys = root / "sys"
    notes = (
        [] if sys.joinpath("bus/pci/devices").is_dir() else ["sysfs: /sys/bus/pci is not there: no PCI tree"]
    )
    if not sys.joinpath("class/infiniband").is_dir():
        notes.append("sysfs: /sys/class/infiniband is not there: no RDMA device, or its driver is not loaded")
    pci = tuple(_pci(sys))
    found = Host(
        name=host,
        method=METHOD,
        numa=tuple(_numa(sys, root)),
        pci=pci,
        gpus=tuple(_gpu(device, sys) for device in pci if _is_gpu(device, sys)),
        nics=read_nics(sys, {device.bus_id: device for device in pci}, METHOD),
    )
    return Topology((found,), notes=tuple(f"{host}: {note}" for note in notes))


def _numa(sys: Path, root: Path) -> Iterator[NumaNode]:
    processor = _processor(root)
    numbered = {whole(folder.name[4:]): folder for folder in sys.glob("devices/system/node/node[0-9]*")}
    for index, folder in sorted((index, folder) for index, folder in numbered.items() if index is not None):
        memory = re.search(r"MemTotal:\s*([0-9]+) kB", lines(folder / "meminfo"))
        memory_kib = whole(memory[1], high=LARGEST // 1024) if memory else None
        yield NumaNode(
            index=index,
            method=METHOD,
            cpus=cpu_list(folder / "cpulist"),
            memory_bytes=None if memory_kib is None else 1024 * memory_kib,
            distances=tuple(
                distance
                for word in text(folder / "distance").split()
                if (distance := whole(word)) is not None
            ),
            arch=processor.arch,
            vendor=processor.vendor,
            family=processor.family,
            model=processor.model,
        )


def _pci(sys: Path) -> Iterator[PciDevice]:
    found: dict[str, PciDevice] = {}
    for entry in sorted(sys.glob("bus/pci/devices/*")):
        place = entry.resolve()
        above = [part for part in place.parts[:-1] if _FUNCTION.fullmatch(part)]
        roots = [part for part in place.parts if _ROOT.fullmatch(part)]
        found[entry.name] = PciDevice(
            bus_id=entry.name,
            method=METHOD,
            parent=above[-1] if above else "",
            root=roots[-1] if roots else "",
            pci_class=text(place / "class"),
            vendor=text(place / "vendor"),
            device=text(place / "device"),
            subsystem_vendor=text(place / "subsystem_vendor"),
            subsystem_device=text(place / "subsystem_device"),
            physical_function=(place / "physfn").resolve().name if (place / "physfn").exists() else "",
            numa=number(place / "numa_node"),
            cpus=cpu_list(place / "local_cpulist"),
            speed_gts=pci_ids.speed_gts(text(place / "current_link_speed")),
            width=_width(place / "current_link_width"),
            max_speed_gts=pci_ids.speed_gts(text(place / "max_link_speed")),
            max_width=_width(place / "max_link_width"),
        )
    for device in found.values():
        above = _above(device, found)
        role = pci_ids.port_role(len(above)) if pci_ids.is_bridge(device.pci_class) else "device"
        yield replace(device, parent=above[0] if above else "", role=role)


def _above(device: PciDevice, found: dict[str, PciDevice]) -> list[str]:
    """Return the bridges above a device, nearest first; none if a damaged recording has a cycle."""
    above: list[str] = []
    here = found.get(device.parent)
    while here is not None:
        if here.bus_id == device.bus_id or here.bus_id in above:
            return []
        above.append(here.bus_id)
        here = found.get(here.parent)
    return above


def _is_gpu(device: PciDevice, sys: Path) -> bool:
    if not pci_ids.is_gpu(device.pci_class, device.vendor, device.device):
        return False
    vram_bytes = decimal(sys / "bus/pci/devices" / device.bus_id / "mem_info_vram_total")
    return not (device.pci_class.startswith("0x0300") and 0 < (vram_bytes or 0) < _LEAST_VRAM_BYTES)


def _gpu(device: PciDevice, sys: Path) -> Gpu:
    place = sys / "bus/pci/devices" / device.bus_id
    return Gpu(
        bus_id=device.bus_id,
        method=METHOD,
        vendor=pci_ids.gpu_vendor(device.vendor),
        # Only AMD's driver has this attribute.
        memory_bytes=decimal(place / "mem_info_vram_total"),
        numa=device.numa,
    )


def _width(path: Path) -> int | None:
    width = decimal(path)
    # 0 and 255 mean "no link": a device inside the processor, or one that is powered down.
    return None if width in (None, 0, 255) else width


@dataclass(frozen=True)
class _Processor:
    """The kind of a CPU, which determines the link between NUMA nodes; "" and None if unknown."""

    arch: str = ""
    vendor: str = ""
    family: int | None = None
    model: int | None = None


def _processor(root: Path) -> _Processor:
    """Return the kind of the first CPU in /proc/cpuinfo; all CPUs of a machine are equal."""
    fields: dict[str, str] = {}
    for line in lines(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if "vendor_id" in fields:
        family, model = (whole(fields.get(name, "")) for name in ("cpu family", "model"))
        return _Processor("x86_64", fields["vendor_id"], family, model)
    if "CPU implementer" in fields:
        return _Processor("arm64", "", None, None)
    return _Processor("ppc64") if fields.get("cpu", "").startswith("POWER") else _Processor()
