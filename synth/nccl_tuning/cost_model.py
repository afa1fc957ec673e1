"""NCCL's model of the time of its rings and trees, by which it chooses among them.

Formulas and constants are those of NCCL 2.30.7 (``src/graph/tuning.cc``). NVLS, CollNet and PAT are left out:
they need hardware that a network here does not describe. As in NCCL, rates are in GB/s of 10^9 bytes, and
times in microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from synth.collective import Kind

__all__ = ["PROTOCOLS", "Architecture", "BusRates", "NcclWorld", "times_us"]

Architecture = Literal["volta", "ampere", "hopper", "blackwell"]
PROTOCOLS = ("ll", "ll128", "simple")
# baseLatencies and hwLatencies, by protocol.
_BASE_US = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_HOP_US = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pci": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "net": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
# llMaxBws, for one, two and more hosts. On one host the row is that of the GPU's architecture. On several
# hosts NCCL takes the first row with Intel's CPUs, and the second with AMD's.
_LL_GBS = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
# perChMaxRingLL128Bws, perChMaxTreeLL128Bws and perChMaxTreeBws, for one, two and more hosts.
_RING_LL128_GBS = {
    "volta": (20.0,) * 3,
    "ampere": (20.0,) * 3,
    "hopper": (36.7,) * 3,
    "blackwell": (40.0,) * 3,
}
_TREE_LL128_GBS = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
_TREE_GBS = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
# treeCorrectionFactor, by protocol and by the logarithm of the size in units of 64 bytes.
_TREE_CORRECTION = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
)
# getNetOverhead: microseconds that a message costs the proxy, by whether the CPUs are AMD's.
_PROXY_US = {True: 2.0, False: 1.0}


@dataclass(frozen=True)
class NcclWorld:
    """A communicator: ``ranks`` on ``hosts`` equal hosts with GPUs of one architecture.

    ``nvlink``: the GPUs of a host are joined by NVLink. ``ll128``: NCCL trusts this protocol on its paths.
    ``channels`` is the number that NCCL uses, 0 if it is not known.
    """

    ranks: int
    hosts: int
    architecture: Architecture
    nvlink: bool = True
    ll128: bool = True
    amd_cpus: bool = False
    channels: int = 0


@dataclass(frozen=True)
class BusRates:
    """The bus bandwidth of all rings together, and of all trees together.

    ``more_intra_us`` and ``more_inter_us`` are added to the times that NCCL's model gives hops.
    """

    ring_gbs: float
    tree_gbs: float
    more_intra_us: float = 0.0
    more_inter_us: float = 0.0


def times_us(kind: Kind, world: NcclWorld, rates: BusRates, size_bytes: int) -> dict[str, float]:
    """Return the time of each setting, such as "ring:ll128", for a buffer as nccl-tests counts it."""
    algorithms = ("ring", "tree") if kind == "all_reduce" else ("ring",)
    return {
        f"{algorithm}:{name}": _time_us(kind, algorithm, at, world, rates, size_bytes)
        for algorithm in algorithms
        for at, name in enumerate(PROTOCOLS)
        if name != "ll128" or world.ll128
    }


def _time_us(
    kind: Kind, algorithm: str, protocol: int, world: NcclWorld, rates: BusRates, size_bytes: int
) -> float:
    steps = (2 if kind == "all_reduce" else 1) * (world.ranks - 1)
    if algorithm == "ring":
        rate = _ring_gbs(protocol, world, rates) * world.ranks / steps
        latency = _ring_us(kind, protocol, world, rates, steps)
        share_bytes = size_bytes // (max(world.channels, 1) * world.ranks)
        if protocol == 2 and world.hosts > 1 and kind == "all_reduce" and share_bytes >= 64:
            latency *= 1.9 if world.architecture == "volta" else 1.4
    else:
        rate = _tree_gbs(protocol, world, rates) / 2
        latency = _tree_us(protocol, world, rates)
        units = (size_bytes >> 6).bit_length() - 1
        if 0 <= units < 23:
            rate *= _TREE_CORRECTION[protocol][units]
    return latency + size_bytes / (1000 * rate)


def _column(world: NcclWorld) -> int:
    return min(world.hosts, 3) - 1


def _per_channel(world: NcclWorld, gbs: float) -> float:
    return world.channels * gbs if world.channels else math.inf


def _ll_gbs(world: NcclWorld) -> float:
    by_cpu = "ampere" if world.amd_cpus else "volta"
    return _LL_GBS[world.architecture if world.hosts == 1 else by_cpu][_column(world)]


def _ring_gbs(protocol: int, world: NcclWorld, rates: BusRates) -> float:
    if protocol == 0:
        return min(_ll_gbs(world), rates.ring_gbs * 0.5)
    if protocol == 1:
        most = _per_channel(world, _RING_LL128_GBS[world.architecture][_column(world)])
        return min(rates.ring_gbs * 0.92, most)
    return rates.ring_gbs


def _tree_gbs(protocol: int, world: NcclWorld, rates: BusRates) -> float:
    column = _column(world)
    found = min(rates.tree_gbs * 0.92, _per_channel(world, _TREE_GBS[world.architecture][column]))
    if protocol == 0:
        return min(found / 3.8, _ll_gbs(world))
    if protocol == 1:
        part = 7 / 9 if world.hosts == 1 else 120 / 128
        return min(found * part, _per_channel(world, _TREE_LL128_GBS[world.architecture][column]))
    return found


def _hops_us(algorithm: str, protocol: int, world: NcclWorld, rates: BusRates) -> tuple[float, float]:
    """Return the latency of a hop within a host, and between hosts."""
    intra = _HOP_US["nvlink" if world.nvlink else "pci"][algorithm][protocol] + rates.more_intra_us
    alone = world.ranks == world.hosts
    inter = _HOP_US["net"]["tree" if alone else algorithm][protocol] + rates.more_inter_us
    return intra, inter


def _ring_us(kind: Kind, protocol: int, world: NcclWorld, rates: BusRates, steps: int) -> float:
    intra, inter = _hops_us("ring", protocol, world, rates)
    if world.hosts > 1:
        intra = max(intra, _PROXY_US[world.amd_cpus] * (3 if protocol == 2 else 1))
    crossing = (2 if kind == "all_reduce" else 1) * (world.hosts - 1)
    return _BASE_US["ring"][protocol] + (steps - crossing) * intra + crossing * inter


def _tree_us(protocol: int, world: NcclWorld, rates: BusRates) -> float:
    intra, inter = _hops_us("tree", protocol, world, rates)
    depth = world.hosts.bit_length() - 1
    return _BASE_US["tree"][protocol] + 2 * ((world.ranks / world.hosts - 1) * intra + depth * inter)
