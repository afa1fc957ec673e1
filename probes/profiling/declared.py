"""The host and the NIC that a topology declares for each rank.

If the environment names several NICs for all hosts, the ranks of a host use them in turn.
"""

from __future__ import annotations

import os

from probes.base import UsageError, normal_bus_id
from probes.paths import nearest_nic
from probes.topology import Host, Nic, Topology

__all__ = ["NICS", "bind_nic", "bound_nic", "declared_nic", "host_of"]

# Environment variables: the NICs of every host, separated by commas, and the NIC to which this rank is bound.
NICS, _NIC = "CCCTL_NICS", "CCCTL_NIC"
_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK", "SLURM_LOCALID")
# Variables by which Open MPI, UCX and libfabric choose a NIC.
_VARIABLES = ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES", "FI_TCP_IFACE")


def bind_nic() -> None:
    """Bind MPI, which must not have started yet, to one of several NICs."""
    nics = [nic for nic in os.environ.get(NICS, "").split(",") if nic]
    local = next((os.environ[name] for name in _LOCAL_RANKS if name in os.environ), None)
    if len(nics) > 1 and local is not None:
        os.environ.update(dict.fromkeys((_NIC, *_VARIABLES), nics[int(local) % len(nics)]))


def bound_nic() -> str:
    """Return the name of the NIC to which this rank is bound, "" if it is not."""
    return os.environ.get(_NIC, "")


def host_of(topology: Topology, name: str) -> Host:
    """Return the host of that name, with or without its domain; a single host matches any name.

    Raises UsageError if there is none.
    """
    if len(topology.hosts) == 1:
        return topology.hosts[0]
    short = name.partition(".")[0]
    found = next((host for host in topology.hosts if name == host.name), None) or next(
        (host for host in topology.hosts if short == host.name.partition(".")[0]), None
    )
    if found is None:
        known = ", ".join(host.name for host in topology.hosts[:8])
        raise UsageError(f"the topology has no host {name}; it has {known}")
    return found


def declared_nic(topology: Topology, name: str, bus_id: str = "") -> Nic | None:
    """Return this rank's NIC on host ``name``: the nearest to its GPU, or the NIC it is bound to.

    None if unknown: an unbound process uses whichever NIC the library picks.
    """
    host = host_of(topology, name)
    if bound := bound_nic():
        return next((nic for nic in host.nics if bound in (nic.name, nic.rdma_device)), None)
    if not bus_id:
        return None
    gpu = next((gpu for gpu in host.gpus if gpu.bus_id == normal_bus_id(bus_id)), None)
    return nearest_nic(host, gpu) if gpu is not None else None
