"""The PCI tree: the bridges above a function, and the present and greatest speed of its PCIe link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from probes.topology import Gpu, Host, Nic, PciDevice

__all__ = ["Uplink", "chain", "flat", "functions", "is_same_model", "numa_of", "states_fabric", "uplink"]

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Uplink:
    """A PCIe link: GT/s per lane and number of lanes, current and maximum; None if unknown."""

    speed_gts: float | None
    width: int | None
    max_speed_gts: float | None
    max_width: int | None

    def __str__(self) -> str:
        speed, width = self.max_speed_gts or self.speed_gts, self.width or self.max_width
        lanes = "" if width is None else f" x{width}"
        return f"PCIe {speed:g} GT/s{lanes}" if speed else f"PCIe{lanes}"


def functions(host: Host) -> dict[str, PciDevice]:
    """Return the PCI functions of a host by bus id."""
    return {device.bus_id: device for device in host.pci}


def is_same_model(host: Host, one: Gpu, other: Gpu) -> bool:
    """Return whether two GPUs have one PCI model; where that is unknown, whether they have one name."""
    devices = functions(host)
    models = [
        (device.vendor, device.device) if device is not None and device.device else None
        for device in (devices.get(one.bus_id), devices.get(other.bus_id))
    ]
    return models[0] == models[1] if all(models) else one.name == other.name


def chain(bus_id: str, devices: Mapping[str, PciDevice]) -> list[PciDevice]:
    """Return a function and the bridges above it, nearest first; empty if it is not in the tree."""
    found: dict[str, PciDevice] = {}
    while bus_id in devices and bus_id not in found:
        found[bus_id] = devices[bus_id]
        bus_id = devices[bus_id].parent
    return list(found.values())


def numa_of(device: Gpu | Nic, devices: Mapping[str, PciDevice]) -> int | None:
    """Return the NUMA node of a device, else of its PCI function; None if both are unknown."""
    function = devices.get(device.bus_id)
    return device.numa if device.numa is not None or function is None else function.numa


def uplink(device: PciDevice, devices: Mapping[str, PciDevice]) -> Uplink:
    """Return the link above ``device``; the port at the link's upper end limits the maximum."""
    above = devices.get(device.parent)
    ports = [above] if above is not None and above.role in ("root", "downstream") else []
    ends = [device, *ports]
    return Uplink(
        device.speed_gts,
        device.width,
        _least(end.max_speed_gts for end in ends),
        _least(end.max_width for end in ends),
    )


def _least(values: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in values if value), default=None)


def flat(host: Host) -> bool:
    """Return whether no GPU or NIC has a bridge above it in the PCI tree, as in virtual machines."""
    devices = functions(host)
    ends: list[Gpu | Nic] = [*host.gpus, *host.physical_nics]
    return not any(len(chain(end.bus_id, devices)) > 1 for end in ends)


def states_fabric(host: Host) -> bool:
    """Return whether a source could report NVLinks: the driver, or a file that has paths between GPUs."""
    has_driver = any(gpu.arch and gpu.method_of.get("arch") != "table" for gpu in host.gpus)
    has_paths = any(matrix.what == "path" for matrix in host.matrices)
    return bool(host.fabric) or has_driver or has_paths or any(gpu.peers for gpu in host.gpus)
