"""The expected bandwidth between two devices, which is the bandwidth of the path's narrowest part.

The parts of a path are: the NVLinks between two GPUs or from a GPU to its switches, taken together; each PCIe
link; the link between NUMA nodes; and the NIC's own speed. A PCIe link counts with the lower of its ends'
maximum speeds and with its current lanes: an idle GPU lowers the speed of its link but not the width. Rates
are for one direction, as delivered, not as advertised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.paths.bandwidth import Bandwidths
from probes.paths.path_type import Paths, PathType
from probes.paths.pci_tree import chain, functions, numa_of
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice

__all__ = ["Expected", "Way", "expected_gbs", "link_gbs"]


@dataclass(frozen=True)
class Way:
    """One path: its type, GB/s (None if nothing on it is known), and what limits it."""

    path: PathType
    gbs: float | None
    limit: str = ""
    through: str = ""


class Expected:
    """The expected bandwidth between devices of one host."""

    def __init__(self, host: Host, tables: Bandwidths) -> None:
        self._host = host
        self._tables = tables
        self._paths = Paths(host)
        self._devices = functions(host)
        self._gpus = {gpu.bus_id: gpu for gpu in host.gpus}
        # Each device is an end of many pairs.
        self._links_by_function: dict[str, list[tuple[str, float | None]]] = {}
        self._cpu_gbs_by_numa: dict[int | None, float | None] = {}

    def between(self, a: Gpu | Nic, b: Gpu | Nic) -> Way:
        """Return the nearest path and its GB/s, which is None from a device to itself."""
        path = self._paths.between(a, b)
        if path == "LOC":
            return Way(path, None)
        if isinstance(a, Gpu) and isinstance(b, Gpu) and path in ("NVL", "NVB", "C2C"):
            return self._over_fabric(path, a, b)
        way = _narrowest(path, self._pci_parts(path, a, b))
        if isinstance(a, Gpu) or isinstance(b, Gpu):
            return max(way, self._over_cpus(path, a, b), key=lambda way: way.gbs or 0)
        return way

    def over_pci(self, a: Gpu | Nic, b: Gpu | Nic) -> Way:
        """Return the path over PCIe and its GB/s, regardless of other links."""
        path = self._paths.over_pci(a, b)
        return _narrowest(path, self._pci_parts(path, a, b))

    def over_peer(self, gpu: Gpu, nic: Nic) -> Way | None:
        """Return the best path to a NIC over NVLink and a GPU near it (PXN).

        The result is None if ``gpu`` itself is near the NIC, or if no such path exists.
        """
        if self._paths.between(gpu, nic) in ("PIX", "PXB", "C2C"):
            return None
        ways = []
        for peer in self._host.gpus:
            if self._paths.between(gpu, peer) == "NVL" and self._paths.between(peer, nic) in ("PIX", "PXB"):
                parts = (self.between(gpu, peer), self.between(peer, nic))
                known = [(part.gbs, part.limit) for part in parts if part.gbs is not None]
                way = _narrowest("PXN", known)
                ways.append(Way("PXN", way.gbs, way.limit, peer.bus_id))
        return max(ways, key=lambda way: way.gbs or 0, default=None)

    def _over_fabric(self, path: PathType, a: Gpu, b: Gpu) -> Way:
        if path == "C2C":
            return _narrowest(path, self._bundle(a, "c2c") + self._bundle(b, "c2c"))
        if path == "NVL":
            direct = self._direct(a, b)
            return _narrowest(path, direct or self._bundle(a, "switch") + self._bundle(b, "switch"))
        middles = [
            _narrowest(path, self._direct(a, middle) + self._direct(middle, b))
            for middle in self._host.gpus
            if self._direct(a, middle) and self._direct(middle, b)
        ]
        return max(middles, key=lambda way: way.gbs or 0, default=Way(path, None))

    def _over_cpus(self, path: PathType, a: Gpu | Nic, b: Gpu | Nic) -> Way:
        """Return the path over GPU-to-CPU links (POWER, Grace), links between CPUs, and a NIC's PCIe link."""
        if path in ("PIX", "PXB"):
            return Way(path, None)
        ends = [
            self._bundle(end, "cpu") if isinstance(end, Gpu) else list(self._nic_parts(end)) for end in (a, b)
        ]
        if not all(ends):
            return Way(path, None)
        return _narrowest(path, [*ends[0], *ends[1], *self._cpu_parts(path, a, b)])

    def _nic_parts(self, nic: Nic) -> Iterator[tuple[float, str]]:
        for bus_id, gbs in self._links_above(nic.bus_id):
            if gbs is not None:
                yield gbs, f"PCIe link of {bus_id}"
        if nic.speed_mbit:
            yield nic.speed_mbit / 8000, f"the speed of {nic.name}"

    def _direct(self, a: Gpu, b: Gpu) -> list[tuple[float, str]]:
        ends = [
            self._sum(one, (link for link in self._links_of(one) if link.target == other.bus_id))
            for one, other in ((a, b), (b, a))
        ]
        known = [part for part in ends if part]
        return [min(known)] if known else []

    def _bundle(self, gpu: Gpu, to: str) -> list[tuple[float, str]]:
        links = (link for link in self._links_of(gpu) if to in (link.kind, link.target_kind))
        part = self._sum(gpu, links)
        return [part] if part else []

    def _links_of(self, gpu: Gpu) -> Iterator[FabricLink]:
        return (link for link in self._host.fabric if link.source == gpu.bus_id)

    def _sum(self, gpu: Gpu, links: Iterable[FabricLink]) -> tuple[float, str] | None:
        own = list(links)
        total = sum(link.count * (link_gbs(link, gpu, self._tables) or 0) for link in own)
        return (
            (total, f"{sum(link.count for link in own)} {own[0].kind} links of {gpu.bus_id}")
            if total
            else None
        )

    def _pci_parts(self, path: PathType, a: Gpu | Nic, b: Gpu | Nic) -> Iterator[tuple[float, str]]:
        above = [self._links_above(device.bus_id) for device in (a, b)]
        shared = {bus_id for bus_id, _ in above[0]} & {bus_id for bus_id, _ in above[1]}
        overhead = self.peer_overhead(path, a, b)
        for bus_id, gbs in (link for part in above for link in part):
            if gbs is not None and bus_id not in shared:
                yield gbs / overhead, f"PCIe link of {bus_id}"
        yield from self._cpu_parts(path, a, b)
        for nic in (device for device in (a, b) if isinstance(device, Nic)):
            if nic.speed_mbit:
                yield nic.speed_mbit / 8000, f"the speed of {nic.name}"

    def _cpu_parts(self, path: PathType, a: Gpu | Nic, b: Gpu | Nic) -> Iterator[tuple[float, str]]:
        between = [self.cpu_gbs(device) for device in (a, b)] if path == "SYS" else []
        yield from ((gbs, "the link between NUMA nodes") for gbs in between if gbs is not None)

    def _links_above(self, bus_id: str) -> list[tuple[str, float | None]]:
        """Return (bus id, GB/s of its upstream link) of a function and of each bridge above it."""
        if bus_id not in self._links_by_function:
            self._links_by_function[bus_id] = [
                (device.bus_id, self.pcie_gbs(device)) for device in chain(bus_id, self._devices)
            ]
        return self._links_by_function[bus_id]

    def pcie_gbs(self, device: PciDevice) -> float | None:
        """Return GB/s of a function's upstream link, if known.

        The result is None for a root port and for a switch's downstream port.
        """
        above = self._devices.get(device.parent)
        if device.role in ("root", "downstream"):
            return None
        ends = [device] + ([above] if above is not None and above.role in ("root", "downstream") else [])
        speeds = [speed for end in ends if (speed := end.max_speed_gts or end.speed_gts)]
        widths = [width for end in ends if (width := device.width or end.max_width)]
        if speeds:
            return self._tables.pcie_gbs(min(speeds), min(widths, default=None))
        raws = [end.raw_gbs for end in ends if end.raw_gbs]
        return self._tables.pcie_gbs_of_wire(min(raws)) if raws else None

    def peer_overhead(self, path: PathType, a: Gpu | Nic, b: Gpu | Nic) -> float:
        """Return PCIe bytes per byte sent between two devices: above 1 between GPUs through an Intel CPU."""
        through_cpu = isinstance(a, Gpu) and isinstance(b, Gpu) and path in ("PHB", "NODE", "SYS")
        intel = any(node.vendor == "GenuineIntel" for node in self._host.numa)
        return self._tables.intel_peer_overhead if through_cpu and intel else 1.0

    def cpu_gbs(self, device: Gpu | Nic) -> float | None:
        """Return GB/s of the link from a device's NUMA node to others; None if its CPU is unknown."""
        numa = numa_of(device, self._devices)
        if numa not in self._cpu_gbs_by_numa:
            nodes = [node for node in self._host.numa if node.index == numa and (node.arch or node.vendor)]
            known = [self._tables.cpu_gbs(node.arch, node.vendor, node.model) for node in nodes]
            self._cpu_gbs_by_numa[numa] = next((gbs for gbs in known if gbs is not None), None)
        return self._cpu_gbs_by_numa[numa]


def expected_gbs(host: Host, tables: Bandwidths) -> dict[str, dict[str, float | None]]:
    """Return GB/s from each GPU ("GPU0") to every other and to each physical NIC (by its name)."""
    expected = Expected(host, tables)
    ends: list[tuple[str, Gpu | Nic]] = [(f"GPU{gpu.index}", gpu) for gpu in host.gpus]
    ends += [(nic.name, nic) for nic in host.physical_nics]
    return {
        f"GPU{gpu.index}": {name: expected.between(gpu, end).gbs for name, end in ends if end is not gpu}
        for gpu in host.gpus
    }


def link_gbs(link: FabricLink, gpu: Gpu, tables: Bandwidths) -> float | None:
    """Return the delivered GB/s of one link: the lower of the table's and the link's own value.

    The link's own value decides for C2C and for an unknown generation.
    """
    if link.kind == "c2c":
        return link.gbs
    generation = tables.fabric(link.kind, gpu.arch, link.version)
    if not generation.wire_gbs:
        return link.gbs or generation.gbs
    return min(generation.gbs, link.gbs or generation.gbs)


def _narrowest(path: PathType, parts: Iterable[tuple[float, str]]) -> Way:
    gbs, limit = min(parts, default=(None, ""), key=lambda part: part[0] or 0)
    return Way(path, None if gbs is None else round(gbs, 6), limit)
