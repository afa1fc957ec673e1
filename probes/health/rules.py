"""Rules that find what is wrong with one host, apart from its GPUs.

A "fault" is a part or a link that does not work as it can. A setting that costs speed is a "remark".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from probes.base import plural, some
from probes.health.cpu_limit import cpu_limit_problems
from probes.health.event_rules import event_problems
from probes.health.model import HostHealth, HostProblem
from probes.health.port_rules import port_problems
from probes.health.settings import NONE

__all__ = ["gpu_names", "host_problems"]

_MOST_NAMED = 4
# The first release of Linux whose RDMA can use a GPU's memory without an extra module, by DMA-BUF.
_DMA_BUF_KERNEL = (5, 12)


def host_problems(health: HostHealth) -> list[HostProblem]:
    """Return what is wrong with a host, without its GPUs: faults first, then remarks."""
    found = [
        *port_problems(health, has_gpus=bool(gpu_names(health))),
        *event_problems(health),
        *cpu_limit_problems(health),
        *_direct_access(health),
        *_settings(health),
    ]
    return sorted(found, key=lambda problem: problem.severity != "fault")


def gpu_names(health: HostHealth) -> list[str]:
    """Return the name of each GPU: those on the PCI bus, else those that a driver states."""
    counted = (one.partition(" x ") for one in health.alike.get("pci gpus", NONE).split(", "))
    names = [name for count, _, name in counted if count.isdecimal() for _ in range(int(count))]
    return names or [gpu.name for gpu in health.gpus]


def _direct_access(health: HostHealth) -> Iterator[HostProblem]:
    """Yield what slows direct transfers of GPUs and NICs, or hides which are near each other."""
    gpus = len(gpu_names(health))
    nics = sum(bool(nic.rdma_device) for nic in health.nics)
    if gpus == 0 or gpus + nics < 2:
        return
    if health.acs:
        yield _remark(
            health,
            "PCIe switches",
            "acs",
            f"{plural(len(health.acs), 'port')} of PCIe switches ({some(health.acs, _MOST_NAMED)}) redirect "
            "transfers between devices to the CPU (ACS); 0 is normal on a host without virtual machines",
            "turn ACS off in the BIOS, or for each port until the next start: "
            f"setpci -s {health.acs[0]} ECAP_ACS+6.w=0000",
        )
    if health.iommu == "translating" and not health.virtual_machine:
        yield _remark(
            health,
            "IOMMU",
            "iommu",
            "the IOMMU translates the addresses of GPUs and NICs; off or passthrough is normal",
            "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX, then update-grub), or turn it "
            "off in the BIOS",
        )
    if health.virtual_machine and health.pcie_switches == 0 and gpus > 1 and nics:
        yield _remark(
            health,
            "PCIe tree",
            "virtual_pcie",
            f"the virtual machine ({health.virtual_machine}) shows {gpus} GPUs and "
            f"{plural(nics, 'RDMA port')} without a PCIe switch, which hides what is near what",
            "give NCCL the provider's description of the machine: NCCL_TOPO_FILE=/path/to/topology.xml",
        )


@dataclass(frozen=True)
class _Setting:
    """A fact of ``alike`` with its normal value; ``text`` and ``remedy`` are for other values."""

    fact: str
    matters: Callable[[HostHealth], bool]
    normal: str
    part: str
    text: str
    remedy: str


def _has_gpus(health: HostHealth) -> bool:
    return bool(gpu_names(health))


def _has_rdma(health: HostHealth) -> bool:
    return any(nic.rdma_device for nic in health.nics)


_SETTINGS = (
    _Setting(
        "governor",
        _has_gpus,
        "performance",
        "CPU clocks",
        "the governor of the CPUs' clocks is {}; performance is normal on a GPU host",
        "cpupower frequency-set -g performance",
    ),
    _Setting(
        "numa_balancing",
        _has_gpus,
        "0",
        "NUMA balancing",
        "kernel.numa_balancing is {}; 0 is normal on a GPU host, as moved pages stop threads that feed GPUs",
        "sysctl -w kernel.numa_balancing=0 (a file in /etc/sysctl.d keeps it)",
    ),
    _Setting(
        "memlock",
        _has_rdma,
        "unlimited",
        "memlock",
        "a process may lock {} of memory; unlimited is normal with RDMA",
        "ulimit -l unlimited, by /etc/security/limits.d for users and LimitMEMLOCK=infinity for services",
    ),
)


def _settings(health: HostHealth) -> Iterator[HostProblem]:
    for setting in _SETTINGS:
        value = health.alike.get(setting.fact, setting.normal)
        if value != setting.normal and setting.matters(health):
            yield _remark(health, setting.part, setting.fact, setting.text.format(value), setting.remedy)
    if _has_gpus(health) and _has_rdma(health) and _needs_peer_memory(health):
        yield _remark(
            health,
            "GPUDirect RDMA",
            "peer_memory",
            "nvidia_peermem is not loaded, and without it this driver and kernel have no GPUDirect RDMA; "
            "loaded is normal",
            "modprobe nvidia_peermem (a file in /etc/modules-load.d keeps it)",
        )


def _needs_peer_memory(health: HostHealth) -> bool:
    """Return whether GPUDirect RDMA has neither its module nor DMA-BUF (by the open driver)."""
    driver = health.alike.get("driver", NONE)
    if driver == NONE or health.alike.get("peer memory") != NONE:
        return False
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", health.alike.get("kernel", ""))
    recent = match is not None and (int(match[1]), int(match[2])) >= _DMA_BUF_KERNEL
    return not (recent and driver.endswith("(open module)"))


def _remark(health: HostHealth, part: str, kind: str, text: str, remedy: str) -> HostProblem:
    return HostProblem(health.host, part, kind, "remark", text, remedy)
