"""The elements of NCCL's topology files, written from the records of a host.

A PCIe switch is one element. Downstream ports and root ports have no elements. A link is as fast as the
slower of its ends. An unknown value is left out where NCCL queries the machine itself (functions of GPUs and
NICs), and written as unknown elsewhere (switches).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from probes.base import as_attribute, cpu_mask, is_hidden, nccl_guid, normal_bus_id
from probes.nccl.links import CPU_CLASS, SWITCH_CLASS
from probes.nccl.ports import numbered_ports
from probes.paths import chain, functions, uplink
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice

__all__ = ["Node", "Writer", "is_bus_id"]

_HIDDEN = "fffffff:ff:ff.0"
_GPU_CLASS, _BRIDGE_CLASS = "0x030200", "0x060400"
_NUMBERED = {"gfx906": "906", "gfx908": "908", "gfx90a": "910", "gfx940": "940"}


@dataclass
class Node:
    """One element and its children."""

    tag: str
    attributes: dict[str, object]
    inside: list[Node] = field(default_factory=list)

    def lines(self, depth: int = 0) -> list[str]:
        """Return the lines of the element, indented by two spaces per level."""
        said = "".join(f" {name}={as_attribute(str(value))}" for name, value in self.attributes.items())
        if not self.inside:
            return [f"{'  ' * depth}<{self.tag}{said}/>"]
        below = [line for node in self.inside for line in node.lines(depth + 1)]
        return [f"{'  ' * depth}<{self.tag}{said}>", *below, f"{'  ' * depth}</{self.tag}>"]

    def count(self) -> int:
        """Return the number of elements, this one included."""
        return 1 + sum(node.count() for node in self.inside)


class Writer:
    """Converter of one host to elements."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._devices = functions(host)
        self._gpus = {gpu.bus_id: gpu for gpu in host.gpus}
        self._is_amd = any(gpu.vendor == "amd" for gpu in host.gpus)
        # If nothing is known about the GPUs, only their PCI functions are written, and NCCL adds the rest on
        # the machine.
        self._writes_gpus = bool(host.fabric) or any(
            gpu.compute_capability or gpu.gpudirect is not None for gpu in host.gpus
        )
        self._unplaced: list[str] = []
        self._made: dict[str, Node] = {}
        self.warnings: list[str] = []
        self._ports = numbered_ports(host)
        named = (nic for nic in host.physical_nics if nic.name in self._ports)
        self._nics = sorted(named, key=lambda nic: self._ports[nic.name])

    def system(self) -> Node:
        """Return the whole file; its version is 2 for RCCL."""
        cpus: dict[tuple[int, str], Node] = {}
        for bus_id in self._devices_to_write():
            self._attach(bus_id, cpus)
        for nic in self._nics:
            if nic.bus_id not in self._devices:
                self._cpu(-1 if nic.numa is None else nic.numa, "", cpus).inside.append(
                    Node("nic", {}, [self._net(nic)])
                )
        for node in self._host.numa:
            if node.method == "nccl_xml" and node.index not in {numa for numa, _ in cpus}:
                self._cpu(node.index, "", cpus)
        if self._unplaced:
            text = f"the NUMA node of {', '.join(self._unplaced)} is not known: they are put below one CPU"
            self.warnings.append(text)
        return Node("system", {"version": 2 if self._is_amd else 1}, list(cpus.values()))

    def _devices_to_write(self) -> list[str]:
        """Return the bus ids of GPUs, NICs and devices from NCCL's files, in bus order."""
        ends = self._gpus.keys() | {nic.bus_id for nic in self._host.physical_nics}
        return [
            device.bus_id
            for device in self._host.pci
            if device.bus_id in ends or (device.method == "nccl_xml" and device.role == "device")
        ]

    def _attach(self, bus_id: str, cpus: dict[tuple[int, str], Node]) -> None:
        above = [one for one in chain(bus_id, self._devices) if self._has_element(one)]
        node: Node | None = None
        for device in above:
            made = self._made.get(device.bus_id)
            here = made or self._made.setdefault(device.bus_id, self._pci(device))
            if node is not None:
                here.inside.append(node)
            if made is not None:
                return
            node = here
        top = above[-1]
        numa = next((one.numa for one in above if one.numa is not None), -1)
        # NCCL's files have CPUs in place of host bridges, so two host bridges of one NUMA node become one
        # CPU. Only a root that came from such a file names its own CPU.
        root = top.root if top.root.startswith("cpu") else ""
        if node is not None:
            self._cpu(numa, root, cpus).inside.append(node)
            self._unplaced += [bus_id] if numa < 0 and not root else []

    def _has_element(self, device: PciDevice) -> bool:
        if "/" in device.bus_id:
            return False  # a partition is written inside its function
        carries = device.bus_id in self._gpus or any(nic.bus_id == device.bus_id for nic in self._host.nics)
        return carries or device.role not in ("root", "downstream")

    def _cpu(self, numa: int, root: str, cpus: dict[tuple[int, str], Node]) -> Node:
        if (numa, root) not in cpus:
            known = next((node for node in self._host.numa if node.index == numa), None)
            cpus[numa, root] = Node("cpu", _cpu_attributes(numa, known))
        return cpus[numa, root]

    def _pci(self, device: PciDevice) -> Node:
        gpus = [gpu for gpu in self._host.gpus if gpu.bus_id.partition("/")[0] == device.bus_id]
        ports = [nic for nic in self._nics if nic.bus_id == device.bus_id]
        bare = not gpus and not any(nic.bus_id == device.bus_id for nic in self._host.physical_nics)
        node = Node("pci", self._pci_attributes(device, bare))
        if self._writes_gpus:
            node.inside += map(self._gpu, gpus)
        if ports:
            node.inside.append(Node("nic", {}, [self._net(nic) for nic in ports]))
        return node

    def _pci_attributes(self, device: PciDevice, bridge: bool) -> dict[str, object]:
        wire = uplink(device, self._devices)
        speed, width = wire.max_speed_gts or wire.speed_gts, wire.max_width or wire.width
        found: dict[str, object] = {"busid": device.bus_id}
        found |= _known(
            ("class", device.pci_class or (_BRIDGE_CLASS if device.role in ("switch", "upstream") else "")),
            ("vendor", device.vendor),
            ("device", device.device),
            ("subsystem_vendor", device.subsystem_vendor),
            ("subsystem_device", device.subsystem_device),
        )
        # NCCL completes the functions of GPUs and NICs, but not the bridges between.
        if speed or bridge:
            found["link_speed"] = f"{float(speed)} GT/s PCIe" if speed else ""
        if width or bridge:
            found["link_width"] = width or 0
        return found

    def _gpu(self, gpu: Gpu) -> Node:
        attributes: dict[str, object] = _known(("dev", gpu.index))
        if gpu.arch.startswith("gfx"):
            # RCCL writes architectures up to the MI300A as numbers, and later ones by name.
            attributes["gcn"] = _NUMBERED.get(gpu.arch, gpu.arch)
        elif gpu.arch.startswith("sm_"):
            attributes["sm"] = gpu.arch.removeprefix("sm_")
        attributes |= _known(
            ("mlopart", gpu.bus_id.partition("/")[2]),
            ("rank", gpu.index),
            ("gdr", None if gpu.gpudirect is None else int(gpu.gpudirect)),
        )
        links = [link for link in self._host.fabric if link.source == gpu.bus_id and link.state != "down"]
        return Node("gpu", attributes, [node for link in links for node in self._link(link)])

    def _link(self, link: FabricLink) -> list[Node]:
        if link.kind == "c2c":
            return [
                Node("c2c", {**_known(("bw", round(1000 * (link.gbs or 0)) or None)), "count": link.count})
            ]
        if not link.target:
            text = f"{link.source}: {link.count} links are left out: where they lead is not known"
            self.warnings.append(text)
            return []
        target, kind = _far_end(link, self._devices)
        return [Node(link.kind, {"target": target, "count": link.count, "tclass": kind})]

    def _net(self, nic: Nic) -> Node:
        # The reader made the names of ports unique.
        name = (nic.rdma_device or nic.name).partition("@")[0]
        if nic.port is not None:
            name = name.removesuffix(f":{nic.port}")
        attributes: dict[str, object] = {"name": name, "dev": self._ports[nic.name]}
        attributes |= _known(
            ("latency", 0),
            ("speed", nic.speed_mbit),
            ("port", nic.port or 0),
            ("guid", nccl_guid(nic.guid)),
            ("gdr", None if nic.gpudirect is None else int(nic.gpudirect)),
        )
        return Node("net", attributes)


def _cpu_attributes(numa: int, node: NumaNode | None) -> dict[str, object]:
    found: dict[str, object] = {"numaid": numa}
    if node is not None:
        arch = {"aarch64": "arm64", "ppc64le": "ppc64"}.get(node.arch, node.arch)
        found |= _known(
            ("affinity", cpu_mask(node.cpus)),
            ("arch", arch),
            ("vendor", node.vendor),
            ("familyid", node.family),
            ("modelid", node.model),
        )
    return found


def _far_end(link: FabricLink, devices: Mapping[str, PciDevice]) -> tuple[str, str]:
    """Return (bus id, class) of the element at the far end of a link."""
    if link.target_kind == "cpu":
        return _HIDDEN, CPU_CLASS
    if link.target_kind == "switch":
        hidden = not is_bus_id(link.target) or is_hidden(link.target)
        return (_HIDDEN if hidden else link.target), SWITCH_CLASS
    peer = devices.get(link.target)
    return link.target, (peer.pci_class if peer is not None else "") or _GPU_CLASS


def _known(*pairs: tuple[str, object]) -> dict[str, object]:
    return {name: value for name, value in pairs if value not in (None, "")}


def is_bus_id(text: str) -> bool:
    """Return whether the text is a PCI bus id."""
    try:
        return bool(normal_bus_id(text))
    except ValueError:
        return False
