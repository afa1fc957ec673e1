"""The shared resources inside a host, and which of them each path between GPUs and NICs uses.

A resource has a capacity in GB/s, in one direction. It is a bundle of NVLinks, a GPU's links into or out of
NVSwitches, a PCIe link up or down, the link from one NUMA node to another, or one direction of a NIC. A byte
crosses each resource of its path once. On a path through an Intel CPU each byte counts as 1.2 bytes on PCIe
links, because these CPUs split transfers into small packets (NCCL's INTEL_P2P_OVERHEAD). A rate measured
between two GPUs is a further resource that only this pair uses; it also raises the capacity of each resource
on the path to at least that rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, floats
from probes.paths import Bandwidths, Expected, Paths, PathType, chain, functions, link_gbs, numa_of
from probes.topology import Gpu, Host, Nic

__all__ = ["PathCapacities", "capacities_of"]

_Key = tuple[str, ...]
# The rate of a path about which nothing is known, as in nominal networks: 16 lanes of PCIe 4.0, at the
# 1.5 GB/s a lane of probes/paths/bandwidth.json.
_UNKNOWN_GBS = 24.0
# Path types, the nearest first.
_NEAR_TO_FAR: tuple[PathType, ...] = (
    "LOC",
    "NVL",
    "NVB",
    "PIX",
    "PXB",
    "C2C",
    "PXN",
    "PHB",
    "NODE",
    "SYS",
    "?",
)


@dataclass(frozen=True, eq=False)
class PathCapacities:
    """The paths between the GPUs of a host and to its NICs, as shares of resources.

    A flow of 1 GB/s takes a share of each resource r on its path: ``between[a, b, r]`` if it goes from GPU a
    to GPU b, ``out[a, n, r]`` from GPU a to NIC n, ``into[n, a, r]`` from NIC n to GPU a. ``names`` name the
    resources. ``path[a][b]`` and ``net_path[a][n]`` are path types; ``near[n]`` are the GPUs nearest to NIC
    n.
    """

    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    names: tuple[str, ...]
    between: Floats
    out: Floats
    into: Floats
    path: tuple[tuple[PathType, ...], ...]
    net_path: tuple[tuple[PathType, ...], ...]
    near: tuple[tuple[int, ...], ...]

    @property
    def alike(self) -> bool:
        """Whether all orders of the GPUs are equally good: NVSwitches connect all of them at equal rates."""
        pairs = [(a, b) for a in range(len(self.gpus)) for b in range(len(self.gpus)) if a != b]
        # Rounding makes sums of the same rates in different orders equal.
        most = {round(float(self.between[a, b].max()), 9) for a, b in pairs}
        used = np.array([self.between[a, b] > 0 for a, b in pairs])
        return (
            len(most) <= 1
            and bool((used.sum(axis=1) == 2).all())
            and all(word == "NVL" for row in self.path for word in row if word != "LOC")
        )


def capacities_of(
    host: Host,
    nics: Sequence[Nic],
    tables: Bandwidths,
    measured: Mapping[tuple[str, str], float] | None = None,
) -> PathCapacities:
    """Return the resources of a host's usable GPUs and these NICs.

    ``measured`` maps (bus id from, bus id to) to GB/s.
    """
    ways = _Ways(host, tables)
    gpus, measured = host.usable_gpus, measured or {}
    between = {
        (a, b): _with_measured(ways.between(one, other), one, other, measured)
        for a, one in enumerate(gpus)
        for b, other in enumerate(gpus)
        if a != b
    }
    net = {(a, n): list(ways.to_nic(gpu, nic)) for a, gpu in enumerate(gpus) for n, nic in enumerate(nics)}
    back = {(n, a): list(ways.from_nic(nic, gpu)) for a, gpu in enumerate(gpus) for n, nic in enumerate(nics)}
    capacity: dict[_Key, float] = {}
    for parts in (*between.values(), *net.values(), *back.values()):
        for key, gbs, _ in parts:
            capacity[key] = max(gbs, capacity.get(key, 0.0))
    row = {key: at for at, key in enumerate(capacity)}

    def table(
        found: Mapping[tuple[int, int], Sequence[tuple[_Key, float, float]]], shape: tuple[int, int]
    ) -> Floats:
        filled = np.zeros((*shape, len(row)))
        for place, parts in found.items():
            for key, _, factor in parts:
                filled[(*place, row[key])] += factor / capacity[key]
        return floats(filled)

    paths = tuple(tuple(ways.paths.between(one, other) for other in gpus) for one in gpus)
    net_paths = tuple(tuple(ways.net_path(gpu, nic) for nic in nics) for gpu in gpus)
    near = tuple(
        _nearest([_NEAR_TO_FAR.index(net_paths[a][n]) for a in range(len(gpus))]) for n in range(len(nics))
    )
    names = tuple(" ".join(key) for key in capacity)
    size, ports = len(gpus), len(nics)
    return PathCapacities(
        gpus,
        tuple(nics),
        names,
        table(between, (size, size)),
        table(net, (size, ports)),
        table(back, (ports, size)),
        paths,
        net_paths,
        near,
    )


def _nearest(far: Sequence[int]) -> tuple[int, ...]:
    return tuple(at for at, distance in enumerate(far) if distance == min(far))


def _with_measured(
    parts: Iterator[tuple[_Key, float, float]], a: Gpu, b: Gpu, measured: Mapping[tuple[str, str], float]
) -> list[tuple[_Key, float, float]]:
    gbs = measured.get((a.bus_id, b.bus_id))
    if gbs is None:
        return list(parts)
    shared = [(key, max(declared, gbs * factor), factor) for key, declared, factor in parts]
    return [*shared, (("measured", a.bus_id, b.bus_id), gbs, 1.0)]


class _Ways:
    """The parts of each path of a host: (resource, its GB/s, number of times that a byte crosses it)."""

    def __init__(self, host: Host, tables: Bandwidths) -> None:
        self._host = host
        self._tables = tables
        self._expected = Expected(host, tables)
        self._devices = functions(host)
        self._gpus = {gpu.bus_id: gpu for gpu in host.gpus}
        self.paths = Paths(host)

    def between(self, a: Gpu, b: Gpu) -> Iterator[tuple[_Key, float, float]]:
        path = self.paths.between(a, b)
        if path == "NVL":
            direct = self._direct(a, b)
            if direct:
                yield ("NVLinks", a.bus_id, b.bus_id), direct, 1.0
                return
            yield ("NVLinks out of", a.bus_id), self._switched(a) or _UNKNOWN_GBS, 1.0
            yield ("NVLinks into", b.bus_id), self._switched(b) or _UNKNOWN_GBS, 1.0
            return
        if path == "NVB":
            through = max(self._host.gpus, key=lambda one: min(self._direct(a, one), self._direct(one, b)))
            yield ("NVLinks", a.bus_id, through.bus_id), self._direct(a, through), 1.0
            yield ("NVLinks", through.bus_id, b.bus_id), self._direct(through, b), 1.0
            return
        yield from self._over_pci(a, b, path)

    def to_nic(self, gpu: Gpu, nic: Nic) -> Iterator[tuple[_Key, float, float]]:
        relayed = self._expected.over_peer(gpu, nic)
        if relayed is not None and (relayed.gbs or 0) > (self._expected.between(gpu, nic).gbs or 0):
            peer = self._gpus[relayed.through]
            yield from self.between(gpu, peer)
            yield from self._over_pci(peer, nic, self.paths.between(peer, nic))
        else:
            yield from self._over_pci(gpu, nic, self.paths.between(gpu, nic))
        if nic.speed_mbit:
            yield ("out of", nic.name), nic.speed_mbit / 8000, 1.0

    def from_nic(self, nic: Nic, gpu: Gpu) -> Iterator[tuple[_Key, float, float]]:
        yield from self._over_pci(nic, gpu, self.paths.between(gpu, nic))
        if nic.speed_mbit:
            yield ("into", nic.name), nic.speed_mbit / 8000, 1.0

    def net_path(self, gpu: Gpu, nic: Nic) -> PathType:
        path = self.paths.between(gpu, nic)
        return path if self._expected.over_peer(gpu, nic) is None else "PXN"

    def _over_pci(self, a: Gpu | Nic, b: Gpu | Nic, path: PathType) -> Iterator[tuple[_Key, float, float]]:
        factor = self._expected.peer_overhead(path, a, b)
        up, down = chain(a.bus_id, self._devices), chain(b.bus_id, self._devices)
        shared = {device.bus_id for device in up} & {device.bus_id for device in down}
        known = False
        if path == "C2C":
            # A GPU with links of its own to the CPU uses them instead of PCIe.
            up, down = ([] if isinstance(end, Gpu) else found for end, found in ((a, up), (b, down)))
            for way, end in (("up", a), ("down", b)):
                if isinstance(end, Gpu):
                    yield ("C2C links of", end.bus_id, way), self._to_cpu(end), 1.0
                    known = True
        for way, devices in (("up", up), ("down", down)):
            for device in devices:
                gbs = None if device.bus_id in shared else self._expected.pcie_gbs(device)
                if gbs is not None:
                    known = True
                    yield ("PCIe link of", device.bus_id, way), gbs, factor
        if path == "SYS":
            nodes = tuple(str(numa_of(device, self._devices)) for device in (a, b))
            rates = [gbs for device in (a, b) if (gbs := self._expected.cpu_gbs(device)) is not None]
            if rates:
                yield ("NUMA nodes", *nodes), min(rates), 1.0
        if not known:
            yield ("PCIe link of", a.bus_id or "a", "up"), _UNKNOWN_GBS, factor
            yield ("PCIe link of", b.bus_id or "b", "down"), _UNKNOWN_GBS, factor

    def _direct(self, a: Gpu, b: Gpu) -> float:
        """Return the GB/s of the links between two GPUs: the lower of the rates that the two ends report."""
        ends = [
            sum(
                link.count * (link_gbs(link, one, self._tables) or 0)
                for link in self._host.fabric
                if link.source == one.bus_id and link.target == other.bus_id and link.state != "down"
            )
            for one, other in ((a, b), (b, a))
        ]
        return min((gbs for gbs in ends if gbs), default=0.0)

    def _to_cpu(self, gpu: Gpu) -> float:
        return (
            sum(
                link.count * (link.gbs or 0)
                for link in self._host.fabric
                if link.source == gpu.bus_id and link.kind == "c2c" and link.state != "down"
            )
            or _UNKNOWN_GBS
        )

    def _switched(self, gpu: Gpu) -> float:
        return sum(
            link.count * (link_gbs(link, gpu, self._tables) or 0)
            for link in self._host.fabric
            if link.source == gpu.bus_id and link.target_kind == "switch" and link.state != "down"
        )
