"""The health artifact: facts of each host that show whether it works as it should.

A field that could not be read is None, "" or (), and ``unread`` says what it would take to read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from probes.base import not_finite

__all__ = [
    "ClusterHealth",
    "CpuLimit",
    "GpuHealth",
    "HostHealth",
    "HostProblem",
    "KernelEvent",
    "NicHealth",
    "Severity",
]

Severity = Literal["fault", "remark"]


@dataclass(frozen=True)
class KernelEvent:
    """A message of the kernel's log that names a fault: an NVIDIA XID, an AER error, a machine check.

    ``kind`` is "xid", "sxid", "aer" or "mce". ``code`` is the number of an XID or SXID, else 0. ``device`` is
    a bus id, or the CPU or memory controller of a machine check, if its line names one.
    """

    kind: str
    device: str
    code: int = 0
    text: str = ""
    count: int = 1


@dataclass(frozen=True)
class GpuHealth:
    """One GPU as its driver reports it.

    PCIe speeds are in GT/s per lane. The ``load`` values were read while data moved; they are None if none
    did. ``throttled`` names the reasons for which clocks are held down now ("hw_slowdown", "sw_power_cap"…).
    ``nvlinks`` counts links that are up, ``nvlinks_expected`` all links of the GPU's model. Clocks are in
    MHz, power in W. ``ecc_uncorrected`` counts memory errors since the driver was loaded.
    ``ecc_uncorrected_ever`` and ``remapped_rows`` count since manufacture. ``failure`` is the driver's reason
    if it cannot use the GPU ("GPU is lost"). ``bus_id`` is "gpu<index>" if the GPU does not state it.
    ``sram_worn`` is the driver's flag of repeated errors in a bank of SRAM.
    """

    bus_id: str
    name: str = ""
    vbios: str = ""
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_uncorrected_ever: int | None = None
    remapped_rows: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pages: int | None = None
    pcie_gts: float | None = None
    pcie_width: int | None = None
    pcie_gts_load: float | None = None
    pcie_width_load: int | None = None
    pcie_gts_most: float | None = None
    pcie_width_most: int | None = None
    pcie_replays: int | None = None
    nvlinks: int | None = None
    nvlinks_expected: int | None = None
    nvlink_errors: dict[str, int] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    sm_clock_mhz: int | None = None
    sm_clock_most_mhz: int | None = None
    application_clock_mhz: int | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    temperature_c: int | None = None
    persistence: bool | None = None
    compute_mode: str = ""
    mig: bool | None = None
    processes: int | None = None
    failure: str = ""
    ecc_default: bool | None = None
    sram_worn: bool | None = None


@dataclass(frozen=True)
class NicHealth:
    """One network port. Speeds are in Mbit/s, ``counters`` are totals since the driver was loaded.

    ``grew`` maps each counter that rose between two readings, ``seconds`` apart, to its increase.
    ``gid_index`` is the index to use, of type ``gid_type`` ("RoCE v2", "IB/RoCE v1", "IB"); ``gid_routable``
    is False if its address reaches no other network. ``state`` is the state of an RDMA port ("active",
    "down"), or of an interface without RDMA ("up", "down").
    """

    name: str
    rdma_device: str = ""
    port: int | None = None
    bus_id: str = ""
    link_layer: str = ""
    state: str = ""
    speed_mbit: int | None = None
    speed_most_mbit: int | None = None
    mtu: int | None = None
    rdma_mtu: int | None = None
    firmware: str = ""
    board: str = ""
    gid_index: int | None = None
    gid_type: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    grew: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    pcie_gts: float | None = None
    pcie_width: int | None = None
    pcie_gts_most: float | None = None
    pcie_width_most: int | None = None
    relaxed_ordering: bool | None = None
    virtual: bool = False
    physical_state: str = ""
    gid_routable: bool | None = None


@dataclass(frozen=True)
class CpuLimit:
    """The limit of a host's ``ranks`` by their cgroups: a quota in ``cores``, a set of ``cpus``, or both.

    ``cpus`` is None if the set has all of the ``online`` CPUs. The processes had work in ``periods`` periods
    of the quota (usually 100 ms), and were held back in ``throttled`` of them.
    """

    cores: float | None = None
    cpus: int | None = None
    ranks: int | None = None
    online: int = 0
    periods: int = 0
    throttled: int = 0


@dataclass(frozen=True)
class HostHealth:
    """One host.

    ``alike`` maps the stable name of each fact that should be equal on all hosts to its value. These facts
    are what an operator sets or installs: "kernel", "driver", "cuda", "nccl", "mpi", "ofed", "governor",
    "numa_balancing", "memlock", "hugepages", "mtu eth0", "firmware mlx5_0"… ``interface`` is the network
    interface of the default route. ``acs`` lists bridges with Access Control Services that redirect
    peer-to-peer traffic. ``environment`` maps a variable for communication libraries to (value, reason).
    ``iommu`` is "off", "passthrough" or "translating", ``virtual_machine`` the name of the hypervisor or its
    product. ``pcie_switches`` counts the PCIe switches that the host shows above GPUs and RDMA ports.
    ``serial`` is the machine's serial number by its SMBIOS, "" if it cannot be read or is a placeholder.
    ``cpu_limit`` is None if no cgroup limits the processors.
    """

    host: str
    alike: dict[str, str] = field(default_factory=dict)
    gpus: tuple[GpuHealth, ...] = ()
    nics: tuple[NicHealth, ...] = ()
    events: tuple[KernelEvent, ...] = ()
    acs: tuple[str, ...] = ()
    iommu: str = ""
    virtual_machine: str = ""
    interface: str = ""
    peer_to_peer_missing: tuple[str, ...] = ()
    environment: dict[str, tuple[str, str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    pcie_switches: int | None = None
    serial: str = ""
    cpu_limit: CpuLimit | None = None


@dataclass(frozen=True)
class HostProblem:
    """One thing that is wrong on one host, or different from the other hosts.

    ``kind`` is a stable word ("ecc", "xid", "pcie_width", "differs"…), ``part`` names the device or setting.
    ``text`` is a sentence with the value found and the normal value. ``remedy`` is a sentence that says what
    to do.
    """

    host: str
    part: str
    kind: str
    severity: Severity
    text: str
    remedy: str


@dataclass(frozen=True)
class ClusterHealth:
    """The health of all hosts that answered; ``missing`` maps the others to the reason.

    ``hosts`` has one host of each group of hosts that are alike in all that counts. ``same`` maps the name of
    each of these to the names of the other hosts in its group.
    """

    hosts: tuple[HostHealth, ...]
    missing: dict[str, str] = field(default_factory=dict)
    same: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def every(self) -> Iterator[HostHealth]:
        """Yield each host that answered; hosts that are alike have the values of one of them."""
        for host in self.hosts:
            yield host
            yield from (replace(host, host=name) for name in self.same.get(host.host, ()))

    def problems(self) -> Iterator[str]:
        """Yield every inconsistency, as ``path: what is wrong``."""
        names = [one.host for one in self.every()]
        if len(set(names)) != len(names):
            yield "hosts: expected each host once"
        known = {host.host for host in self.hosts}
        yield from (f"same.{name}: expected a host of hosts" for name in self.same if name not in known)
        for at, host in enumerate(self.hosts):
            yield from not_finite(host, f"hosts[{at}]")
