"""A healthy GPU host as the kernel shows it, as a packed recording, with changes of single files.

The host has four PCIe switches. Below each are a GPU and a NIC with RDMA over Ethernet, 400 Gbit/s.
"""

from collections import defaultdict
from pathlib import Path, PurePosixPath

from probes.sysfs import unpack

GROUPS = range(4)
SYS = "sys/devices"


def config(relaxed=True, acs=0, serial=b""):
    """The configuration space of a PCIe function: the capability PCI Express, then AER, ACS and a serial."""
    space = bytearray(0x200)
    space[0x06] = 0x10
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x10, 0])
    space[0x48:0x4A] = (0x2800 | (0x10 if relaxed else 0)).to_bytes(2, "little")
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    space[0x148:0x14C] = (0x000D | 1 << 16 | (0x160 << 20 if serial else 0)).to_bytes(4, "little")
    space[0x14C:0x14E] = (0x7F).to_bytes(2, "little")
    space[0x14E:0x150] = acs.to_bytes(2, "little")
    if serial:
        space[0x160:0x164] = (0x0003 | 1 << 16).to_bytes(4, "little")
        space[0x164 : 0x164 + len(serial)] = serial
    return bytes(space)


def place(group, part):
    """The folder below the root of a group's "root", "upstream", "gpu port", "nic port", "gpu" or "nic"."""
    a, b, c, d, e = (f"0000:{group + 1}{n}" for n in "01234")
    root = f"{SYS}/pci{a}/{a}:01.0"
    return {
        "root": root,
        "upstream": f"{root}/{b}:00.0",
        "gpu port": f"{root}/{b}:00.0/{c}:00.0",
        "nic port": f"{root}/{b}:00.0/{c}:04.0",
        "gpu": f"{root}/{b}:00.0/{c}:00.0/{d}:00.0",
        "nic": f"{root}/{b}:00.0/{c}:04.0/{e}:00.0",
    }[part]


def port(group, name):
    """A file of a group's RDMA port."""
    return f"{place(group, 'nic')}/infiniband/mlx5_{group}/ports/1/{name}"


def net(group, name):
    """A file of a group's network interface."""
    return f"{place(group, 'nic')}/net/rdma{group}/{name}"


def _function(pci_class, vendor, device):
    return {
        "class": pci_class,
        "vendor": vendor,
        "device": device,
        "numa_node": "0",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "config": config(),
        "iommu_group/type": "identity",
    }


def _group(group):
    files, links = {}, {}
    kinds = dict.fromkeys(("root", "upstream", "gpu port", "nic port"), ("0x060400", "0x1000", "0xc030"))
    kinds |= {"gpu": ("0x030200", "0x10de", "0x2330"), "nic": ("0x020000", "0x15b3", "0x1021")}
    for part, ids in kinds.items():
        folder = place(group, part)
        files |= {f"{folder}/{name}": content for name, content in _function(*ids).items()}
        links[f"sys/bus/pci/devices/{PurePosixPath(folder).name}"] = folder
    card = f"{place(group, 'nic')}/infiniband/mlx5_{group}"
    files |= {f"{card}/fw_ver": "28.39.1002", f"{card}/board_id": "MT_0000000838"}
    ipv4 = f"0000:0000:0000:0000:0000:ffff:0a00:000{group}"
    local = f"fe80:0000:0000:0000:0000:00ff:fe00:000{group}"
    for index, (gid, kind) in enumerate(
        [(local, "IB/RoCE v1"), (local, "RoCE v2"), (ipv4, "IB/RoCE v1"), (ipv4, "RoCE v2")]
    ):
        files |= {port(group, f"gids/{index}"): gid, port(group, f"gid_attrs/types/{index}"): kind}
        files[port(group, f"gid_attrs/ndevs/{index}")] = f"rdma{group}"
    files[port(group, "gids/4")] = "0000:0000:0000:0000:0000:0000:0000:0000"
    files |= {
        port(group, "state"): "4: ACTIVE",
        port(group, "phys_state"): "5: LinkUp",
        port(group, "rate"): "400 Gb/sec (4X NDR)",
        port(group, "link_layer"): "Ethernet",
        port(group, "counters/symbol_error"): "0",
        port(group, "counters/link_downed"): "0",
        port(group, "hw_counters/out_of_sequence"): "0",
        net(group, "type"): "1",
        net(group, "operstate"): "up",
        net(group, "mtu"): "9000",
        net(group, "speed"): "400000",
        net(group, "dev_port"): "0",
        net(group, "address"): "b8:ce:f6:00:00:01",
        net(group, "carrier_changes"): "2",
        net(group, "statistics/rx_crc_errors"): "0",
    }
    links |= {
        net(group, "device"): place(group, "nic"),
        f"{card}/device": place(group, "nic"),
        f"sys/class/net/rdma{group}": net(group, "type").removesuffix("/type"),
        f"sys/class/infiniband/mlx5_{group}": card,
    }
    return files, links


def gpu_host():
    """The files and the links of the healthy host, by path."""
    files = {
        "proc/cpuinfo": "vendor_id : GenuineIntel\nmodel name : Xeon 8480\nmicrocode : 0x2b0\nflags : sse",
        "proc/cmdline": "root=UUID=5f0c ip=10.1.2.3 iommu=pt quiet",
        "proc/swaps": "Filename Type Size Used Priority",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07",
        "sys/module/nvidia/version": "550.90.07",
        "sys/module/nvidia_peermem/refcnt": "0",
        "sys/module/mlx5_core/version": "24.04-0.6.6",
        "sys/kernel/iommu_groups/1/type": "identity",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
        "sys/devices/system/cpu/online": "0-63",
        "sys/class/dmi/id/product_name": "DGX",
        "sys/class/dmi/id/product_serial": "SN-SECRET",
        "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nHOME_URL="https://ours.example"',
    }
    links = {}
    for group in GROUPS:
        more, further = _group(group)
        files |= more
        links |= further
    return files, links


def make(root: Path, changes=()):
    """Write the host with some files changed (None: without it) below ``root``, by way of a recording."""
    files, links = gpu_host()
    files |= dict(changes)
    unpack(
        listing({name: content for name, content in files.items() if content is not None}, links), root, "x"
    )
    return root


def listing(files, links=()):
    """These files and links as the text of a recording, those of a folder together."""
    folders = defaultdict(list)
    for name, content in files.items():
        folder, _, file = name.rpartition("/")
        if isinstance(content, bytes):
            folders[folder].append(f"{file} := {content.hex()}")
        else:
            folders[folder].append(f"{file} = " + content.replace("\n", "\\n"))
    for name, target in dict(links).items():
        folder, _, file = name.rpartition("/")
        folders[folder].append(f"{file} -> {'/'.join('..' for _ in folder.split('/'))}/{target}")
    return "".join("\n".join([f"[{folder}]", *lines, ""]) for folder, lines in folders.items())
