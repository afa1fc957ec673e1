"""Networks from a topology alone: each link has the nominal cost of its kind, without measurement.

- GPUs joined by NVLink or xGMI get a link of that bundle's speed.
- Behind NVSwitches each GPU has one egress and one ingress port.
- Other GPUs of a host communicate over PCIe, with one port for each GPU and direction.
- GPUs of different hosts communicate through the nearest NIC of each, a port that its GPUs share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.base import UsageError
from probes.paths import Expected, load, nearest_nic
from probes.topology import Gpu, Host, Nic, Topology
from synth.network import Link, Network, build

__all__ = ["from_topology"]

# Alphas that TACCL measured on NDv2 and DGX-2: NVLink 0.7 µs, between hosts 1.7 µs; PCIe lies between.
_NVLINK_ALPHA_S = 0.7e-6
_PCIE_ALPHA_S = 1.2e-6
_NIC_ALPHA_S = 1.7e-6
# Defaults if no part of a path is known: 16 lanes of PCIe 4.0, and 10 Gbit/s as in NCCL.
_UNKNOWN_PCIE_GBS, _UNKNOWN_NIC_GBS = 24.0, 1.25


@dataclass(frozen=True)
class _Rank:
    """A GPU as a rank, and its nearest NIC."""

    number: int
    host: Host
    gpu: Gpu
    nic: Nic | None


def from_topology(topology: Topology, name: str = "topology", *, hold_alpha: bool = False) -> Network:
    """Return the nominal network of all usable GPUs; raise UsageError if there are fewer than two."""
    gpus = [(host, gpu) for host in topology.hosts for gpu in host.usable_gpus]
    ranks = [_Rank(number, host, gpu, nearest_nic(host, gpu)) for number, (host, gpu) in enumerate(gpus)]
    if len(ranks) < 2:
        raise UsageError(
            f"{name}: a network needs two GPUs, this topology has {len(ranks)}",
            hint="Measure the processes of this machine instead: ccctl profile -n 4 -o profile.json",
        )
    tables = load()
    expected = {host.name: Expected(host, tables) for host in topology.hosts}
    links = [
        link for src in ranks for dst in ranks if src is not dst for link in _links(src, dst, expected, name)
    ]
    return build(name, [rank.host.name for rank in ranks], links, hold_alpha=hold_alpha)


def _links(src: _Rank, dst: _Rank, expected: Mapping[str, Expected], name: str) -> Iterator[Link]:
    if src.host is not dst.host:
        yield _over_nics(src, dst, expected, name)
        return
    ways = expected[src.host.name]
    way = ways.between(src.gpu, dst.gpu)
    if way.path == "NVL" and way.gbs:
        ends = {src.gpu.bus_id, dst.gpu.bus_id}
        direct = any({link.source, link.target} == ends for link in src.host.fabric)
        yield _link(src, dst, _NVLINK_ALPHA_S, way.gbs, "" if direct else "NVLink")
        return
    if way.path in ("NVL", "NVB"):
        # A library may relay over a GPU in between, but a direct copy goes over PCIe.
        way = ways.over_pci(src.gpu, dst.gpu)
    yield _link(src, dst, _PCIE_ALPHA_S, way.gbs or _UNKNOWN_PCIE_GBS, "PCIe")


def _link(src: _Rank, dst: _Rank, alpha_s: float, gbs: float, port: str = "") -> Link:
    ports = (f"rank {src.number} {port} egress", f"rank {dst.number} {port} ingress") if port else ()
    return Link(src.number, dst.number, alpha_s, 1e-9 / gbs, ports)


def _over_nics(src: _Rank, dst: _Rank, expected: Mapping[str, Expected], name: str) -> Link:
    rates: list[float] = []
    for rank in (src, dst):
        if rank.nic is None:
            raise UsageError(f"{name}: host {rank.host.name} has no NIC to reach other hosts by")
        way = expected[rank.host.name].between(rank.gpu, rank.nic)
        rates += [way.gbs] if way.gbs else []
    assert src.nic is not None and dst.nic is not None
    ports = (
        f"{src.host.name} {src.nic.name} egress",
        f"{dst.host.name} {dst.nic.name} ingress",
    )
    gbs = min(rates, default=_UNKNOWN_NIC_GBS)
    return Link(src.number, dst.number, _NIC_ALPHA_S, 1e-9 / gbs, ports)
