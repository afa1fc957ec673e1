"""The route between two devices of a host, part by part: links with their speeds, bridges, NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.paths.bandwidth import Bandwidths
from probes.paths.expected import Expected, link_gbs
from probes.paths.path_type import PathType
from probes.paths.pci_tree import Uplink, chain, functions, numa_of, uplink
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, label

__all__ = ["Step", "pcie_words", "steps_between"]

_ROLES = {
    "root": "root port",
    "upstream": "switch",
    "downstream": "switch port",
    "switch": "switch",
    "device": "device",
    "": "device",
}
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI", "c2c": "C2C"}


@dataclass(frozen=True)
class Step:
    """One part of a path: its kind, its name, and the link to it ("" if unknown)."""

    what: str
    name: str = ""
    link: str = ""


def steps_between(host: Host, a: Gpu | Nic, b: Gpu | Nic, path: PathType, tables: Bandwidths) -> list[Step]:
    """Return the path of type ``path`` from ``a`` to ``b``, in the order in which data crosses it."""
    if path == "LOC":
        return [Step(label(a), a.bus_id)]
    if isinstance(a, Gpu) and isinstance(b, Gpu) and path in ("NVL", "NVB", "C2C"):
        return _over_fabric(host, a, b, path, tables)
    return _over_pci(host, a, b, path, tables)


def _over_fabric(host: Host, a: Gpu, b: Gpu, path: PathType, tables: Bandwidths) -> list[Step]:
    own = [link for link in host.fabric if link.source == a.bus_id and link.state != "down"]
    direct = [link for link in own if link.target == b.bus_id]
    first, last = Step(label(a), a.bus_id), Step(label(b), b.bus_id)
    if path == "C2C":
        return [first, _wires([link for link in own if link.kind == "c2c"], a, tables), last]
    if direct:
        return [first, _wires(direct, a, tables), last]
    if path == "NVL":
        into = [link for link in own if link.target_kind == "switch"]
        back = [link for link in host.fabric if link.source == b.bus_id and link.target_kind == "switch"]
        switches = Step("NVSwitch", ", ".join(link.target for link in into if link.target != "nvswitch"))
        return [first, _wires(into, a, tables), switches, _wires(back, b, tables), last]
    return [first, *_over_middle(host, a, b, own, tables), last]


def _over_middle(host: Host, a: Gpu, b: Gpu, own: list[FabricLink], tables: Bandwidths) -> Iterator[Step]:
    """Yield the parts over the intermediate GPU with the most bandwidth."""
    expected = Expected(host, tables)
    near = {link.source for link in host.fabric if link.target == b.bus_id} | {
        link.target for link in host.fabric if link.source == b.bus_id
    }
    middles = [gpu for gpu in host.gpus if gpu.bus_id in near & {link.target for link in own}]

    def carries(gpu: Gpu) -> float:
        return min(expected.between(a, gpu).gbs or 0, expected.between(gpu, b).gbs or 0)

    for middle in sorted(middles, key=carries, reverse=True)[:1]:
        onward = [link for link in host.fabric if (link.source, link.target) == (middle.bus_id, b.bus_id)]
        yield _wires([link for link in own if link.target == middle.bus_id], a, tables)
        yield Step(label(middle), middle.bus_id)
        yield _wires(onward, middle, tables)


def _wires(links: list[FabricLink], gpu: Gpu, tables: Bandwidths) -> Step:
    """Return all links of one bundle as one part."""
    if not links:
        return Step("links that only the other end reports")
    count = sum(link.count for link in links)
    name = f"{_NAMES[links[0].kind]} {links[0].version}".strip()
    each = [link_gbs(link, gpu, tables) for link in links]
    total = sum(link.count * (gbs or 0) for link, gbs in zip(links, each, strict=True))
    said = f"{each[0]:g} GB/s each, {total:.4g} GB/s together" if each[0] else ""
    return Step(f"{count} x {name}", "", said)


def _to_cpu(host: Host, end: Gpu | Nic, up: list[PciDevice], tables: Bandwidths) -> list[Step]:
    """Return the parts from a GPU over its chip-to-chip links, or from a NIC over PCIe, to the CPU."""
    if isinstance(end, Gpu):
        own = [link for link in host.fabric if link.source == end.bus_id and link.kind == "c2c"]
        return [Step(label(end), end.bus_id), _wires(own, end, tables)]
    devices = functions(host)
    return [_part(device, end, devices, tables) for device in up] or [Step(label(end), end.bus_id)]


def _over_pci(host: Host, a: Gpu | Nic, b: Gpu | Nic, path: PathType, tables: Bandwidths) -> list[Step]:
    devices = functions(host)
    up, down = chain(a.bus_id, devices), chain(b.bus_id, devices)
    if path == "C2C":
        return [*_to_cpu(host, a, up, tables), *reversed(_to_cpu(host, b, down, tables))]
    shared = {device.bus_id for device in up} & {device.bus_id for device in down}
    common = next((device for device in up if device.bus_id in shared), None)
    here = [device for device in up if device.bus_id not in shared]
    there = [device for device in down if device.bus_id not in shared]
    found = [_part(device, a, devices, tables) for device in here] or [Step(label(a), a.bus_id)]
    if common is not None and common.bus_id not in (a.bus_id, b.bus_id):
        found.append(Step(_ROLES[common.role], common.bus_id))
    elif common is None:
        found += _across(host, (a, up), (b, down), tables)
    return [*found, *(_part(device, b, devices, tables) for device in reversed(there))] + (
        [] if there else [Step(label(b), b.bus_id)]
    )


def _part(device: PciDevice, end: Gpu | Nic, devices: Mapping[str, PciDevice], tables: Bandwidths) -> Step:
    what = label(end) if device.bus_id == end.bus_id else _ROLES[device.role]
    if device.role in ("root", "downstream"):
        return Step(what, device.bus_id)
    return Step(what, device.bus_id, pcie_words(uplink(device, devices), tables))


def pcie_words(wire: Uplink, tables: Bandwidths) -> str:
    """Return a PCIe link such as "PCIe 16 GT/s x8 (x16 is possible), 12 GB/s"; "" if its speed is unknown."""
    if not (wire.max_speed_gts or wire.speed_gts):
        return ""
    gbs = tables.pcie_gbs(wire.max_speed_gts or wire.speed_gts, wire.width or wire.max_width)
    narrow = wire.width and wire.max_width and wire.width < wire.max_width
    possible = f" (x{wire.max_width} is possible)" if narrow else ""
    return f"{wire}{possible}" + (f", {gbs:g} GB/s" if gbs else "")


_End = tuple[Gpu | Nic, list[PciDevice]]


def _across(host: Host, a: _End, b: _End, tables: Bandwidths) -> Iterator[Step]:
    """Yield the parts from host bridge to host bridge."""
    roots = [up[-1].root if up else "" for _, up in (a, b)]
    nodes = [numa_of(end, functions(host)) for end, _ in (a, b)]
    # NCCL's files have no host bridges, only CPUs.
    roots = ["" if root.startswith("cpu") else root for root in roots]
    yield from (Step("host bridge", root) for root in roots[:1] if root)
    if None not in nodes and nodes[0] != nodes[1]:
        known = [node for node in host.numa if node.index in nodes]
        gbs = [
            tables.cpu_gbs(node.arch, node.vendor, node.model) for node in known if node.arch or node.vendor
        ]
        carried = min((gb for gb in gbs if gb), default=None)
        yield Step("NUMA node", str(nodes[0]))
        yield Step("NUMA node", str(nodes[1]), f"{carried:g} GB/s between nodes" if carried else "")
    elif nodes[0] is not None and roots[0] != roots[1]:
        yield Step("NUMA node", str(nodes[0]))
    yield from (Step("host bridge", root) for root in roots[1:] if root and roots[0] != roots[1])
