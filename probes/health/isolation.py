"""Parts of a machine that stand between a device and another device's memory: IOMMU, ACS, a hypervisor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from probes.paths import chain
from probes.sysfs import lines, pci_config, text
from probes.topology import Host, PciDevice

__all__ = ["iommu_state", "pcie_switches", "peer_functions", "redirecting_bridges", "virtual_machine"]

_NOT_ROOT = (
    "only root (or CAP_SYS_ADMIN) may read the configuration space of PCIe bridges beyond its first "
    "64 bytes; a recording made by root has it"
)
# The kernel's type of an IOMMU group whose addresses are not translated.
_IDENTITY = "identity"


def peer_functions(host: Host, devices: Mapping[str, PciDevice]) -> list[str]:
    """Return the PCI functions that read each other's memory: GPUs and NICs with RDMA."""
    gpus = [gpu.bus_id for gpu in host.gpus]
    nics = [nic.bus_id for nic in host.nics if nic.rdma_device and nic.physical]
    return [bus_id for bus_id in dict.fromkeys((*gpus, *nics)) if bus_id in devices]


def redirecting_bridges(
    root: Path, peers: Iterable[str], devices: Mapping[str, PciDevice]
) -> tuple[tuple[str, ...], str]:
    """Return the ports of PCIe switches that redirect transfers between devices to the CPU (by ACS).

    Without redirection, a transfer between two devices below a switch stays inside the switch. The second
    value says who may read the ports that could not be read, "" if all were read. Root ports do not count:
    transfers between two of them pass the CPU in any case.
    """
    ports = {
        bridge.bus_id: bridge
        for peer in peers
        for bridge in chain(peer, devices)[1:]
        if bridge.role == "downstream"
    }
    configs = {name: pci_config.read_config(root / "sys/bus/pci/devices" / name) for name in sorted(ports)}
    hidden = any(not pci_config.is_whole(config) for config in configs.values())
    found = tuple(name for name, config in configs.items() if pci_config.redirects_peers(config))
    return found, _NOT_ROOT if hidden else ""


def pcie_switches(peers: Iterable[str], devices: Mapping[str, PciDevice]) -> int:
    """Return the number of PCIe switches above these functions."""
    return len(
        {bridge.bus_id for peer in peers for bridge in chain(peer, devices)[1:] if bridge.role == "upstream"}
    )


def iommu_state(root: Path, peers: Iterable[str]) -> str:
    """Return "off", "passthrough" or "translating" for these functions; "" if that is unknown."""
    groups = root / "sys/kernel/iommu_groups"
    if not groups.is_dir():
        return ""
    if not any(groups.glob("*")):
        return "off"
    linked = [root / "sys/bus/pci/devices" / name / "iommu_group/type" for name in peers]
    types = {text(place) for place in linked if place.exists()}
    types = types or {text(place) for place in groups.glob("[0-9]*/type")}
    if types - {""}:
        return "passthrough" if types - {""} == {_IDENTITY} else "translating"
    # Old kernels do not state the type of a group.
    options = set(text(root / "proc/cmdline").split())
    return "passthrough" if options & {"iommu=pt", "iommu.passthrough=1"} else "translating"


def virtual_machine(root: Path) -> str:
    """Return the hypervisor's type, vendor and product, if known; "" on a physical machine."""
    kind = text(root / "sys/hypervisor/type")
    flags = {
        flag
        for line in lines(root / "proc/cpuinfo").splitlines()
        if line.startswith("flags")
        for flag in line.partition(":")[2].split()
    }
    # ARM processors have no such flag, so the vendor QEMU is a sign of a virtual machine, too.
    vendor = text(root / "sys/class/dmi/id/sys_vendor")
    if not kind and "hypervisor" not in flags and vendor != "QEMU":
        return ""
    product = text(root / "sys/class/dmi/id/product_name")
    return " ".join(filter(None, (kind, vendor, product))) or "a hypervisor without a name"
