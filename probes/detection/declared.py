"""A declared topology held against what was measured: which edges contradict it, and the topology corrected.

A pair contradicts where its measured GB/s, with all of their interval, lie outside what its way should carry
by more than such ways vary: half as much again over NVLink and PCIe switches, thrice through CPUs. Edits are
tried that explain contradictions: another number of NVLinks, another width or speed of a PCIe link, two GPUs
in each other's places, a GPU below another switch, another speed of a NIC. The edit is kept that leaves the
least misfit, the sum of |log(measured / expected)| beyond what is let pass, until none explains more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from probes.link_costs import Profile
from probes.paths.bandwidth import Bandwidths, load
from probes.paths.expected import Expected, link_gbs
from probes.paths.measured_pairs import MeasuredPair, host_named, measured_pairs
from probes.paths.nearest_nic import nearest_nic
from probes.paths.pci_tree import chain, functions
from probes.topology import FabricLink, Finding, Gpu, Host, Nic, PciDevice, Topology, label

__all__ = ["Edit", "Held", "hold"]

# How far from its figure a way may measure and still be right, as factors down and up.
_FABRIC, _SWITCHES, _CPUS, _NICS = (0.65, 1.5), (0.55, 1.5), (0.3, 2.0), (0.7, 1.25)
# An edit explains at least this much misfit: half a factor e over what is let pass.
_LEAST = 0.1
_MOST_EDITS = 32
_WIDTHS, _SPEEDS = (1, 2, 4, 8, 16), (8.0, 16.0, 32.0, 64.0)
_NIC_MBIT = (1_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000)


@dataclass(frozen=True)
class Edit:
    """One correction: of which host and edge, what was declared and measured, and the host after it."""

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
class Held:
    """The topology corrected, the edits in their order, and pairs that contradict and no edit explains."""

    topology: Topology
    edits: tuple[Edit, ...]
    unexplained: tuple[Finding, ...]
    pairs: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(edit.finding for edit in self.edits), *self.unexplained)


def hold(declared: Topology, profile: Profile, tables: Bandwidths | None = None) -> Held:
    """Hold ``declared`` against ``profile``; only pairs of GPUs, and of hosts with NICs, can contradict."""
    tables = tables or load()
    pairs = list(measured_pairs(declared, profile))
    hosts, edits, unexplained = list(declared.hosts), list[Edit](), list[Finding]()
    compared = 0
    for at, host in enumerate(hosts):
        inside = [pair for pair in pairs if _inside(declared, host, pair)]
        compared += len(inside)
        hosts[at], found, left = _corrected(host, inside, tables)
        edits += found
        unexplained += left
    across = [pair for pair in pairs if pair.src.host != pair.dst.host]
    hosts, found, left, seen = _nics(replace(declared, hosts=tuple(hosts)), across)
    edits += found
    unexplained += left
    corrected = replace(declared, hosts=tuple(hosts))
    return Held(corrected, tuple(edits), tuple(unexplained), compared + seen)


def _inside(topology: Topology, host: Host, pair: MeasuredPair) -> bool:
    return (
        pair.src.host == pair.dst.host
        and None not in (pair.src_gpu, pair.dst_gpu)
        and host_named(topology, pair.src.host) is host
    )


@dataclass(frozen=True)
class _Pair:
    """Measured from one GPU to another, by bus ids."""

    src: str
    dst: str
    gbs: float
    low: float
    high: float


def _corrected(
    host: Host, measured: Sequence[MeasuredPair], tables: Bandwidths
) -> tuple[Host, list[Edit], list[Finding]]:
    pairs = [
        _Pair(pair.src_gpu.bus_id, pair.dst_gpu.bus_id, pair.gbs, pair.low_gbs, pair.high_gbs)
        for pair in measured
        if pair.src_gpu is not None and pair.dst_gpu is not None
    ]
    edits: list[Edit] = []
    misfit = _misfit(host, pairs, tables)
    while misfit and len(edits) < _MOST_EDITS:
        best: tuple[float, Edit] | None = None
        for edit in _tried(host, pairs, tables):
            left = sum(_misfit(edit.after, pairs, tables).values())
            if best is None or left < best[0] - 1e-9:
                best = (left, edit)
        if best is None or best[0] > sum(misfit.values()) - _LEAST:
            break
        edits.append(best[1])
        host = best[1].after
        misfit = _misfit(host, pairs, tables)
    left_over = [_pair_finding(host, pair, tables) for pair in misfit]
    return host, edits, left_over


def _misfit(host: Host, pairs: Iterable[_Pair], tables: Bandwidths) -> dict[_Pair, float]:
    """By pair that contradicts, how far it is beyond what is let pass."""
    expected, gpus = Expected(host, tables), {gpu.bus_id: gpu for gpu in host.gpus}
    found = {}
    for pair in pairs:
        way = expected.between(gpus[pair.src], gpus[pair.dst])
        if way.gbs is None:
            continue
        low, high = _allowed(way.path)
        if pair.high < low * way.gbs:
            found[pair] = math.log(low * way.gbs / pair.gbs)
        elif pair.low > high * way.gbs:
            found[pair] = math.log(pair.gbs / (high * way.gbs))
    return found


def _allowed(path: str) -> tuple[float, float]:
    if path == "NVB":
        # A copy between the two goes over PCIe, unless a library relays it.
        return 0.0, _FABRIC[1]
    if path in ("NVL", "C2C"):
        return _FABRIC
    return _SWITCHES if path in ("PIX", "PXB") else _CPUS


def _pair_finding(host: Host, pair: _Pair, tables: Bandwidths) -> Finding:
    gpus = {gpu.bus_id: gpu for gpu in host.gpus}
    a, b = gpus[pair.src], gpus[pair.dst]
    way = Expected(host, tables).between(a, b)
    should = f"{way.path} should carry {way.gbs:.3g} GB/s"
    text = f"to {label(b)}: {should}, measured {pair.gbs:.3g}; no edit explains it"
    return Finding("declared-pair", f"{host.name}/{label(a)}", text)


def _tried(host: Host, pairs: Sequence[_Pair], tables: Bandwidths) -> Iterator[Edit]:
    """Every edit that a contradiction suggests."""
    misfit = _misfit(host, pairs, tables)
    touched = {bus_id for pair in misfit for bus_id in (pair.src, pair.dst)}
    gpus = [gpu for gpu in host.gpus if gpu.bus_id in touched]
    yield from _links(host, list(misfit), pairs, tables)
    yield from _widths(host, gpus, pairs, tables)
    for a, b in combinations(gpus, 2):
        yield from _swapped(host, a, b)
    yield from _moved(host, gpus)


def _links(host: Host, odd: Sequence[_Pair], pairs: Sequence[_Pair], tables: Bandwidths) -> Iterator[Edit]:
    """Another number of NVLinks between two GPUs, or of a GPU into the switches."""
    gpus = {gpu.bus_id: gpu for gpu in host.gpus}
    kind = next((link.kind for link in host.fabric if link.kind != "c2c"), "nvlink")
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
        # Less than a link carries may be what PCIe does.
        for count in dict.fromkeys((round(best / each), 0)):
            if count != declared:
                more = tuple(_link(host, x, y, kind, count) for x, y in ((a, b), (b, a)) if count)
                text = f"declared {_bundle(declared, kind)}, measured {best:.3g} GB/s: {_bundle(count, kind)}"
                after = replace(host, fabric=rest + more)
                yield _edit("nvlink", host, f"{label(a)} and {label(b)}", text, after)
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
        yield _edit("nvlink", host, label(gpus[bus_id]), text, replace(host, fabric=(*others, kept)))


def _link(host: Host, a: Gpu, b: Gpu, kind: str, count: int) -> FabricLink:
    before = next((link for link in host.fabric if (link.source, link.target) == (a.bus_id, b.bus_id)), None)
    if before is not None:
        return replace(before, count=count, method="measured", numbers=())
    return FabricLink(a.bus_id, b.bus_id, "gpu", "xgmi" if kind == "xgmi" else "nvlink", count, "measured")


def _bundle(count: int, kind: str) -> str:
    name = {"nvlink": "NVLink", "xgmi": "xGMI link"}.get(kind, kind)
    return f"no {name}" if not count else f"{count} {name}{'s' if count > 1 else ''}"


def _widths(host: Host, gpus: Sequence[Gpu], pairs: Sequence[_Pair], tables: Bandwidths) -> Iterator[Edit]:
    """Another width or speed of a PCIe link above a GPU that contradicts."""
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
            told = f"{after.max_speed_gts or after.speed_gts or 0:g} GT/s x{after.max_width or 16}"
            text = f"declared PCIe {speed or 0:g} GT/s x{width}, at most {best:.3g} GB/s measured: as {told}"
            yield _edit("pcie", host, names.get(bus_id, bus_id), text, changed)


def _with_device(host: Host, device: PciDevice) -> Host:
    return replace(host, pci=tuple(device if one.bus_id == device.bus_id else one for one in host.pci))


def _swapped(host: Host, a: Gpu, b: Gpu) -> Iterator[Edit]:
    """Two GPUs in each other's places in the PCI tree, or at each other's NVLinks."""
    devices = functions(host)
    if a.bus_id in devices and b.bus_id in devices and devices[a.bus_id].parent != devices[b.bus_id].parent:
        after = _placed(_placed(host, a, devices[b.bus_id], b), b, devices[a.bus_id], a)
        text = "declared in each other's places in the PCI tree: what was measured fits exchanged"
        yield _edit("place", host, f"{label(a)} and {label(b)}", text, after)
    if host.fabric:
        other = {a.bus_id: b.bus_id, b.bus_id: a.bus_id}
        fabric = tuple(
            replace(
                link, source=other.get(link.source, link.source), target=other.get(link.target, link.target)
            )
            for link in host.fabric
        )
        text = "declared with each other's NVLinks: what was measured fits exchanged"
        yield _edit("place", host, f"{label(a)} and {label(b)}", text, replace(host, fabric=fabric))


def _moved(host: Host, gpus: Sequence[Gpu]) -> Iterator[Edit]:
    """A GPU below the switch of another."""
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
                yield _edit("place", host, label(gpu), text, after)


def _placed(host: Host, gpu: Gpu, place: PciDevice, other: Gpu) -> Host:
    """The host with ``gpu`` where another GPU's function hangs; its own link stays as it is."""
    own = functions(host)[gpu.bus_id]
    moved = replace(own, parent=place.parent, root=place.root, numa=place.numa, cpus=place.cpus)
    at = replace(gpu, numa=other.numa, cpus=other.cpus)
    gpus = tuple(at if one.bus_id == gpu.bus_id else one for one in host.gpus)
    return replace(_with_device(host, moved), gpus=gpus)


def _edit(
    what: Literal["nvlink", "pcie", "place", "nic"], before: Host, where: str, text: str, after: Host
) -> Edit:
    return Edit(what, before.name, where, text, before, after)


def _nics(
    topology: Topology, pairs: Sequence[MeasuredPair]
) -> tuple[list[Host], list[Edit], list[Finding], int]:
    """NICs whose declared speed no pair reaches, or some pair exceeds; the rest of what contradicts."""
    ends = []
    for pair in pairs:
        src = _nic_of(topology, pair.src.host, pair.src.nic, pair.src_gpu)
        dst = _nic_of(topology, pair.dst.host, pair.dst.nic, pair.dst_gpu)
        if src is not None and dst is not None:
            ends.append((pair, src, dst))
    hosts, edits = {host.name: host for host in topology.hosts}, list[Edit]()
    named = {(name, nic.name): nic.speed_mbit or 0 for _, *both in ends for name, nic in both}
    best: dict[tuple[str, str], float] = {}
    for pair, (a, nic), (b, other) in ends:
        for key in ((a, nic.name), (b, other.name)):
            best[key] = max(best.get(key, 0.0), pair.gbs)
    for key in [key for key in best if _contradicts(key, ends, best, named)]:
        mbit = _standard(best[key])
        host = hosts[key[0]]
        nics = tuple(replace(nic, speed_mbit=mbit) if nic.name == key[1] else nic for nic in host.nics)
        after = replace(host, nics=nics)
        text = (
            f"declared {named[key] / 1000:g} Gbit/s, measured at most {8 * best[key]:.3g} Gbit/s in any "
            f"pair: {mbit / 1000:g} Gbit/s"
        )
        edits.append(Edit("nic", key[0], key[1], text, host, after))
        hosts[key[0]] = after
        named[key] = mbit
    left = []
    for pair, (a, nic), (b, other) in ends:
        expected = min(named[a, nic.name], named[b, other.name]) / 8000
        if expected and (pair.high_gbs < _NICS[0] * expected or pair.low_gbs > _NICS[1] * expected):
            text = (
                f"to {b}: {8 * pair.gbs:.3g} Gbit/s measured, {8 * expected:.3g} declared; other pairs of "
                "both are faster, so it lies between them"
            )
            left.append(Finding("declared-pair", f"{a}/{nic.name}", text))
    return [hosts[host.name] for host in topology.hosts], edits, left, len(ends)


_End = tuple[str, Nic]


def _contradicts(
    key: tuple[str, str],
    ends: Sequence[tuple[MeasuredPair, _End, _End]],
    best: dict[tuple[str, str], float],
    named: dict[tuple[str, str], int],
) -> bool:
    """Whether a NIC carried more than declared, or less in every pair though other ends could do more."""
    if not named[key]:
        return False
    if best[key] > _NICS[1] * named[key] / 8000:
        return True
    others = {
        (there[0], there[1].name)
        for _, src, dst in ends
        for here, there in ((src, dst), (dst, src))
        if (here[0], here[1].name) == key
    }
    expected = max(min(named[key], named[one] or named[key]) for one in others) / 8000
    if best[key] >= _NICS[0] * expected:
        return False
    # Either some other end was seen faster, or every NIC falls short.
    return any(best[one] > best[key] / 0.9 for one in others) or best[key] >= 0.9 * max(best.values())


def _nic_of(topology: Topology, name: str, nic: str, gpu: Gpu | None) -> _End | None:
    host = host_named(topology, name)
    if host is None or len(topology.hosts) == 1:
        return None
    found = next((one for one in host.nics if nic and nic in (one.name, one.rdma_device)), None)
    if found is None and gpu is not None:
        found = nearest_nic(host, gpu)
    if found is None and len(host.physical_nics) == 1:
        found = host.physical_nics[0]
    return None if found is None else (host.name, found)


def _standard(gbs: float) -> int:
    """The speed of NICs of which these GB/s are three quarters to all, else just these, in Mbit/s."""
    mbit = gbs * 8000
    return next((speed for speed in _NIC_MBIT if 0.75 * speed <= mbit <= 1.02 * speed), max(1, round(mbit)))
