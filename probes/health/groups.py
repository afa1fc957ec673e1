"""Groups of hosts that are alike in all that counts, so that one host of each group is described.

The groups of parts of a cluster merge in any order, so hosts are gathered up a tree. If a thousand hosts are
equal, rank 0 receives one description and a thousand names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from probes.health.alike import facts_of
from probes.health.gpu_rules import gpu_problems
from probes.health.model import ClusterHealth, HostHealth
from probes.health.rules import host_problems

__all__ = ["HealthGroups", "LikeHosts", "cluster_health", "group_of", "merged_groups"]


@dataclass(frozen=True)
class LikeHosts:
    """Hosts that are alike, as (rank, name), and the health of the first of them."""

    hosts: tuple[tuple[int, str], ...]
    health: HostHealth


@dataclass(frozen=True)
class HealthGroups:
    """Groups of some hosts by their `_fingerprint`, and the hosts that could not be read, with reasons."""

    groups: dict[str, LikeHosts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def group_of(rank: int, health: HostHealth) -> HealthGroups:
    """Return the group of one host."""
    return HealthGroups({_fingerprint(health): LikeHosts(((rank, health.host),), health)})


def merged_groups(a: HealthGroups, b: HealthGroups) -> HealthGroups:
    """Return the groups of the hosts of ``a`` and of ``b``, which must have no host in common."""
    groups = dict(a.groups)
    for key, group in b.groups.items():
        groups[key] = _joined(groups[key], group) if key in groups else group
    return HealthGroups(groups, {**a.failed, **b.failed})


def cluster_health(found: HealthGroups, missing: Iterable[tuple[str, str]] = ()) -> ClusterHealth:
    """Return the health of all hosts, in the order of ranks; ``missing`` has other hosts, with reasons."""
    groups = sorted(found.groups.values(), key=lambda group: group.hosts[0])
    return ClusterHealth(
        tuple(group.health for group in groups),
        {**found.failed, **dict(missing)},
        {
            group.health.host: tuple(name for _, name in group.hosts[1:])
            for group in groups
            if group.hosts[1:]
        },
    )


def _joined(a: LikeHosts, b: LikeHosts) -> LikeHosts:
    hosts = tuple(sorted((*a.hosts, *b.hosts)))
    return LikeHosts(hosts, a.health if hosts[0] in a.hosts else b.health)


def _fingerprint(health: HostHealth) -> str:
    """Return a digest of all that counts: facts, problems, devices. Counters and temperatures do not."""
    health = replace(health, host="")
    devices = [(gpu.bus_id, gpu.name) for gpu in health.gpus]
    ports = [(nic.name, nic.rdma_device, nic.bus_id, nic.gid_index, nic.gid_routable) for nic in health.nics]
    problems = [*host_problems(health), *gpu_problems(health)]
    rest = (health.acs, health.iommu, health.virtual_machine, health.interface, health.pcie_switches)
    facts = (sorted(facts_of(health).items()), sorted(health.unread.items()))
    return hashlib.sha256(repr((facts, problems, devices, ports, rest)).encode()).hexdigest()
