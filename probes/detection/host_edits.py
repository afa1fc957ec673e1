"""Edits of a host's declared topology that may explain measured rates between its GPUs.

They change the number of NVLinks, change the width or speed of a PCIe link, swap two GPUs, or move a GPU
below another switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from probes.paths import Bandwidths, Expected, chain, functions, link_gbs
from probes.topology import FabricLink, Finding, Gpu, Host, PciDevice, label

__all__ = ["Edit", "GpuPair", "candidate_edits"]

# Lanes of PCIe links, and GT/s per lane of PCIe 3.0 to 6.0.
_WIDTHS, _SPEEDS = (1, 2, 4, 8, 16), (8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True)
class Edit:
    """One correction of a host: ``where`` names a GPU, link or NIC, ``text`` says what changes."""

    what: Literal["nvlink", "pcie", "place", "nic"]
    host: str
    where: str
    text: str
    before: Host
    after: Host

    @property
    def finding(self) -> Finding:
        return Finding(f"declared-{self.what}", f"{self.host}/{self.where}", self.text)


@dataclass(frozen=True)
class GpuPair:
    """GB/s measured from one GPU to another, by bus ids, and their 95 % confidence interval."""

    src: str
    dst: str
    gbs: float
    low: float
    high: float


def candidate_edits(
    host: Host, odd: Sequence[GpuPair], pairs: Sequence[GpuPair], tables: Bandwidths
) -> Iterator[Edit]:
    """Yield edits of ``host`` that may explain ``odd``, the members of ``pairs`` that contradict ``host``."""
    touched = {bus_id for pair in odd for bus_id in (pair.src, pair.dst)}
    gpus = [gpu for gpu in host.gpus if gpu.bus_id in touched]
    yield from _links_between(host, odd, pairs, tables)
    yield from _links_to_switches(host, odd, pairs, tables)
    yield from _widths(host, gpus, pairs, tables)
    for a, b in combinations(gpus, 2):
        yield from _swapped(host, a, b)
    yield from _moved(host, gpus)


def _links_between(
    host: Host, odd: Sequence[GpuPair], pairs: Sequence[GpuPair], tables: Bandwidths
) -> Iterator[Edit]:
    """Yield edits with another number of NVLinks between two GPUs."""
    gpus, kind = {gpu.bus_id: gpu for gpu in host.gpus}, _fabric_kind(host)
    known = {(pair.src, pair.dst): pair.gbs for pair in pairs}
    for ends in dict.fromkeys(tuple(sorted((pair.src, pair.dst))) for pair in odd):
        a, b = gpus[ends[0]], gpus[ends[1]]
        each = tables.fabric(kind, a.arch).gbs
        own = [link for link in host.fabric if link.source == a.bus_id and link.target == b.bus_id]
        if own:
            each = link_gbs(own[0], a, tables) or each
        best = max(known.get((a.bus_id, b.bus_id), 0.0), known.get((b.bus_id, a.bus_id), 0.0))
        declared = sum(link.count for link in own)
        rest = tuple(link for link in host.fabric if {link.source, link.target} != set(ends))
        # A rate below one link's rate may be the rate of PCIe, so 0 links are tried, too.
        for count in dict.fromkeys((round(best / each), 0)):
            if count != declared:
                more = tuple(_link(host, x, y, kind, count) for x, y in ((a, b), (b, a)) if count)
                text = f"declared {_bundle(declared, kind)}, measured {best:.3g} GB/s: {_bundle(count, kind)}"
                after = replace(host, fabric=rest + more)
                yield Edit("nvlink", host.name, f"{label(a)} and {label(b)}", text, host, after)


def _links_to_switches(
    host: Host, odd: Sequence[GpuPair], pairs: Sequence[GpuPair], tables: Bandwidths
) -> Iterator[Edit]:
    """Yield edits with another number of NVLinks from a GPU into the switches."""
    gpus, kind = {gpu.bus_id: gpu for gpu in host.gpus}, _fabric_kind(host)
    for bus_id in dict.fromkeys(bus_id for pair in odd for bus_id in (pair.src, pair.dst)):
        bundle = [link for link in host.fabric if link.source == bus_id and link.target_kind == "switch"]
        best = max((pair.gbs for pair in pairs if bus_id in (pair.src, pair.dst)), default=0.0)
        one = link_gbs(bundle[0], gpus[bus_id], tables) if bundle else None
        declared = sum(link.count for link in bundle)
        count = round(best / one) if one else 0
        if count in (0, declared):
            continue
        others = tuple(link for link in host.fabric if link not in bundle)
        kept = replace(bundle[0], count=count, method="measured")
        into = f"{_bundle(declared, kind)} into switches"
        text = f"declared {into}, measured {best:.3g} GB/s: {_bundle(count, kind)}"
        after = replace(host, fabric=(*others, kept))
        yield Edit("nvlink", host.name, label(gpus[bus_id]), text, host, after)


def _fabric_kind(host: Host) -> str:
    return next((link.kind for link in host.fabric if link.kind != "c2c"), "nvlink")


def _link(host: Host, a: Gpu, b: Gpu, kind: str, count: int) -> FabricLink:
    before = next((link for link in host.fabric if (link.source, link.target) == (a.bus_id, b.bus_id)), None)
    if before is not None:
        return replace(before, count=count, method="measured", numbers=())
    return FabricLink(a.bus_id, b.bus_id, "gpu", "xgmi" if kind == "xgmi" else "nvlink", count, "measured")


def _bundle(count: int, kind: str) -> str:
    name = {"nvlink": "NVLink", "xgmi": "xGMI link"}.get(kind, kind)
    return f"no {name}" if not count else f"{count} {name}{'s' if count > 1 else ''}"


def _widths(host: Host, gpus: Sequence[Gpu], pairs: Sequence[GpuPair], tables: Bandwidths) -> Iterator[Edit]:
    """Yield edits with another width or speed of a PCIe link above one of the GPUs."""
    devices = functions(host)
    expected = Expected(host, tables)
    names = {gpu.bus_id: label(gpu) for gpu in host.gpus}
    for bus_id in dict.fromkeys(one.bus_id for gpu in gpus for one in chain(gpu.bus_id, devices)):
        device = devices[bus_id]
        now = expected.pcie_gbs(device)
        if now is None:
            continue
        speed, width = device.max_speed_gts or device.speed_gts, device.width or device.max_width or 16
        below = {
            gpu.bus_id for gpu in host.gpus if bus_id in (one.bus_id for one in chain(gpu.bus_id, devices))
        }
        best = max((pair.gbs for pair in pairs if (pair.src in below) != (pair.dst in below)), default=0.0)
        for after in (
            *(replace(device, width=None, max_width=lanes) for lanes in _WIDTHS if lanes != width),
            *(replace(device, max_speed_gts=gts, speed_gts=None) for gts in _SPEEDS if gts != speed),
        ):
            changed = _with_device(
                host, replace(after, method_of={**device.method_of, "max_width": "measured"})
            )
            measured = f"{after.max_speed_gts or after.speed_gts or 0:g} GT/s x{after.max_width or 16}"
            text = (
                f"declared PCIe {speed or 0:g} GT/s x{width}, at most {best:.3g} GB/s measured: as {measured}"
            )
            yield Edit("pcie", host.name, names.get(bus_id, bus_id), text, host, changed)


def _with_device(host: Host, device: PciDevice) -> Host:
    return replace(host, pci=tuple(device if one.bus_id == device.bus_id else one for one in host.pci))


def _swapped(host: Host, a: Gpu, b: Gpu) -> Iterator[Edit]:
    """Yield edits that swap two GPUs in the PCI tree, or their NVLinks."""
    devices = functions(host)
    if a.bus_id in devices and b.bus_id in devices and devices[a.bus_id].parent != devices[b.bus_id].parent:
        after = _placed(_placed(host, a, devices[b.bus_id], b), b, devices[a.bus_id], a)
        text = "declared in each other's places in the PCI tree: the measured rates fit if they change places"
        yield Edit("place", host.name, f"{label(a)} and {label(b)}", text, host, after)
    if host.fabric:
        other = {a.bus_id: b.bus_id, b.bus_id: a.bus_id}
        fabric = tuple(
            replace(
                link, source=other.get(link.source, link.source), target=other.get(link.target, link.target)
            )
            for link in host.fabric
        )
        text = "declared with each other's NVLinks: the measured rates fit if they exchange them"
        yield Edit("place", host.name, f"{label(a)} and {label(b)}", text, host, replace(host, fabric=fabric))


def _moved(host: Host, gpus: Sequence[Gpu]) -> Iterator[Edit]:
    """Yield edits that move a GPU below the switch of another."""
    devices = functions(host)
    for gpu in gpus:
        parents: dict[str, Gpu] = {}
        for other in host.gpus:
            if other.bus_id in devices and devices[other.bus_id].parent:
                parents.setdefault(devices[other.bus_id].parent, other)
        for parent, other in parents.items():
            if gpu.bus_id in devices and parent != devices[gpu.bus_id].parent:
                text = f"declared below {devices[gpu.bus_id].parent or 'the CPU'}: measured as below {parent}"
                after = _placed(host, gpu, devices[other.bus_id], other)
                yield Edit("place", host.name, label(gpu), text, host, after)


def _placed(host: Host, gpu: Gpu, place: PciDevice, other: Gpu) -> Host:
    """Return the host with ``gpu`` at the place of ``other`` in the PCI tree; its PCIe link is unchanged."""
    own = functions(host)[gpu.bus_id]
    moved = replace(own, parent=place.parent, root=place.root, numa=place.numa, cpus=place.cpus)
    at = replace(gpu, numa=other.numa, cpus=other.cpus)
    gpus = tuple(at if one.bus_id == gpu.bus_id else one for one in host.gpus)
    return replace(_with_device(host, moved), gpus=gpus)
