"""A topology as pictures: a host's PCIe tree by NUMA nodes, its NVLinks beside it, and probe results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from ccctl.render import TreeLine, device_tree, fabric_words, percent, seconds
from ccctl.render.svg.bar_chart import Bar, Piece, bars
from ccctl.render.svg.drawing import COLOURS, Drawing, box, fitted, legend, stroke, text, text_width
from probes.topology import label

if TYPE_CHECKING:
    from probes.diff import Alike
    from probes.topology import Host, Probed, Topology

__all__ = ["pictures"]

_ROW, _INDENT, _HIGH = 26, 16, 20
_MOST_GROUPS, _MOST_PROBES = 8, 40
_KINDS = {
    "gpu": ("GPU", COLOURS[0]),
    "nic": ("network port", COLOURS[1]),
    "nvswitch": ("NVSwitch", COLOURS[2]),
    "switch": ("PCIe switch", COLOURS[6]),
    "bridge": ("PCIe bridge", COLOURS[6]),
}
_QUESTIONS = {"nic_numa": "nearest NUMA node", "gpu_switch": "one PCIe switch", "nic_switch": "PCIe switch"}


def pictures(topology: Topology, width: int) -> list[Drawing]:
    """Return one picture for each of at most 8 kinds of equal hosts, then the results of active probes."""
    from probes.diff import fold_hosts

    found = []
    for group in fold_hosts(topology)[:_MOST_GROUPS]:
        wrong = {
            finding.where.partition("/")[2]: finding.text
            for finding in topology.findings
            if finding.where.startswith(f"{group.hosts[0].name}/")
        }
        found.append(_machine(group, wrong, width))
        answered = [one for one in group.hosts[0].probed if one.measured]
        if answered:
            found.append(_probes(group.hosts[0], answered[:_MOST_PROBES], width))
    return found


def _machine(group: Alike, wrong: dict[str, str], width: int) -> Drawing:
    """Return a row for each device below its NUMA node, with the links between GPUs on the right."""
    from ccctl.render.text import headline
    from exec.launcher import fold

    host = group.hosts[0]
    lines = device_tree(host)
    own = [link for link in host.fabric if link.state != "down"]
    fabric = min(210.0, 0.26 * width) if own else 0.0
    wide = width - fabric - 4
    tops = _tops(lines)
    top = {line.key: y for line, y in zip(lines, tops, strict=True)}
    parts = [*_panels(lines, tops, wide), *_edges(lines, tops)]
    for line, y in zip(lines, tops, strict=True):
        parts += _row(line, y, wide, wrong.get(line.key) or wrong.get(line.bus_id) or "")
    drawn, signs = _fabric(host, top, wide - 6, fabric) if fabric else ([], [])
    below = (tops[-1] if tops else 0.0) + _ROW + 8
    names = {key: line.words[0] for line in lines for key in (line.bus_id, line.key)}
    for where, said in wrong.items():
        signs.append(("<path d='M14 0l8 12h-16Z' class='f-alarm'/>", f"{names.get(where, where)}: {said}"))
    kinds = {line.kind for line in lines}
    entries = [
        (f"<rect x='8' width='20' height='12' fill='{colour}'/>", said)
        for kind, (said, colour) in _KINDS.items()
        if kind in kinds
    ]
    if "numa" in kinds:
        entries.append((box(8, 0, 20, 12, colour="soft"), "a NUMA node: CPUs, memory"))
    if any(line.pcie for line in lines):
        entries.append(
            (stroke("M8 0v8h20", "faint", width=1.5), "PCIe: GT/s of a lane, lanes, GB/s each way")
        )
    explained, height = legend([*entries, *signs], 8, width, below)
    alike = f", {len(group.hosts)} alike" if len(group.hosts) > 1 else ""
    title = headline(host, fold(group.names) + alike)
    about = "Devices below their NUMA nodes, PCIe switches and bridges; curves on the right join GPUs."
    return Drawing(title, about, width, below + height + 8, (*parts, *drawn, *explained))


def _tops(lines: list[TreeLine]) -> list[float]:
    """Return the upper edge of each row, with a gap between NUMA nodes."""
    found, y = [], 6.0
    for at, line in enumerate(lines):
        y += 8 if at and line.depth == 0 else 0
        found.append(y)
        y += _ROW
    return found


def _panels(lines: list[TreeLine], tops: list[float], wide: float) -> Iterator[str]:
    """Yield a background for each NUMA node and the rows below it."""
    nodes = [at for at, line in enumerate(lines) if line.depth == 0]
    for first, last in zip(nodes, [*nodes[1:], len(lines)], strict=True):
        if lines[first].kind == "numa":
            yield box(2, tops[first] - 2, wide - 2, tops[last - 1] - tops[first] + _ROW, colour="soft")


def _edges(lines: list[TreeLine], tops: list[float]) -> Iterator[str]:
    """Yield a line from each device up to its parent."""
    above: list[int] = []
    for at, line in enumerate(lines):
        del above[line.depth :]
        if above and line.depth:
            x, y = 14 + _INDENT * (line.depth - 1), tops[at] + _HIGH / 2
            start = tops[above[-1]] + _HIGH
            yield stroke(f"M{x:.1f} {start:.1f}V{y:.1f}H{x + _INDENT - 6:.1f}", "faint", width=1.5)
        above.append(at)


def _row(line: TreeLine, y: float, wide: float, wrong: str) -> Iterator[str]:
    x = 8 + _INDENT * line.depth
    first = line.words[0]
    rest = " · ".join(word for word in (*line.words[1:], line.pcie, line.bus_id) if word)
    if line.kind in ("numa", "software"):
        said = " · ".join(line.words)
        yield text(fitted(said, wide - x - 4), x, y + 14, kind="axis" if line.kind == "numa" else "")
        return
    colour = _KINDS[line.kind][1]
    name = f"▲ {first}" if wrong else first
    whole = f"{first} · {rest}" + (f": {wrong}" if wrong else "")
    room = max(20.0, wide - x - 6)
    yield box(x, y, room, _HIGH, colour="paper", edge="alarm" if wrong else "", title=whole)
    yield f"<rect x='{x:.1f}' y='{y:.1f}' width='6' height='{_HIGH}' fill='{colour}'/>"
    yield text(fitted(name, room - 12), x + 11, y + 14, colour="alarm" if wrong else "ink")
    left = x + 11 + text_width(name) + 10
    if x + room - left > 24:
        yield text(fitted(rest, x + room - left - 4), left, y + 14, colour="faint")


def _fabric(
    host: Host, top: dict[str, float], left: float, wide: float
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return (curves between linked GPUs and a bar for the switches, the legend)."""
    parts: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    switched: dict[str, int] = {}
    for link in host.fabric:
        if link.state == "down" or link.source not in top:
            continue
        if link.target_kind == "switch":
            switched[link.source] = switched.get(link.source, 0) + link.count
        elif link.target in top and link.target != link.source:
            a, b = sorted((link.source, link.target), key=lambda end: top[end])
            counts[a, b] = max(counts.get((a, b), 0), link.count)
    span = max((top[b] - top[a] for a, b in counts), default=1.0)
    for (a, b), count in sorted(counts.items()):
        first, last = top[a] + _HIGH / 2, top[b] + _HIGH / 2
        reach = 14 + (wide - 26) * (last - first) / span
        path = f"M{left:.1f} {first:.1f}C{left + 1.3 * reach:.1f} {first:.1f} "
        path += f"{left + 1.3 * reach:.1f} {last:.1f} {left:.1f} {last:.1f}"
        parts.append(stroke(path, COLOURS[2], width=_thick(count)))
    if switched:
        parts += _switches(host, switched, top, left, wide)
    signs = [
        (stroke("M4 6h24", COLOURS[2], width=_thick(count)), f"{count} link{'s' * (count > 1)} between two")
        for count in sorted(set(counts.values()))
    ]
    return parts, signs + [("", words) for words in fabric_words(host)]


def _switches(
    host: Host, switched: dict[str, int], top: dict[str, float], left: float, wide: float
) -> Iterator[str]:
    """Yield one bar for all NVSwitches, with each GPU's number of links to them."""
    most, x = max(switched.values()), left + wide - 34
    for source, count in switched.items():
        y = top[source] + _HIGH / 2
        fewer = count < most
        said = f"{count}" if wide < 100 else f"{count} links"
        yield stroke(f"M{left:.1f} {y:.1f}H{x:.1f}", "alarm" if fewer else COLOURS[2], width=3)
        yield text(said, left + 12, y - 5, colour="alarm" if fewer else "ink")
    rows = [top[source] + _HIGH / 2 for source in switched]
    first, last = min(rows) - 8, max(rows) + 8
    first, last = max(4.0, min(first, (first + last) / 2 - 48)), max(last, (first + last) / 2 + 48)
    yield box(x, first, 24, last - first, colour=COLOURS[2])
    shown = len({link.target for link in host.fabric if link.target_kind == "switch" and link.target in top})
    name = f"{shown} NVSwitches" if shown > 1 else "NVSwitch"
    yield text(name, x + 16, (first + last) / 2, anchor="middle", colour="#ffffff", turned=True)


def _thick(count: int) -> float:
    return min(1.0 + 0.75 * count, 5.0)


def _probes(host: Host, probed: list[Probed], width: int) -> Drawing:
    """Return a group of bars for each probe: the measurement of each alternative."""
    names = {gpu.bus_id: label(gpu) for gpu in host.gpus} | {nic.name: label(nic) for nic in host.nics}
    rows = []
    timed = all(one.what == "nic_numa" for one in probed)
    for (what, devices), found in groupby(probed, lambda one: (one.what, one.devices)):
        for one in found:
            asked = " and ".join(names.get(name, name) for name in devices)
            for number, (alternative, value) in enumerate(one.measured.items()):
                answer = f"answer {one.answer}, {percent(one.confidence or 0)} sure"
                said = seconds(value) if one.what == "nic_numa" else f"{value:.3g}"
                said += f"  {answer}" if not number else ""
                name = f"{asked}: {_QUESTIONS[what]}, {names.get(alternative, alternative)}"
                rows.append(Bar(name, (Piece("median", value, COLOURS[0]),), said, first=not number))
    axis = "time, median" if timed else "median: seconds, or GB/s beside the other's traffic by GB/s alone"
    return bars(
        f"active probes of {host.name}: what each alternative measured",
        "A group of bars for each question of AdapCC's probes, and the answer.",
        rows,
        axis,
        seconds if timed else lambda value: f"{value:.3g}",
        width,
    )
