"""Health of one host: everything but its GPUs, read from the kernel's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from probes.health.cpu_limit import read_cpu_limit
from probes.health.isolation import (
    iommu_state,
    pcie_switches,
    peer_functions,
    redirecting_bridges,
    virtual_machine,
)
from probes.health.kernel_log import kernel_events, read_kernel_log
from probes.health.link_modes import most_speed_mbit
from probes.health.model import HostHealth, NicHealth
from probes.health.nics import read_nics
from probes.health.settings import device_facts, kernel_facts, serial_number
from probes.health.software import library_facts, memory_lock_limit, package_versions
from probes.paths import functions
from probes.sysfs import machine

__all__ = ["read_host", "read_ports"]

_HERE = Path("/")
_RECORDED = "only a live machine has it, and this one was recorded"
_LOG = "the kernel's log (/dev/kmsg) takes root, or kernel.dmesg_restrict=0 and a readable /dev/kmsg: {}"


def read_host(host: str, root: Path = _HERE, *, log: str | None = None) -> HostHealth:
    """Return the health of the machine whose files are below ``root``, without its GPUs.

    Versions of libraries, limits of the process, the kernel's log and the speeds that Ethernet drivers
    support are read only if ``root`` is "/". ``log`` replaces the kernel's log. ``unread`` of the result maps
    each missing fact to what it takes to read it.
    """
    topology = machine.read(host, root).hosts[0]
    devices = functions(topology)
    peers = peer_functions(topology, devices)
    facts, unread = kernel_facts(root)
    nics = read_ports(host, root)
    bridges, acs_unread = redirecting_bridges(root, peers, devices)
    iommu = iommu_state(root, peers)
    if acs_unread:
        unread["acs"] = acs_unread
    if not iommu:
        unread["iommu"] = (
            "/sys/kernel/iommu_groups is not there: a kernel without IOMMU support, or a recording"
        )
    unread |= _unread_of(nics)
    serial, serial_unread = serial_number(root)
    if serial_unread:
        unread["serial"] = serial_unread
    health = HostHealth(
        host=host,
        alike=facts | device_facts(topology, nics),
        nics=nics,
        acs=bridges,
        iommu=iommu,
        virtual_machine=virtual_machine(root),
        pcie_switches=pcie_switches(peers, devices),
        serial=serial,
        cpu_limit=read_cpu_limit(root),
        unread=unread,
    )
    return _with_log(_with_software(health, root), root, log)


def read_ports(host: str, root: Path = _HERE) -> tuple[NicHealth, ...]:
    """Return the network ports of the machine whose files are below ``root``."""
    nics = read_nics(root, machine.read(host, root).hosts[0])
    if root != _HERE:
        return nics
    return tuple(
        replace(nic, speed_most_mbit=most_speed_mbit(nic.name))
        if nic.speed_most_mbit is None and nic.link_layer != "InfiniBand"
        else nic
        for nic in nics
    )


def _unread_of(nics: Sequence[NicHealth]) -> dict[str, str]:
    """Return the facts that some port lacks, each with what it takes to read it."""
    unread = {}
    if any(nic.relaxed_ordering is None for nic in nics if nic.rdma_device and not nic.virtual):
        unread["relaxed ordering"] = (
            "the configuration space of NICs beyond its first 64 bytes takes root, or a recording by root"
        )
    if any(nic.link_layer == "InfiniBand" for nic in nics):
        unread["rdma_mtu"] = "the kernel's files do not state the MTU of InfiniBand: ibv_devinfo prints it"
    return unread


def _with_software(health: HostHealth, root: Path) -> HostHealth:
    if root != _HERE:
        names = ("libraries", "packages", "memlock")
        return replace(health, unread={**health.unread, **dict.fromkeys(names, _RECORDED)})
    facts = {**library_facts(root), "packages": package_versions(), "memlock": memory_lock_limit()}
    return replace(health, alike={**health.alike, **facts})


def _with_log(health: HostHealth, root: Path, log: str | None) -> HostHealth:
    if log is None and root != _HERE:
        return replace(health, unread={**health.unread, "events": _RECORDED})
    try:
        found = read_kernel_log() if log is None else log
    except OSError as error:
        return replace(health, unread={**health.unread, "events": _LOG.format(error.strerror or error)})
    return replace(health, events=kernel_events(found))
