"""Groups of equal hosts, so that each group is described once.

Names, serial numbers, addresses and counters are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.diff.comparison import compare_hosts
from probes.diff.model import Difference
from probes.topology import Host, Topology

__all__ = ["Alike", "fold_hosts"]


@dataclass(frozen=True)
class Alike:
    """A group of equal hosts; ``differences`` compares its first host with the largest group's first host."""

    hosts: tuple[Host, ...]
    differences: tuple[Difference, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of these hosts."""
        return [host.name for host in self.hosts]


def fold_hosts(topology: Topology) -> list[Alike]:
    """Return groups of equal hosts, the largest group first; each host is in exactly one group.

    Hosts with equal records are grouped first. Then groups are merged if their first hosts show no
    difference.
    """
    equal: list[tuple[Host, list[Host]]] = []
    for host in topology.hosts:
        plain = _plain(host)
        same = next((hosts for other, hosts in equal if other == plain), None)
        if same is None:
            equal.append((plain, [host]))
        else:
            same.append(host)
    groups: list[list[Host]] = []
    for hosts in sorted((hosts for _, hosts in equal), key=len, reverse=True):
        alike = next((group for group in groups if not _differences(group[0], hosts[0])), None)
        if alike is None:
            groups.append(hosts)
        else:
            alike += hosts
    groups.sort(key=len, reverse=True)
    return [
        Alike(tuple(group), _differences(groups[0][0], group[0]) if group is not groups[0] else ())
        for group in groups
    ]


def _differences(reference: Host, found: Host) -> tuple[Difference, ...]:
    return compare_hosts(reference, found).differences


def _plain(host: Host) -> Host:
    """Return the host without individual and momentary values."""
    return replace(
        host,
        name="",
        memory_bytes=None,
        numa=tuple(replace(node, memory_bytes=None) for node in host.numa),
        pci=tuple(replace(device, speed_gts=None) for device in host.pci),
        gpus=tuple(replace(gpu, uuid="", fabric_cluster="", fabric_clique=None) for gpu in host.gpus),
        nics=tuple(replace(nic, mac="", addresses=(), guid="", errors={}) for nic in host.physical_nics),
        matrices=(),
    )
