"""The device tree of a host as lines, for text and pictures: NUMA nodes, PCIe bridges and switches, devices.

Devices that carry no traffic of collectives are left out, and so are bridges with only one device below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from probes.base import plural, some
from probes.paths import is_same_model, link_gbs, load, pcie_words, uplink
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice

__all__ = ["TreeLine", "counted", "device_tree", "fabric_words", "gib", "labels_of"]

_FABRIC_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C"}
_MOST_NAMES = 6


@dataclass(frozen=True)
class TreeLine:
    """One line of the tree; ``key`` is the device's name in records, ``pcie`` the speed of its slot."""

    depth: int
    kind: Literal["numa", "bridge", "switch", "gpu", "nic", "nvswitch", "software"]
    key: str
    bus_id: str
    words: tuple[str, ...]
    pcie: str = ""


def device_tree(host: Host) -> list[TreeLine]:
    """Return every line of a host's tree, from top to bottom."""
    return list(_Tree(host).lines())


def labels_of(host: Host) -> Mapping[str, str]:
    """Map each GPU's bus id to GPU<index>, and each NIC's name to NIC<n>."""
    gpus = {gpu.bus_id: f"GPU{gpu.index}" for gpu in host.gpus}
    return {**gpus, **{nic.name: f"NIC{number}" for number, nic in enumerate(host.physical_nics)}}


def gib(size_bytes: int) -> str:
    """Return a size such as 80 GiB."""
    return f"{size_bytes / 2**30:.4g} GiB"


def counted(number: int, thing: str) -> str:
    """Return a count such as 8 GPUs or no GPUs."""
    return plural(number, thing) if number else f"no {thing}s"


class _Tree:
    """One host's devices below NUMA nodes, host bridges and switches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._labels = labels_of(host)
        self._devices = {device.bus_id: device for device in host.pci}
        self._below: dict[str, list[str]] = {}
        for bus_id in self._at_places():
            self._attach(bus_id)

    def lines(self) -> Iterator[TreeLine]:
        tops = self._below.get("", [])
        without = [nic for nic in self._host.physical_nics if nic.bus_id not in self._devices]
        for index in sorted({node.index for node in self._host.numa} | {self._numa(top) for top in tops}):
            node = next((node for node in self._host.numa if node.index == index), None)
            memory_bytes = node.memory_bytes if node is not None and len(self._host.numa) > 1 else None
            yield TreeLine(0, "numa", f"numa{index}", "", _numa_words(index, node, memory_bytes))
            for top in tops:
                if self._numa(top) == index:
                    yield from self._subtree(top, 1)
            yield from (self._nic_line(nic, 1) for nic in without if _index(nic.numa) == index)
            without = [nic for nic in without if _index(nic.numa) != index]
        yield from (self._nic_line(nic, 0) for nic in without)
        software = [nic.name for nic in self._host.nics if not nic.physical]
        if software:
            named = f"not NICs (software interfaces, virtual functions): {some(software, _MOST_NAMES)}"
            yield TreeLine(0, "software", "", "", (named,))

    def _at_places(self) -> list[str]:
        """Return the PCI functions to show, by host bridge, in bus order."""
        places = {gpu.bus_id for gpu in self._host.gpus} | {nic.bus_id for nic in self._host.physical_nics}
        places |= {link.target for link in self._host.fabric if link.target_kind == "switch"}
        return [bus_id for bus_id in self._devices if bus_id in places]

    def _attach(self, bus_id: str) -> None:
        parent = self._devices[bus_id].parent
        siblings = self._below.setdefault(parent, [])
        if bus_id not in siblings:
            siblings.append(bus_id)
            if parent:
                self._attach(parent)

    def _subtree(self, bus_id: str, depth: int) -> Iterator[TreeLine]:
        below = self._below.get(bus_id, [])
        own = list(self._own_lines(bus_id, depth))
        if not own and len(below) == 1:
            yield from self._subtree(below[0], depth)
            return
        device = self._devices[bus_id]
        if not own:
            what: Literal["switch", "bridge"] = (
                "switch" if device.role in ("switch", "upstream") else "bridge"
            )
            word = "function" if device.role == "device" else what
            own = [TreeLine(depth, what, bus_id, bus_id, (word,), self._pcie(device))]
        yield from own
        for child in below:
            yield from self._subtree(child, depth + 1)

    def _own_lines(self, bus_id: str, depth: int) -> Iterator[TreeLine]:
        device = self._devices[bus_id]
        for gpu in self._host.gpus:
            if gpu.bus_id == bus_id:
                words = (self._labels[bus_id], *_gpu_words(gpu))
                yield TreeLine(depth, "gpu", bus_id, bus_id, words, self._pcie(device))
        for nic in self._host.physical_nics:
            if nic.bus_id == bus_id:
                yield self._nic_line(nic, depth, device)
        if any(link.target == bus_id and link.target_kind == "switch" for link in self._host.fabric):
            yield TreeLine(depth, "nvswitch", bus_id, bus_id, ("NVSwitch",), self._pcie(device))

    def _nic_line(self, nic: Nic, depth: int, device: PciDevice | None = None) -> TreeLine:
        name = "" if nic.name == nic.bus_id else nic.name
        speed = f"{nic.speed_mbit / 1000:g} Gbit/s" if nic.speed_mbit else "speed unknown"
        errors = ", ".join(f"{name} {count}" for name, count in nic.errors.items() if count)
        state = "up" if nic.state == "active" else nic.state
        words = (self._labels[nic.name], name, nic.rdma_device, nic.link_layer, speed, state, errors)
        pcie = self._pcie(device) if device is not None and device.role == "device" else ""
        bus_id = device.bus_id if device is not None else ""
        return TreeLine(depth, "nic", nic.name, bus_id, tuple(word for word in words if word), pcie)

    def _pcie(self, device: PciDevice) -> str:
        return pcie_words(uplink(device, self._devices), load())

    def _numa(self, bus_id: str) -> int:
        return _index(self._devices[bus_id].numa)


def fabric_words(host: Host) -> Iterator[str]:
    """Yield one line for each set of GPUs with equal links."""
    labels, tables = labels_of(host), load()
    down: dict[str, list[str]] = {}
    up = {gpu.bus_id: _fabric_links_up(host, gpu) for gpu in host.gpus}
    alike: dict[tuple[str, str, int, int, float | None], list[str]] = {}
    for gpu in host.gpus:
        own: dict[str, list[FabricLink]] = {}
        for link in host.fabric:
            if link.source == gpu.bus_id and link.state == "down":
                words = _down_words(
                    link.count, up[gpu.bus_id], max(up[one.bus_id] for one in _alike(host, gpu))
                )
                down.setdefault(words, []).append(labels[gpu.bus_id])
            elif link.source == gpu.bus_id:
                own.setdefault(link.target_kind, []).append(link)
        for kind, links in own.items():
            name = f"{_FABRIC_NAMES[links[0].kind]} {links[0].version}".strip()
            far = 0 if "nvswitch" in {link.target for link in links} else len(links)
            signature = (name, kind, sum(link.count for link in links), far, link_gbs(links[0], gpu, tables))
            alike.setdefault(signature, []).append(labels[gpu.bus_id])
    for (name, kind, count, far, gbs), gpus in alike.items():
        ends = {"gpu": "GPU", "switch": "NVSwitch", "cpu": "CPU", "unknown": "unknown end"}[kind]
        many = "NVSwitches" if kind == "switch" and far > 1 else ""
        where = (f"{far} {many}" if many else counted(far, ends)) if far else ends
        each = f", {gbs:g} GB/s each way a link, {gbs * count:.4g} GB/s together" if gbs else ""
        yield f"{name}: {counted(count, 'link')} to {where}{each}: {some(gpus, 16)}"
    for words, gpus in down.items():
        yield f"{words}: {some(gpus, 16)}"


def _fabric_links_up(host: Host, gpu: Gpu) -> int:
    links = [one for one in host.fabric if one.source == gpu.bus_id and one.kind != "c2c"]
    return sum(one.count for one in links if one.state != "down")


def _alike(host: Host, gpu: Gpu) -> list[Gpu]:
    return [other for other in host.gpus if is_same_model(host, gpu, other)]


def _down_words(down: int, up: int, most_up: int) -> str:
    """Return "n links down" if GPUs of this model have more links up, else that n links are not connected."""
    # A link that is down on all GPUs alike is one that the board does not connect.
    return (
        f"{counted(down, 'link')} down"
        if up < most_up
        else f"{down} of {counted(down + up, 'link')} not connected"
    )


def _numa_words(index: int, node: NumaNode | None, memory_bytes: int | None) -> tuple[str, ...]:
    parts = [f"NUMA node {index}" if index >= 0 else "NUMA node not known"]
    if node is not None:
        parts += [_cpus(node.cpus), node.vendor]
        parts.append(gib(memory_bytes) if memory_bytes else "")
    return tuple(part for part in parts if part)


def _cpus(listed: str) -> str:
    runs = listed.split(",")
    if len(runs) <= _MOST_NAMES:
        return f"cpus {listed}" if listed else ""
    return f"cpus {','.join(runs[:_MOST_NAMES])},…"


def _gpu_words(gpu: Gpu) -> tuple[str, ...]:
    memory = gib(gpu.memory_bytes) if gpu.memory_bytes else ""
    kept = "not given to this process" if gpu.usable is False else ""
    words = (gpu.name or gpu.vendor, gpu.arch, memory, "MIG" if gpu.mig else "", kept)
    return tuple(word for word in words if word)


def _index(numa: int | None) -> int:
    return -1 if numa is None else numa
