"""Ports of real cards among the ``<net>`` elements of NCCL's files, each with a unique name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized

from probes.topology import Host, Nic

__all__ = ["is_physical", "numbered_ports", "own_name"]

_SOFTWARE = re.compile(
    r"lo$|br[-\d]|(tun|tap|gre|erspan|sit|ip6tnl|ip_vti|ip6_vti|dummy|ifb|bond|team|veth|vnet|virbr|docker"
    r"|podman|cni|cali|lxc|lxd|flannel|cilium|vxlan|geneve|kube|weave|ovs|macv|ipvl|wg|zt|tailscale)"
)


def is_physical(nic: Nic, places: Sized) -> bool:
    """Return whether this is a port of a card; ``places`` are the PCI devices or CPUs above it."""
    if "+" in nic.name:  # a port that NCCL fused from several, which are also listed
        return False
    if nic.bus_id:
        return True
    # NCCL lists a software interface without a PCI device, below every CPU that has a GPU.
    return len(places) == 1 and _SOFTWARE.match(nic.name) is None


def own_name(name: str, port: int | None, bus_id: str, taken: Mapping[str, Nic]) -> str:
    """Return a unique name: ports of a card, or cards of a plugin, may share a name in the file."""
    if not bus_id:
        return name
    if name in taken and taken[name].bus_id != bus_id:
        name = f"{name}@{bus_id}"
    if name in taken and taken[name].port != port:
        name = f"{name}:{port or 0}"
    return name


def numbered_ports(host: Host) -> dict[str, int]:
    """Return the device number of each port in NCCL's network plugin, by name of the NIC.

    Ports with a number in NCCL's own file keep it. The others get the free numbers in NCCL's default order:
    RDMA before plain Ethernet, each in the host's order. A NIC named by its bus id is not a driver's port and
    has no number.
    """
    ports = [nic for nic in host.physical_nics if nic.name != nic.bus_id]
    found: dict[str, int] = {}
    for nic in ports:
        if nic.index is not None and nic.index not in found.values():
            found[nic.name] = nic.index
    free = (number for number in range(len(ports) + len(found)) if number not in set(found.values()))
    for nic in sorted((nic for nic in ports if nic.name not in found), key=lambda nic: not nic.rdma_device):
        found[nic.name] = next(free)
    return found
