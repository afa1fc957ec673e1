"""The links of a profile joined with the devices of a topology: GB/s between GPUs and between hosts.

A rank with device "cuda:3" uses the GPU of its host with driver number 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.link_costs import Profile, ProfiledRank
from probes.topology import Gpu, Host, Topology

__all__ = ["MeasuredPair", "gpu_of", "host_named", "measured_gbs", "measured_pairs"]


@dataclass(frozen=True)
class MeasuredPair:
    """One directed link: its ranks, their GPUs (None if a rank has none), and its GB/s.

    ``low_gbs`` and ``high_gbs`` bound the 95 % confidence interval of ``gbs``.
    """

    src: ProfiledRank
    dst: ProfiledRank
    src_gpu: Gpu | None
    dst_gpu: Gpu | None
    gbs: float
    low_gbs: float
    high_gbs: float


def measured_pairs(topology: Topology, profile: Profile) -> Iterator[MeasuredPair]:
    """Yield the profile's links, except inferred and unsound ones, with their GPUs."""
    gpus = [gpu_of(topology, rank) for rank in profile.ranks]
    links = profile.links
    columns = (
        links.src,
        links.dst,
        links.beta_s_per_byte,
        links.beta_low_s_per_byte,
        links.beta_high_s_per_byte,
    )
    for src, dst, beta, low, high, flags in zip(
        *(column.tolist() for column in columns), links.flags, strict=True
    ):
        if "inferred" not in flags and "unsound" not in flags:
            yield MeasuredPair(
                profile.ranks[src],
                profile.ranks[dst],
                gpus[src],
                gpus[dst],
                1e-9 / beta,
                1e-9 / max(high, beta),
                1e-9 / min(low, beta),
            )


def measured_gbs(topology: Topology, profile: Profile, host: Host) -> dict[tuple[str, str], float]:
    """Return GB/s by (bus id from, bus id to) of the GPUs of one host."""
    return {
        (pair.src_gpu.bus_id, pair.dst_gpu.bus_id): pair.gbs
        for pair in measured_pairs(topology, profile)
        if pair.src.host == pair.dst.host
        and pair.src_gpu is not None
        and pair.dst_gpu is not None
        and {pair.src_gpu.bus_id, pair.dst_gpu.bus_id} <= {gpu.bus_id for gpu in host.gpus}
        and host_named(topology, pair.src.host) in (None, host)
    }


def host_named(topology: Topology, name: str) -> Host | None:
    """Return the host of that name, with or without domain; the only host of a topology matches any name."""
    if len(topology.hosts) == 1:
        return topology.hosts[0]
    short = name.partition(".")[0]
    return next((host for host in topology.hosts if host.name == name), None) or next(
        (host for host in topology.hosts if host.name.partition(".")[0] == short), None
    )


def gpu_of(topology: Topology, rank: ProfiledRank) -> Gpu | None:
    """Return the GPU of a rank; None if it uses no GPU, or if the topology has no GPU of that number."""
    kind, _, number = rank.device.partition(":")
    host = host_named(topology, rank.host)
    if kind != "cuda" or host is None or not number.isdecimal():
        return None
    return next((gpu for gpu in host.usable_gpus if gpu.index == int(number)), None)
