"""Networks from a topology alone: what each link should carry by its kind, before anything is measured.

GPUs joined by NVLink or xGMI get a link of that bundle's speed; behind NVSwitches each GPU has one
egress and one ingress port; other GPUs of a host meet over PCIe, one port a GPU and direction; GPUs
of different hosts meet through each one's nearest NIC, a port that its GPUs share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.errors import UsageError
from probes.paths.bandwidth import Bandwidths, load
from probes.paths.nearest_nic import nearest_nic
from probes.topology import FabricLink, Gpu, Host, Nic, Topology
from synth.network import Link, Network, build

__all__ = ["from_topology"]

# Alphas as TACCL measured them on NDv2 and DGX-2: NVLink 0.7 µs, between hosts 1.7 µs; PCIe lies between.
_NVLINK_ALPHA_S = 0.7e-6
_PCIE_ALPHA_S = 1.2e-6
_NIC_ALPHA_S = 1.7e-6


@dataclass(frozen=True)
class _Rank:
    """One GPU as a rank, and the NIC that is nearest to it."""

    number: int
    host: Host
    gpu: Gpu
    nic: Nic | None


def from_topology(topology: Topology, name: str = "topology", *, hold_alpha: bool = False) -> Network:
    """The nominal network of all usable GPUs; raises UsageError where there are fewer than two."""
    ranks = [
        _Rank(0, host, gpu, nearest_nic(host, gpu)) for host in topology.hosts for gpu in host.usable_gpus
    ]
    ranks = [_Rank(number, rank.host, rank.gpu, rank.nic) for number, rank in enumerate(ranks)]
    if len(ranks) < 2:
        raise UsageError(
            f"{name}: a network needs two GPUs, this topology has {len(ranks)}",
            hint="Measure the processes of this machine instead: ccctl profile -n 4 -o profile.json",
        )
    tables = load()
    links = [
        link for src in ranks for dst in ranks if src is not dst for link in _links(src, dst, tables, name)
    ]
    return build(name, [rank.host.name for rank in ranks], links, hold_alpha=hold_alpha)


def _links(src: _Rank, dst: _Rank, tables: Bandwidths, name: str) -> Iterator[Link]:
    if src.host is not dst.host:
        yield _over_nics(src, dst, name)
        return
    rate = _direct_gbs(src, dst, tables)
    if rate:
        yield _link(src, dst, _NVLINK_ALPHA_S, rate)
        return
    rate = min(_switch_gbs(src, tables), _switch_gbs(dst, tables))
    if rate:
        yield _link(src, dst, _NVLINK_ALPHA_S, rate, "NVLink")
        return
    yield _link(src, dst, _PCIE_ALPHA_S, min(_pcie_gbs(src, tables), _pcie_gbs(dst, tables)), "PCIe")


def _link(src: _Rank, dst: _Rank, alpha_s: float, gbs: float, port: str = "") -> Link:
    ports = (f"rank {src.number} {port} egress", f"rank {dst.number} {port} ingress") if port else ()
    return Link(src.number, dst.number, alpha_s, 1e-9 / gbs, ports)


def _over_nics(src: _Rank, dst: _Rank, name: str) -> Link:
    if src.nic is None or dst.nic is None:
        alone = src if src.nic is None else dst
        raise UsageError(f"{name}: host {alone.host.name} has no NIC to reach other hosts by")
    speeds = [nic.speed_mbit for nic in (src.nic, dst.nic) if nic.speed_mbit]
    gbs = min(speeds, default=10_000) / 8000
    ports = (
        f"{src.host.name} {src.nic.name} egress",
        f"{dst.host.name} {dst.nic.name} ingress",
    )
    return Link(src.number, dst.number, _NIC_ALPHA_S, 1e-9 / gbs, ports)


def _direct_gbs(src: _Rank, dst: _Rank, tables: Bandwidths) -> float:
    return sum(
        link.count * _gbs(link, src.gpu, tables)
        for link in src.host.fabric
        if link.kind != "c2c" and link.source == src.gpu.bus_id and link.target == dst.gpu.bus_id
    )


def _switch_gbs(rank: _Rank, tables: Bandwidths) -> float:
    return sum(
        link.count * _gbs(link, rank.gpu, tables)
        for link in rank.host.fabric
        if link.target_kind == "switch" and link.source == rank.gpu.bus_id
    )


def _gbs(link: FabricLink, gpu: Gpu, tables: Bandwidths) -> float:
    return link.gbs or tables.fabric(link.kind, gpu.arch).gbs


def _pcie_gbs(rank: _Rank, tables: Bandwidths) -> float:
    device = next((pci for pci in rank.host.pci if pci.bus_id == rank.gpu.bus_id), None)
    speed = (device.max_speed_gts or device.speed_gts) if device else None
    width = (device.max_width or device.width) if device else None
    return tables.pcie_gbs(speed, width) or tables.pcie_gbs(16.0, None) or 24.0
