"""The part of /sys and /proc that detection and health read, packed into one text that can be sent to others.

The text has `[folder]` lines, then `file = content`, `file := bytes in hexadecimal` and `link -> target`, all
below the root of the file system. A line end in content is written as \\n.

Nothing in it names a machine or its place in a network: addresses of network cards, GUIDs and serial numbers
are left out. Addresses in a port's table of GIDs are replaced by the documentation's addresses of the same
kind. Only known options of the kernel's command line are kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from probes.base import DataError
from probes.sysfs import pci_config
from probes.sysfs.cgroups import cgroups
from probes.sysfs.net import ERROR_COUNTERS, INTERFACE_COUNTERS, TRANSPORT_COUNTERS
from probes.sysfs.text import lines

__all__ = ["KERNEL_OPTIONS", "packed", "unpack"]

_HEAD = "# Attributes of /sys and /proc as the kernel shows them: [folder], file = content, link -> target."
_PCI = [
    *("class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist"),
    *("current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "mem_info_vram_total"),
]
_NET = ["type", "operstate", "mtu", "speed", "dev_port"]
_WIRE = ["carrier_changes", *(f"statistics/{name}" for name in INTERFACE_COUNTERS)]
_RDMA = ["fw_ver", "hca_type", "board_id"]
_PORT = [
    *("state", "phys_state", "rate", "link_layer", "gid_attrs/ndevs/0"),
    *(f"counters/{name}" for name in ERROR_COUNTERS),
    *(f"hw_counters/{name}" for name in TRANSPORT_COUNTERS),
]
_CPU = re.compile(r"(vendor_id|cpu family|model|model name|microcode|cpu|CPU implementer|flags)\s*:")
# Classes of the functions whose configuration is kept: NICs, GPUs (three classes), bridges.
_CONFIGURED = ("0x02", "0x0300", "0x0302", "0x12", "0x0604")
# Flags of a CPU that are kept.
_CPU_MARKS = frozenset({"hypervisor"})
# Options of the kernel's command line that decide how fast devices and CPUs work; others may name hosts,
# disks and users.
KERNEL_OPTIONS = frozenset(
    {
        *("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict", "pci", "pcie_aspm"),
        *("isolcpus", "nohz_full", "rcu_nocbs", "nosmt", "mitigations", "numa_balancing"),
        *("transparent_hugepage", "hugepages", "hugepagesz", "default_hugepagesz"),
        *("intel_pstate", "amd_pstate", "cpufreq.default_governor", "intel_idle.max_cstate"),
        *("processor.max_cstate", "idle", "tsc", "numa"),
    }
)
# Files of one line or a few that hold settings and versions, below the root.
_SETTINGS = (
    *("proc/sys/kernel/osrelease", "proc/sys/kernel/numa_balancing", "proc/sys/vm/zone_reclaim_mode"),
    *("proc/sys/net/core/rmem_max", "proc/sys/net/core/wmem_max", "proc/sys/net/core/netdev_max_backlog"),
    *("proc/sys/net/core/default_qdisc", "proc/sys/net/ipv4/tcp_congestion_control"),
    *("proc/sys/net/ipv4/tcp_rmem", "proc/sys/net/ipv4/tcp_wmem"),
    *("proc/driver/nvidia/version", "sys/hypervisor/type"),
    *("sys/kernel/mm/transparent_hugepage/enabled", "sys/devices/system/cpu/smt/active"),
    *("sys/devices/system/cpu/isolated", "sys/devices/system/cpu/online"),
    *(f"sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name", "board_name", "bios_version")),
)
# Kernel modules: a recording has those that are loaded, with the versions that they state.
_MODULES = ("nvidia", "amdgpu", "mlx5_core", "efa", "gdrdrv", "nvidia_peermem", "nv_peer_mem")
# The limits of cgroups on processors, of both versions.
_CGROUP = {
    "cpu": ["cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat"],
    "cpuset": ["cpuset.cpus.effective", "cpuset.effective_cpus"],
}
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")
# Addresses of the documentation (RFC 5737, RFC 3849) and link-local ones.
_IPV4_GID = "0000:0000:0000:0000:0000:ffff:c000:0201"
_LOCAL_IPV4_GID = "0000:0000:0000:0000:0000:ffff:a9fe:0101"
_GLOBAL_GID = "2001:0db8:0000:0000:0000:0000:0000:0001"
_LOCAL_GID = "fe80:0000:0000:0000:0000:0000:0000:0001"
# Most bytes that Linux allows in the name of a file.
_LONGEST_NAME = 255
# Recordings of machines with eight GPUs have 700 to 900 lines. Each line may become a file, hence a bound.
_MOST_LINES = 200_000


def packed(root: Path = Path("/")) -> str:
    """Return everything below ``root`` that detection and health read."""
    found: dict[str, list[str]] = {}
    for place, line in _lines(root):
        found.setdefault(str(place.relative_to(root)), []).append(line)
    body = [line for folder, inside in found.items() for line in (f"[{folder}]", *dict.fromkeys(inside))]
    return "\n".join([_HEAD, *body]) + "\n"


def _lines(root: Path) -> Iterator[tuple[Path, str]]:
    sys = root / "sys"
    for node in sorted(sys.glob("devices/system/node/node[0-9]*")):
        yield from _files(node, ["cpulist", "distance"])
        memory = re.search(r".*MemTotal:.*", lines(node / "meminfo"))
        if memory:
            yield node, f"meminfo = {memory[0]}"
    for kind, attributes in (("bus/pci/devices", _PCI), ("class/net", _NET), ("class/infiniband", [])):
        folder = sys / kind
        if folder.is_dir():
            yield folder, "# is there"
        for entry in sorted(folder.glob("*")):
            if entry.is_symlink():
                yield folder, f"{entry.name} -> {entry.readlink()}"
            place = entry.resolve()
            yield from _files(place, attributes)
            pci = kind == "bus/pci/devices"
            yield from _links(place, ["physfn", "iommu_group"] if pci else ["device"])
            yield from _config(place) if pci else ()
            # A software interface has no device behind it.
            yield from _files(place, _WIRE) if (place / "device").exists() and not pci else ()
            yield from _ports(place)
    yield from _kfd(sys)
    yield from _iommu(sys)
    yield from _settings(root)
    yield from _cgroups(root)
    processor = [_reduced(line) for line in lines(root / "proc/cpuinfo").splitlines() if _CPU.match(line)]
    if processor:
        yield root / "proc", "cpuinfo = " + "\\n".join(dict.fromkeys(processor))


def _reduced(line: str) -> str:
    """Return a line of /proc/cpuinfo with only the flags that are read."""
    name, colon, flags = line.partition(":")
    if name.strip() != "flags":
        return line
    return f"{name}{colon} {' '.join(flag for flag in flags.split() if flag in _CPU_MARKS)}".rstrip()


def _config(device: Path) -> Iterator[tuple[Path, str]]:
    if not lines(device / "class").startswith(_CONFIGURED):
        return
    config = pci_config.read_config(device)
    if pci_config.is_whole(config):
        yield device, f"config := {pci_config.without_identity(config).hex()}"


def _iommu(sys: Path) -> Iterator[tuple[Path, str]]:
    groups = sys / "kernel/iommu_groups"
    if groups.is_dir():
        yield groups, "# is there"
    for group in sorted(groups.glob("[0-9]*")):
        yield from _files(group, ["type"])


def _settings(root: Path) -> Iterator[tuple[Path, str]]:
    yield from _files(root, list(_SETTINGS))
    for module in (root / "sys/module", *(root / "sys/module" / name for name in _MODULES)):
        if module.is_dir():
            yield module, "# is there"
            yield from _files(module, ["version"])
    for pages in sorted((root / "sys/kernel/mm/hugepages").glob("hugepages-*kB")):
        yield from _files(pages, ["nr_hugepages"])
    governors: dict[str, Path] = {}
    for policy in sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy[0-9]*")):
        governors.setdefault(lines(policy / "scaling_governor"), policy)
    for policy in governors.values():
        yield from _files(policy, ["scaling_governor"])
    for name, kept in (("etc/os-release", _is_release), ("proc/swaps", bool)):
        content = [line for line in lines(root / name).splitlines() if kept(line)]
        if name == "proc/swaps":
            # The first line names the columns; the names of files and disks are left out.
            content = [*content[:1], *("swap " + " ".join(line.split()[1:3]) for line in content[1:])]
        if (root / name).exists():
            yield (root / name).parent, f"{Path(name).name} = " + "\\n".join(content)
    options = [word for word in lines(root / "proc/cmdline").split() if word.split("=")[0] in KERNEL_OPTIONS]
    if (root / "proc/cmdline").exists():
        yield root / "proc", f"cmdline = {' '.join(options)}"


def _cgroups(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the processor limits of this process's cgroups, whose names become "group"."""
    membership, top = lines(root / "proc/self/cgroup"), root / "sys/fs/cgroup"
    groups: dict[str, str] = {}
    for number, (controller, names) in enumerate(_CGROUP.items(), 1):
        for group, version in cgroups(membership, top, controller):
            own = "" if version == 2 else controller
            path = "/".join(["group"] * len(group.relative_to(top / own).parts))
            # The first group is the process's own.
            groups.setdefault(own, f"{number if own else 0}:{own}:/{path}")
            yield from ((top / own / path, line) for _, line in _files(group, names))
    if groups:
        yield root / "proc/self", "cgroup = " + "\\n".join(groups.values())


def _is_release(line: str) -> bool:
    return line.startswith(("NAME=", "VERSION_ID=", "PRETTY_NAME="))


def _files(folder: Path, names: list[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        content = lines(folder / name).rstrip("\n")
        if content:
            place = folder / name
            yield place.parent, f"{place.name} = " + content.replace("\n", "\\n")


def _links(folder: Path, names: list[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        if (folder / name).is_symlink():
            yield folder, f"{name} -> {(folder / name).readlink()}"


def _ports(card: Path) -> Iterator[tuple[Path, str]]:
    yield from _files(card, _RDMA)
    for port in sorted(card.glob("ports/[0-9]*")):
        yield from _files(port, _PORT)
        for entry in sorted(port.glob("gids/[0-9]*")):
            gid = _masked(lines(entry).strip())
            if gid:
                yield entry.parent, f"{entry.name} = {gid}"
                yield from _files(port, [f"gid_attrs/types/{entry.name}", f"gid_attrs/ndevs/{entry.name}"])


def _masked(gid: str) -> str:
    """Return the documentation's address of the same kind as ``gid``; "" for an empty entry."""
    if not _GID.fullmatch(gid) or not gid.strip("0:"):
        return ""
    if gid.startswith("0000:0000:0000:0000:0000:ffff:"):
        return _LOCAL_IPV4_GID if gid[30:34] == "a9fe" else _IPV4_GID
    return _LOCAL_GID if gid.startswith("fe80:") else _GLOBAL_GID


def _kfd(sys: Path) -> Iterator[tuple[Path, str]]:
    folder = (sys / "class/kfd/kfd").resolve()
    if not folder.is_dir():
        return
    if (sys / "class/kfd/kfd").is_symlink():
        yield from _links(sys / "class/kfd", ["kfd"])
    for place in sorted(folder.glob("topology/nodes/*")):
        for inner in (place, *sorted(place.glob("mem_banks/*")), *sorted(place.glob("io_links/*"))):
            yield from _files(inner, ["properties"])


def unpack(text: str, root: Path, source: str) -> None:
    """Write the files of a ``packed`` text below ``root``; raises DataError if a line leads outside it.

    Links are made last, so that no file is written through one.
    """
    links: list[tuple[Path, str, str]] = []
    folder, rows = root, text.splitlines()
    if len(rows) > _MOST_LINES:
        raise DataError(source, [f"expected at most {_MOST_LINES} lines, found {len(rows)}"])
    for number, line in enumerate(rows, 1):
        if line.startswith("#") or not line.strip():
            continue
        name, equals, content = line.partition(" = ")
        file, binary, digits = line.partition(" := ")
        link, points, target = line.partition(" -> ")
        try:
            if line.startswith("[") and line.endswith("]"):
                folder = _inside(root, root / line[1:-1])
                folder.mkdir(parents=True, exist_ok=True)
            elif equals:
                content = content.replace("\\n", "\n")
                _inside(root, folder / name).write_text(content + "\n", encoding="utf-8")
            elif binary:
                _inside(root, folder / file).write_bytes(bytes.fromhex(digits))
            elif points:
                links.append((_inside(root, folder / link), target, f"line {number}"))
            else:
                raise ValueError("expected [folder], file = content, file := bytes or link -> target")
        except (OSError, ValueError) as error:
            raise DataError(source, [f"line {number}: {error}"]) from error
    for place, target, where in links:
        try:
            _link(root, place, target)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a cycle
            raise DataError(source, [f"{where}: {error}"]) from error


def _inside(root: Path, place: Path) -> Path:
    plain = Path(os.path.normpath(place))
    if not plain.is_relative_to(root):
        raise ValueError("leads out of the recorded machine")
    return plain


def _link(root: Path, place: Path, target: str) -> None:
    """Make a link, whose target may go up (..) only at its beginning: no later link can redirect it."""
    parts = target.split("/")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"expected names of at most {_LONGEST_NAME} bytes in the target of a link")
    ups = sum(part == ".." for part in parts)
    above = Path(os.path.normpath(place.parent.resolve() / "/".join(parts[:ups])))
    if ".." in parts[ups:] or target.startswith("/") or not above.is_relative_to(root):
        raise ValueError("a link leads out of the recorded machine")
    place.symlink_to(target)
    place.resolve()
