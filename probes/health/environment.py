"""Environment variables that communication libraries need on one host, each with its reason.

The variables are those that NCCL (and RCCL), UCX, Open MPI, libfabric and Gloo document. A variable is left
out if the library's default is right, or if the host does not show the right value.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from probes.base import plural
from probes.health.model import HostHealth, NicHealth
from probes.paths import Paths, PathType, nearest_nic
from probes.sysfs import lines
from probes.topology import Host, Nic

__all__ = ["default_interface", "environment", "nic_of_gpus", "source_file"]

_Variables = dict[str, tuple[str, str]]

_UP = ("up", "active")
# Beginnings of the names of interfaces of containers and virtual machines, which do not lead to other hosts.
_LOCAL = (
    *("docker", "veth", "br-", "virbr", "vnet", "tap", "tun", "cni", "cali", "flannel", "cilium", "lxc"),
    *("kube", "vxlan", "ifb", "dummy"),
)
# Distances at which NCCL does not use GPUDirect RDMA by default, nearest first. The default reaches up to PXB
# (several PCIe switches).
_BEYOND: tuple[PathType, ...] = ("PHB", "NODE", "SYS", "?")


def environment(host: Host, health: HostHealth, interface: str = "") -> _Variables:
    """Return (value, reason) of each variable by its name.

    ``interface`` is the interface of the default route (`default_interface`). Without ``interface``, the
    host's interface for TCP is used if there is only one.
    """
    nics = nic_of_gpus(host)
    ports = _ports(host, nics)
    found = dict(_nccl_variables(host, health, nics, ports))
    found |= _ucx_variables(health, ports)
    chosen = interface or _only_interface(host)
    found |= _interface_variables(chosen, bool(interface)) if chosen else {}
    if chosen and not ports:
        # Two ranks exchanged 512 KiB over 50 Mbit/s in 190 ms with one connection, and in 100 ms with two.
        reason = "over one connection, Open MPI moves the two ways of an exchange one after the other"
        found["OMPI_MCA_btl_tcp_links"] = ("2", reason)
    return found


def nic_of_gpus(host: Host) -> dict[str, Nic]:
    """Return the nearest RDMA port that is up for each usable GPU, by the GPU's bus id."""
    usable = replace(host, nics=tuple(nic for nic in host.physical_nics if _is_rdma(nic)))
    found = {gpu.bus_id: nearest_nic(usable, gpu) for gpu in host.usable_gpus}
    return {bus_id: nic for bus_id, nic in found.items() if nic is not None}


def default_interface(root: Path = Path("/")) -> str:
    """Return the interface of the default route of IPv4, else of IPv6; "" if there is none."""
    routes = []
    for line in lines(root / "proc/net/route").splitlines():
        words = line.split()
        # Columns: interface, destination, gateway, flags, two counters, metric, mask. Addresses, flags and
        # mask are hexadecimal, the metric is decimal.
        if len(words) > 7 and words[1] == words[7] == "00000000" and words[6].isdecimal():
            routes.append((int(words[6]), words[0]))
    if routes:
        return min(routes)[1]
    for line in lines(root / "proc/net/ipv6_route").splitlines():
        words = line.split()
        # The first two columns are the destination and the length of its prefix, the last column is the
        # interface. The kernel itself makes routes over lo.
        if len(words) == 10 and set(words[0]) == {"0"} and words[1] == "00" and words[9] != "lo":
            return words[9]
    return ""


def source_file(variables: Mapping[str, tuple[str, str]]) -> str:
    """Return the variables as lines for a shell: a comment with the reason, then the export."""
    text = ""
    for name, (value, reason) in variables.items():
        # Without quotes, zsh takes =eth0 for the path of a command.
        quoted = f"'{value}'" if value.startswith("=") and shlex.quote(value) == value else shlex.quote(value)
        text += f"# {' '.join(reason.split())}\nexport {name}={quoted}\n"
    return text


def _is_rdma(nic: Nic) -> bool:
    return bool(nic.rdma_device) and nic.state in _UP


def _ports(host: Host, nics: Mapping[str, Nic]) -> list[Nic]:
    """Return the GPUs' RDMA ports, each once; on a host without GPUs, all RDMA ports that are up.

    Only the ports of the link layer with the most bandwidth in total are returned, because a job uses one
    link layer.
    """
    found = list({nic.name: nic for nic in nics.values()}.values())
    if not host.usable_gpus:
        found = [nic for nic in host.physical_nics if _is_rdma(nic)]
    speeds: dict[str, int] = {}
    for nic in found:
        speeds[nic.link_layer] = speeds.get(nic.link_layer, 0) + (nic.speed_mbit or 0)
    fastest = max(speeds, key=lambda layer: speeds[layer], default="")
    return [nic for nic in found if nic.link_layer == fastest]


def _port(nic: Nic) -> str:
    return f"{nic.rdma_device}:{nic.port or 1}"


def _nccl_variables(
    host: Host, health: HostHealth, nics: Mapping[str, Nic], ports: Sequence[Nic]
) -> Iterator[tuple[str, tuple[str, str]]]:
    if not ports:
        return
    yield (
        "NCCL_IB_HCA",
        ("=" + ",".join(map(_port, ports)), f"{_nearest(host, ports)}; = stands for whole names"),
    )
    index = _gid_index(health, ports)
    if index is not None:
        reason = "the index of the RoCE v2 address, the same on all of these ports"
        yield "NCCL_IB_GID_INDEX", (str(index), reason)
    if len(ports) > 1 and len(ports) == len(host.usable_gpus):
        reason = f"each of {plural(len(ports), 'GPU')} has a port of its own: a ring stays on one rail"
        yield "NCCL_CROSS_NIC", ("0", reason)
    level, reason = _gdr_level(host, health, nics)
    if level:
        yield "NCCL_NET_GDR_LEVEL", (level, reason)
    refused = any(nic.relaxed_ordering is False for nic in _health_of(health, ports))
    if health.virtual_machine and not refused:
        reason = f"a virtual machine ({health.virtual_machine}): writes to GPUs are slow in strict order"
        yield "NCCL_IB_PCI_RELAXED_ORDERING", ("1", reason)


def _ucx_variables(health: HostHealth, ports: Sequence[Nic]) -> _Variables:
    if not ports:
        return {}
    reason = "the RDMA ports that NCCL uses, so that MPI takes no slower one"
    found = {"UCX_NET_DEVICES": (",".join(map(_port, ports)), reason)}
    index = _gid_index(health, ports)
    if index is not None:
        found["UCX_IB_GID_INDEX"] = (str(index), "the index of the RoCE v2 address, as for NCCL")
    return found


def _interface_variables(name: str, is_default: bool) -> _Variables:
    why = f"{name} has the default route" if is_default else f"{name} is the only interface for TCP"
    return {
        "NCCL_SOCKET_IFNAME": (f"={name}", f"{why}; by default NCCL takes one whose name begins with ib"),
        "GLOO_SOCKET_IFNAME": (
            name,
            f"{why}; by default Gloo takes the one to which the host's name resolves",
        ),
        "OMPI_MCA_btl_tcp_if_include": (name, f"{why}; by default Open MPI tries all, bridges too"),
        "OMPI_MCA_oob_tcp_if_include": (name, f"{why}; Open MPI 4 starts its processes over it"),
        "FI_TCP_IFACE": (name, f"{why}; for MPICH over libfabric's tcp provider"),
    }


def _nearest(host: Host, ports: Sequence[Nic]) -> str:
    if len(ports) == 1:
        return f"{_port(ports[0])} is the RDMA port to use"
    where = f" that are nearest to {plural(len(host.usable_gpus), 'GPU')}" if host.usable_gpus else ""
    return f"the {len(ports)} RDMA ports{where}, of those that are up"


def _health_of(health: HostHealth, ports: Sequence[Nic]) -> list[NicHealth]:
    wanted = {_port(nic) for nic in ports}
    return [nic for nic in health.nics if f"{nic.rdma_device}:{nic.port or 1}" in wanted]


def _gid_index(health: HostHealth, ports: Sequence[Nic]) -> int | None:
    """Return the index of the RoCE v2 address if all ports are Ethernet and share it."""
    known = _health_of(health, ports)
    indices = {nic.gid_index for nic in known if nic.gid_type == "RoCE v2"}
    is_roce = all(nic.link_layer == "Ethernet" for nic in ports)
    shared = len(indices) == 1 and all(nic.gid_type == "RoCE v2" for nic in known)
    return indices.pop() if is_roce and shared and len(known) == len(ports) else None


def _gdr_level(host: Host, health: HostHealth, nics: Mapping[str, Nic]) -> tuple[str, str]:
    """Return (NCCL_NET_GDR_LEVEL, reason), both "" if NCCL's default should stay."""
    paths = Paths(host)
    pairs = [(gpu, nics[gpu.bus_id]) for gpu in host.usable_gpus if gpu.bus_id in nics]
    far = {paths.between(gpu, nic) for gpu, nic in pairs} & set(_BEYOND)
    if not far or any(False in (gpu.gpudirect, nic.gpudirect) for gpu, nic in pairs):
        return "", ""
    farthest = max(far, key=_BEYOND.index)
    level = "SYS" if farthest == "?" else farthest
    if health.virtual_machine:
        reason = "the guest is not shown the PCIe switches, so that near ports look far to NCCL"
        return level, f"{reason}, which then copies over the host's memory"
    if all(gpu.gpudirect and nic.gpudirect for gpu, nic in pairs):
        return level, f"GPUDirect RDMA works, and the nearest port of a GPU is at the distance {farthest}"
    return "", ""


def _only_interface(host: Host) -> str:
    """Return the only interface for traffic without RDMA; "" if there are several or none.

    Interfaces that are up and have an address count. If none has an address, all that are up count. Ports of
    a bond have no address, so only the bond counts.
    """
    up = [nic for nic in host.nics if nic.state == "up" and not nic.name.startswith(_LOCAL)]
    plain = [nic for nic in up if nic.link_layer != "InfiniBand"]
    addressed = [nic for nic in plain if any(not address.startswith("fe80") for address in nic.addresses)]
    found = addressed or plain
    return found[0].name if len(found) == 1 else ""
