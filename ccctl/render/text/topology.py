"""The picture of a topology: for each host its tree, its fabric and who reaches whom over what.

The tree leaves out what carries no traffic of ours, and a bridge with only one device below it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ccctl import console
from ccctl.render.text import probed
from ccctl.render.text.reach import draw_reach, labels_of
from ccctl.render.text.remarks import remarks
from probes.paths.bandwidth import load
from probes.paths.expected import link_gbs
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice, Topology

__all__ = ["draw", "headline"]

_FABRIC_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C"}
_MOST_NAMES = 6
# A host that differs in more than this is another kind of machine, and drawn whole.
_MOST_DIFFERENCES = 12


def draw(topology: Topology) -> None:
    """Print every host on stdout, like ones once, then what is doubtful or could not be seen on stderr."""
    from ccctl.launcher.nodeset import fold
    from probes.diff.groups import fold_hosts

    groups = fold_hosts(topology)
    for number, group in enumerate(groups):
        name = fold(group.names) + (f": {len(group.hosts)} alike" if len(group.hosts) > 1 else "")
        if number:
            console.data("")
        if 0 < len(group.differences) <= _MOST_DIFFERENCES:
            console.data(f"{name}: as {groups[0].names[0]}, but for")
            for difference in group.differences:
                console.data(f"  {difference.severity}: {difference.text}")
        else:
            _draw_host(group.hosts[0], name)
    remarks(topology)


def headline(host: Host, name: str = "") -> str:
    """One line that says what a host has, and what its ranks will be."""
    parts = [_counted(len(host.usable_gpus), "GPU"), _counted(len(host.physical_nics), "NIC")]
    if host.numa:
        parts.append(_counted(len(host.numa), "NUMA node"))
    if host.cores:
        parts.append(_counted(host.cores, "core"))
    if host.memory_bytes:
        parts.append(_gib(host.memory_bytes))
    ranks = "" if host.usable_gpus else "; no GPU, so its ranks are processes"
    return f"{name or host.name}: {', '.join(parts)}{ranks}"


def _draw_host(host: Host, name: str) -> None:
    console.data(headline(host, name))
    for line in _Tree(host).lines():
        console.data(f"  {line}")
    for line in (*_fabric_lines(host), *probed.lines(host)):
        console.data(f"  {line}")
    draw_reach(host)


class _Tree:
    """One host's devices below NUMA nodes, host bridges and switches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._labels = labels_of(host)
        self._devices = {device.bus_id: device for device in host.pci}
        self._below: dict[str, list[str]] = {}
        for bus_id in self._at_places():
            self._hang(bus_id)

    def lines(self) -> Iterator[str]:
        tops = self._below.get("", [])
        without = [nic for nic in self._host.physical_nics if nic.bus_id not in self._devices]
        for index in sorted({node.index for node in self._host.numa} | {self._numa(top) for top in tops}):
            node = next((node for node in self._host.numa if node.index == index), None)
            yield _numa_line(index, node)
            for top in tops:
                if self._numa(top) == index:
                    yield from self._subtree(top, 1)
            yield from ("  " + self._nic_line(nic) for nic in without if _index(nic.numa) == index)
            without = [nic for nic in without if _index(nic.numa) != index]
        yield from (self._nic_line(nic) for nic in without)
        software = [nic.name for nic in self._host.nics if not nic.physical]
        if software:
            yield f"software interfaces and virtual functions: {_some(software)}"

    def _at_places(self) -> list[str]:
        """The functions worth a line, in the order of the bus, host bridge by host bridge."""
        places = {gpu.bus_id for gpu in self._host.gpus} | {nic.bus_id for nic in self._host.physical_nics}
        places |= {link.target for link in self._host.fabric if link.target_kind == "switch"}
        return [bus_id for bus_id in self._devices if bus_id in places]

    def _hang(self, bus_id: str) -> None:
        parent = self._devices[bus_id].parent
        siblings = self._below.setdefault(parent, [])
        if bus_id not in siblings:
            siblings.append(bus_id)
            if parent:
                self._hang(parent)

    def _subtree(self, bus_id: str, depth: int) -> Iterator[str]:
        below = self._below.get(bus_id, [])
        own = list(self._own_lines(bus_id))
        if not own and len(below) == 1:
            yield from self._subtree(below[0], depth)
            return
        device = self._devices[bus_id]
        what = "switch" if device.role in ("switch", "upstream") else "bridge"
        for line in own or [f"{bus_id}  {what}{_pcie(device)}"]:
            yield "  " * depth + line
        for child in below:
            yield from self._subtree(child, depth + 1)

    def _own_lines(self, bus_id: str) -> Iterator[str]:
        device = self._devices[bus_id]
        for gpu in self._host.gpus:
            if gpu.bus_id == bus_id:
                yield "  ".join((bus_id, self._labels[bus_id], *_gpu_words(gpu))) + _pcie(device)
        for nic in self._host.physical_nics:
            if nic.bus_id == bus_id:
                yield f"{bus_id}  {self._nic_line(nic)}{_pcie(device) if device.role == 'device' else ''}"
        if any(link.target == bus_id and link.target_kind == "switch" for link in self._host.fabric):
            yield f"{bus_id}  NVSwitch{_pcie(device)}"

    def _nic_line(self, nic: Nic) -> str:
        name = "" if nic.name == nic.bus_id else nic.name
        speed = f"{nic.speed_mbit / 1000:g} Gbit/s" if nic.speed_mbit else ""
        errors = ", ".join(f"{name} {count}" for name, count in nic.errors.items() if count)
        return "  ".join(
            part
            for part in (
                self._labels[nic.name],
                name,
                nic.rdma_device,
                nic.link_layer,
                speed,
                nic.state,
                errors,
            )
            if part
        )

    def _numa(self, bus_id: str) -> int:
        return _index(self._devices[bus_id].numa)


def _fabric_lines(host: Host) -> Iterator[str]:
    """One line for all GPUs whose links look alike."""
    labels, tables = labels_of(host), load()
    down: dict[int, list[str]] = {}
    alike: dict[tuple[str, str, int, int, float | None], list[str]] = {}
    for gpu in host.gpus:
        own: dict[str, list[FabricLink]] = {}
        for link in host.fabric:
            if link.source == gpu.bus_id and link.state == "down":
                down.setdefault(link.count, []).append(labels[gpu.bus_id])
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
        where = (f"{far} {many}" if many else _counted(far, ends)) if far else ends
        each = f", {gbs:g} GB/s each way a link, {gbs * count:.4g} GB/s together" if gbs else ""
        yield f"{name}: {_counted(count, 'link')} to {where}{each}: {_some(gpus, 16)}"
    for count, gpus in down.items():
        yield f"{_counted(count, 'link')} down: {_some(gpus, 16)}"


def _numa_line(index: int, node: NumaNode | None) -> str:
    parts = [f"NUMA node {index}" if index >= 0 else "NUMA node not known"]
    if node is not None:
        parts += [_cpus(node.cpus), node.vendor]
        parts.append(_gib(node.memory_bytes) if node.memory_bytes else "")
    return "  ".join(part for part in parts if part)


def _cpus(listed: str) -> str:
    runs = listed.split(",")
    if len(runs) <= _MOST_NAMES:
        return f"cpus {listed}" if listed else ""
    return f"cpus {','.join(runs[:_MOST_NAMES])},…"


def _gpu_words(gpu: Gpu) -> tuple[str, ...]:
    memory = _gib(gpu.memory_bytes) if gpu.memory_bytes else ""
    kept = "not given to this process" if gpu.usable is False else ""
    words = (gpu.name or gpu.vendor, gpu.arch, memory, "MIG" if gpu.mig else "", kept)
    return tuple(word for word in words if word)


def _pcie(device: PciDevice) -> str:
    speed, width = device.max_speed_gts or device.speed_gts, device.max_width or device.width
    gbs = load().pcie_gbs(speed, width)
    if speed is None:
        return ""
    lanes = f" x{width}" if width else ""
    return f"  PCIe {speed:g} GT/s{lanes}" + (f", {gbs:g} GB/s" if gbs else "")


def _index(numa: int | None) -> int:
    return -1 if numa is None else numa


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.4g} GiB"


def _counted(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def _some(names: list[str], most: int = _MOST_NAMES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
