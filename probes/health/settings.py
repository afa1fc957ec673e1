"""Settings and versions of one host that should be equal on all hosts, from the kernel's files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.base import visible, whole
from probes.health.model import NicHealth
from probes.paths import product_name
from probes.sysfs import KERNEL_OPTIONS, lines, text
from probes.topology import Host

__all__ = ["NONE", "counted", "device_facts", "kernel_facts", "serial_number"]

# The value of a fact that was read and is absent; a fact that could not be read has no value.
NONE = "none"
_NVIDIA_VERSION = re.compile(r"Kernel Module\b.*?\s([0-9]+(?:\.[0-9]+)+)")
# Names that the kernel and udev give to network interfaces. Bridges and tunnels of containers have other
# names, which may differ between hosts. ``_MOST_VALUE`` is the most characters of a fact's value.
_NETWORK = re.compile(r"(eth|en[opsxPu]|ib|bond|hsn)[0-9a-z]")
_MOST_VALUE = 200


@dataclass(frozen=True)
class _Fact:
    """A fact, its reader, and the reason why it may be missing or unreadable."""

    name: str
    read: Callable[[Path], str]
    missing: str


def kernel_facts(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the facts in the kernel's files below ``root``, and why others are missing."""
    facts: dict[str, str] = {}
    unread: dict[str, str] = {}
    for fact in _FACTS:
        value = visible(fact.read(root), _MOST_VALUE)
        if value:
            facts[fact.name] = value
        else:
            unread[fact.name] = fact.missing
    return facts, unread


def device_facts(host: Host, nics: Sequence[NicHealth]) -> dict[str, str]:
    """Return the facts that name each GPU and port of a machine, and how each port is set up.

    Interfaces without a device, such as bonds, add only their MTU, and only if the kernel or udev named them.
    """
    devices = {device.bus_id: device for device in host.pci}
    gpus = [devices[gpu.bus_id] for gpu in host.gpus if gpu.bus_id in devices]
    ports = [nic for nic in nics if not nic.virtual]
    facts = {
        "pci gpus": counted(
            product_name(one.vendor, one.device) or f"{one.vendor}:{one.device}" for one in gpus
        ),
        "rdma ports": counted(nic.board for nic in ports if nic.rdma_device),
        "ports": ", ".join(sorted(nic.name for nic in ports)) or NONE,
    }
    for nic in ports:
        kind = "rdma " if nic.rdma_device else ""
        speed = f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else ""
        found = {
            f"mtu {nic.name}": str(nic.mtu or ""),
            f"{kind}state {nic.name}": nic.state,
            f"{kind}speed {nic.name}": speed,
            f"{kind}pcie {nic.name}": _pcie(nic),
            f"firmware {nic.rdma_device or nic.name}": nic.firmware,
            f"gid {nic.name}": f"{nic.gid_type} {nic.gid_index}" if nic.gid_type else "",
        }
        facts |= {name: visible(value, _MOST_VALUE) for name, value in found.items() if value}
    known = {nic.name for nic in nics}
    for one in host.nics:
        if one.name not in known and one.mtu and _NETWORK.match(one.name):
            facts[f"mtu {one.name}"] = str(one.mtu)
    return facts


def counted(names: Iterable[str]) -> str:
    """Return how many of each there are: "8 x NVIDIA H100, 1 x NVIDIA L4"; "none" for nothing."""
    counts = Counter(names)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or NONE


def _pcie(nic: NicHealth) -> str:
    return f"{nic.pcie_gts:g} GT/s x{nic.pcie_width}" if nic.pcie_gts and nic.pcie_width else ""


def _file(name: str) -> Callable[[Path], str]:
    return lambda root: " ".join(text(root / name).split())


def _module(name: str) -> Callable[[Path], str]:
    """Return a reader of a module's version; "loaded" if unstated, "none" if not loaded."""

    def read(root: Path) -> str:
        modules = root / "sys/module"
        if not modules.is_dir():
            return ""
        return text(modules / name / "version") or ("loaded" if (modules / name).is_dir() else NONE)

    return read


def _transparent_huge_pages(root: Path) -> str:
    # The file lists all choices, the chosen one in brackets.
    match = re.search(r"\[(\w+)\]", text(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return match[1] if match else ""


def _processor(*names: str) -> Callable[[Path], str]:
    """Return a reader of /proc/cpuinfo: all values of the first of ``names`` found there."""

    def read(root: Path) -> str:
        pairs = [line.partition(":") for line in lines(root / "proc/cpuinfo").splitlines()]
        for wanted in names:
            found = {value.strip() for name, _, value in pairs if name.strip() == wanted and value.strip()}
            if found:
                return ", ".join(sorted(found))
        return ""

    return read


def _release(root: Path) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', lines(root / "etc/os-release"), re.MULTILINE)
    return match[1] if match else ""


def _governors(root: Path) -> str:
    policies = root.glob("sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor")
    return ", ".join(sorted({text(policy) for policy in policies} - {""}))


def _huge_pages(root: Path) -> str:
    folders = sorted(root.glob("sys/kernel/mm/hugepages/hugepages-*kB"))
    counts = {folder.name[len("hugepages-") :]: text(folder / "nr_hugepages") for folder in folders}
    reserved = [f"{count} of {size}" for size, count in counts.items() if count not in ("", "0")]
    return ", ".join(reserved) or (NONE if counts else "")


def _swap(root: Path) -> str:
    areas = [line.split() for line in lines(root / "proc/swaps").splitlines()]
    # The first line names the columns: file, type, KiB, …
    kib = sum(whole(words[2]) or 0 for words in areas[1:] if len(words) > 2)
    return f"{kib / 2**20:.0f} GiB" if kib else (NONE if areas else "")


def _options(root: Path) -> str:
    if not (root / "proc/cmdline").exists():
        return ""
    words = text(root / "proc/cmdline").split()
    return " ".join(sorted(word for word in words if word.split("=")[0] in KERNEL_OPTIONS)) or NONE


def _isolated(root: Path) -> str:
    folder = root / "sys/devices/system/cpu"
    return text(folder / "isolated") or (NONE if (folder / "online").exists() else "")


def _numa_nodes(root: Path) -> str:
    nodes = len(list(root.glob("sys/devices/system/node/node[0-9]*")))
    return str(nodes) if nodes else ""


def _memory(root: Path) -> str:
    """Return the memory's size in whole blocks, so that equal machines state equal sizes."""
    folder = root / "sys/devices/system/memory"
    digits = re.fullmatch(r"[0-9a-f]{1,12}", text(folder / "block_size_bytes"))
    blocks = len(list(folder.glob("memory[0-9]*")))
    return f"{int(digits[0], 16) * blocks / 2**30:g} GiB" if digits and blocks else ""


def _driver(root: Path) -> str:
    """Return the version of NVIDIA's driver and the kind of its module."""
    stated = text(root / "proc/driver/nvidia/version")
    version = text(root / "sys/module/nvidia/version")
    if not version and (match := _NVIDIA_VERSION.search(stated)):
        version = match[1]
    if not version:
        return NONE if (root / "sys/module").is_dir() or (root / "proc/sys/kernel").is_dir() else ""
    return f"{version} (open module)" if "Open Kernel Module" in stated else version


def _peer_memory(root: Path) -> str:
    modules = root / "sys/module"
    if not modules.is_dir():
        return ""
    return next((name for name in ("nvidia_peermem", "nv_peer_mem") if (modules / name).is_dir()), NONE)


def _board(root: Path) -> str:
    folder = root / "sys/class/dmi/id"
    return " ".join(
        filter(None, (text(folder / name) for name in ("sys_vendor", "product_name", "board_name")))
    )


def serial_number(root: Path) -> tuple[str, str]:
    """Return the machine's serial number, and the reason if it cannot be read; both "" for a placeholder."""
    folder = root / "sys/class/dmi/id"
    if not folder.is_dir():
        return "", _SMBIOS
    found = next(filter(None, (text(folder / f"{name}_serial") for name in ("product", "board"))), "")
    if not found:
        return "", "/sys/class/dmi/id/product_serial takes root"
    return ("", "") if found.lower() in _PLACEHOLDERS else (found, "")


# Serial numbers that mainboards state before their vendor sets one.
_PLACEHOLDERS = frozenset(
    ("0", "none", "default string", "not specified", "system serial number", "to be filled by o.e.m.")
)
_ABSENT = "{} is not there: this kernel or network namespace does not have it, or a recording lacks it"
_SMBIOS = "/sys/class/dmi/id is not there: the machine has no SMBIOS, as some virtual machines"
_CPUFREQ = (
    "/sys/devices/system/cpu/cpufreq is empty: only the firmware or the hypervisor sets the clocks here"
)


def _plain(name: str, path: str) -> _Fact:
    return _Fact(name, _file(path), _ABSENT.format(f"/{path}"))


_FACTS = (
    _plain("kernel", "proc/sys/kernel/osrelease"),
    _Fact("distribution", _release, _ABSENT.format("/etc/os-release")),
    _Fact("cpu", _processor("model name", "cpu", "CPU implementer"), "/proc/cpuinfo names no model"),
    _Fact("microcode", _processor("microcode"), "/proc/cpuinfo states no microcode"),
    _plain("cpus", "sys/devices/system/cpu/online"),
    _Fact("memory", _memory, _ABSENT.format("/sys/devices/system/memory")),
    _Fact("numa nodes", _numa_nodes, _ABSENT.format("/sys/devices/system/node")),
    _plain("smt", "sys/devices/system/cpu/smt/active"),
    _plain("numa_balancing", "proc/sys/kernel/numa_balancing"),
    _plain("zone_reclaim", "proc/sys/vm/zone_reclaim_mode"),
    _Fact("governor", _governors, _CPUFREQ),
    _Fact(
        "transparent_hugepages",
        _transparent_huge_pages,
        _ABSENT.format("/sys/kernel/mm/transparent_hugepage"),
    ),
    _Fact("hugepages", _huge_pages, _ABSENT.format("/sys/kernel/mm/hugepages")),
    _Fact("swap", _swap, _ABSENT.format("/proc/swaps")),
    _Fact("kernel options", _options, _ABSENT.format("/proc/cmdline")),
    _Fact("isolated cpus", _isolated, _ABSENT.format("/sys/devices/system/cpu/isolated")),
    _Fact("driver", _driver, _ABSENT.format("/sys/module/nvidia")),
    _Fact("amdgpu", _module("amdgpu"), _ABSENT.format("/sys/module")),
    _Fact("ofed", _module("mlx5_core"), _ABSENT.format("/sys/module")),
    _Fact("efa", _module("efa"), _ABSENT.format("/sys/module")),
    _Fact("gdrcopy", _module("gdrdrv"), _ABSENT.format("/sys/module")),
    _Fact("peer memory", _peer_memory, _ABSENT.format("/sys/module")),
    _plain("rmem_max", "proc/sys/net/core/rmem_max"),
    _plain("wmem_max", "proc/sys/net/core/wmem_max"),
    _plain("tcp_rmem", "proc/sys/net/ipv4/tcp_rmem"),
    _plain("tcp_wmem", "proc/sys/net/ipv4/tcp_wmem"),
    _plain("tcp_congestion_control", "proc/sys/net/ipv4/tcp_congestion_control"),
    _plain("default_qdisc", "proc/sys/net/core/default_qdisc"),
    _plain("netdev_max_backlog", "proc/sys/net/core/netdev_max_backlog"),
    _Fact("bios", _file("sys/class/dmi/id/bios_version"), _SMBIOS),
    _Fact("board", _board, _SMBIOS),
)
