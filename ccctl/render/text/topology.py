"""A topology as text: for each host its tree, its fabric, and the path and bandwidth of every pair.

The tree leaves out what carries no traffic of ours, and a bridge with only one device below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ccctl import console
from ccctl.render.text.remarks import remarks
from probes.paths.bandwidth import load
from probes.paths.expected import Expected, link_gbs
from probes.paths.path_type import MEANING, Paths, key_of
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice, Probed, Topology, label
from probes.wording import plural, some

__all__ = ["draw", "headline"]

_FABRIC_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C"}
_MOST_NAMES = 6
# A host that differs in more than this is another kind of machine, and drawn whole.
_MOST_DIFFERENCES = 12
_WHAT = {
    "nic_numa": "NUMA node of NICs",
    "gpu_switch": "GPUs on one PCIe switch",
    "nic_switch": "GPUs on the switch of NICs",
}


def draw(topology: Topology) -> None:
    """Print every host on stdout, like ones once, then what is doubtful or could not be seen on stderr."""
    from exec.launcher.nodeset import fold
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
    for line in (*_fabric_lines(host), *_probed_lines(host)):
        console.data(f"  {line}")
    _draw_reach(host)


class _Tree:
    """One host's devices below NUMA nodes, host bridges and switches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._labels = _labels_of(host)
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
            yield f"software interfaces and virtual functions: {some(software, _MOST_NAMES)}"

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
    labels, tables = _labels_of(host), load()
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
        yield f"{name}: {_counted(count, 'link')} to {where}{each}: {some(gpus, 16)}"
    for count, gpus in down.items():
        yield f"{_counted(count, 'link')} down: {some(gpus, 16)}"


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
    return plural(number, thing) if number else f"no {thing}s"


def _labels_of(host: Host) -> Mapping[str, str]:
    """GPU<index> by bus id and NIC<n> by name."""
    gpus = {gpu.bus_id: f"GPU{gpu.index}" for gpu in host.gpus}
    return {**gpus, **{nic.name: f"NIC{number}" for number, nic in enumerate(host.physical_nics)}}


def _draw_reach(host: Host) -> None:
    """Who reaches whom over what: GPUs to GPUs and NICs, or among NICs where there is no GPU."""
    labels, paths = _labels_of(host), Paths(host)
    rows: list[Gpu | Nic] = [*host.gpus] or [*host.physical_nics]
    columns: list[Gpu | Nic] = [*host.gpus, *host.physical_nics]
    if len(columns) < 2:
        return
    names = [labels[key_of(device)] for device in columns]
    cells = [[labels[key_of(row)], *(paths.between(row, column) for column in columns)] for row in rows]
    console.data("")
    console.table(["", *names], cells)
    seen = {cell for row in cells for cell in row[1:]}
    console.data("; ".join(f"{word} {text}" for word, text in MEANING.items() if word in seen))
    _expectations(host, rows, columns)


def _expectations(host: Host, rows: Sequence[Gpu | Nic], columns: Sequence[Gpu | Nic]) -> None:
    """What each of those ways should carry."""
    labels, expected = _labels_of(host), Expected(host, load())
    words = [[_expectation(expected, row, column) for column in columns] for row in rows]
    if not host.gpus or not any(word for row in words for word in row):
        return
    lines = [[labels[key_of(row)], *line] for row, line in zip(rows, words, strict=True)]
    console.data("")
    console.table(["GB/s", *(labels[key_of(device)] for device in columns)], lines)
    relayed = any(word.endswith("+") for row in words for word in row)
    more = "; + more over NVLink and a GPU that is nearer (PXN)" if relayed else ""
    console.data(f"expected one way, as links deliver; nothing stands where nothing is known{more}")


def _expectation(expected: Expected, a: Gpu | Nic, b: Gpu | Nic) -> str:
    gbs = expected.between(a, b).gbs
    if gbs is None:
        return ""
    over = expected.over_peer(a, b) if isinstance(a, Gpu) and isinstance(b, Nic) else None
    return f"{gbs:.4g}" + ("+" if over is not None and (over.gbs or 0) > 1.1 * gbs else "")


def _probed_lines(host: Host) -> Iterator[str]:
    """The answers with how sure they are, then why others could not be had."""
    labels = {gpu.bus_id: label(gpu) for gpu in host.gpus} | {nic.name: label(nic) for nic in host.nics}
    apart: list[str] = []
    refused: dict[tuple[str, str], None] = {}
    for one in host.probed:
        if one.reason:
            refused[_WHAT[one.what], one.reason] = None
        elif one.answer == "no":
            apart.append(" and ".join(labels[name] for name in one.devices))
        else:
            yield f"probed: {_said(one, labels)}, {_sure(one)}"
    if apart:
        yield f"probed: no PCIe switch is shared by {'; '.join(apart)}"
    for what, reason in refused:
        yield f"not probed: {what}: {reason}"


def _said(one: Probed, labels: dict[str, str]) -> str:
    first = labels[one.devices[0]]
    if one.what == "nic_numa":
        return f"{first} is nearest to NUMA node {one.answer}"
    if one.what == "gpu_switch":
        return f"{first} and {labels[one.devices[1]]} share a PCIe switch"
    return f"on the switch of {first}: {', '.join(labels[name] for name in one.answer.split(','))}"


def _sure(one: Probed) -> str:
    return f"{one.confidence or 0:.0%} sure after {one.repetitions} repetitions"
