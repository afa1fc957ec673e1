"""A topology as pictures: a host's PCIe tree by NUMA nodes, its NVLinks beside it, and probe results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ccctl.render import TreeLine, device_tree, fabric_words, percent, seconds
from ccctl.render.svg.axes import TIME, Axis
from ccctl.render.svg.drawing import (
    ALARM,
    COLOURS,
    GREY,
    Drawing,
    Entry,
    box,
    figure,
    fitted,
    stroke,
    swatch,
    text,
    text_width,
)
from ccctl.render.svg.lanes import LaneChart, bar, lanes
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
    "switch": ("PCIe switch", GREY),
    "bridge": ("PCIe bridge", GREY),
}
_QUESTIONS = {"nic_numa": "nearest NUMA node", "gpu_switch": "one PCIe switch", "nic_switch": "PCIe switch"}


def pictures(topology: Topology, width: int) -> Iterator[Drawing]:
    """Yield one picture for each of at most 8 kinds of equal hosts, then the results of active probes."""
    from probes.diff import fold_hosts

    for group in fold_hosts(topology)[:_MOST_GROUPS]:
        wrong = {
            finding.where.partition("/")[2]: finding.text
            for finding in topology.findings
            if finding.where.startswith(f"{group.hosts[0].name}/")
        }
        yield _machine(group, wrong, width)
        answered = [one for one in group.hosts[0].probed if one.measured]
        if answered:
            yield _probes(group.hosts[0], answered[:_MOST_PROBES], width)


def _machine(group: Alike, wrong: dict[str, str], width: int) -> Drawing:
    """Return a row for each device below its NUMA node, with the links between GPUs on the right."""
    from ccctl.render.text import headline
    from exec.launcher import fold

    host = group.hosts[0]
    lines = device_tree(host)
    linked = any(link.state != "down" for link in host.fabric)
    fabric = min(210.0, 0.26 * width) if linked else 0.0
    wide = width - fabric - 4
    tops = _tops(lines)
    parts = list(_tree(lines, tops, wide, wrong))
    kinds = {line.kind for line in lines}
    entries: list[Entry] = [
        (swatch(colour), name) for kind, (name, colour) in _KINDS.items() if kind in kinds
    ]
    if "numa" in kinds:
        entries.append((swatch("soft"), "a NUMA node: CPUs, memory"))
    if any(line.pcie for line in lines):
        entries.append(
            (stroke("M4 0v8h20", "faint", width=1.5), "PCIe: GT/s of a lane, lanes, GB/s each way")
        )
    if linked:
        middles = {line.key: y + _HIGH / 2 for line, y in zip(lines, tops, strict=True)}
        parts += _switches(host, middles, wide - 6, fabric)
        counts = _between(host, middles)
        parts += _curves(counts, middles, wide - 6, fabric)
        for count in sorted(set(counts.values())):
            links = f"{count} link{'s' * (count > 1)} between two"
            entries.append((stroke("M2 6h24", COLOURS[2], width=_thick(count)), links))
        entries += [("", words) for words in fabric_words(host)]
    names = {key: line.words[0] for line in lines for key in (line.bus_id, line.key)}
    entries += [(ALARM, f"{names.get(where, where)}: {fault}") for where, fault in wrong.items()]
    alike = f", {len(group.hosts)} alike" if len(group.hosts) > 1 else ""
    return figure(
        headline(host, fold(group.names) + alike),
        "Devices below their NUMA nodes, PCIe switches and bridges; curves on the right join GPUs.",
        width,
        parts,
        (tops[-1] if tops else 0.0) + _ROW + 8,
        entries,
    )


def _tops(lines: list[TreeLine]) -> list[float]:
    """Return the upper edge of each row, with a gap between NUMA nodes."""
    found, y = [], 6.0
    for at, line in enumerate(lines):
        y += 8 if at and line.depth == 0 else 0
        found.append(y)
        y += _ROW
    return found


def _tree(lines: list[TreeLine], tops: list[float], wide: float, wrong: dict[str, str]) -> Iterator[str]:
    """Yield each device with a line up to its parent, on the background of its NUMA node."""
    above: list[float] = []
    in_node = False
    for line, y in zip(lines, tops, strict=True):
        in_node = in_node if line.depth else line.kind == "numa"
        if in_node:
            yield box(2, y - 2, wide - 2, _ROW, colour="soft")
        del above[line.depth :]
        if above and line.depth:
            x, middle = 14 + _INDENT * (line.depth - 1), y + _HIGH / 2
            path = f"M{x:.1f} {above[-1] + _HIGH:.1f}V{middle:.1f}H{x + _INDENT - 6:.1f}"
            yield stroke(path, "faint", width=1.5)
        above.append(y)
        yield from _row(line, y, wide, wrong.get(line.key) or wrong.get(line.bus_id) or "")


def _row(line: TreeLine, y: float, wide: float, wrong: str) -> Iterator[str]:
    x = 8 + _INDENT * line.depth
    first = line.words[0]
    rest = " · ".join(word for word in (*line.words[1:], line.pcie, line.bus_id) if word)
    if line.kind in ("numa", "software"):
        words = " · ".join(line.words)
        yield text(fitted(words, wide - x - 4), x, y + 14, kind="axis" if line.kind == "numa" else "")
        return
    colour = _KINDS[line.kind][1]
    name = f"▲ {first}" if wrong else first
    whole = f"{first} · {rest}" + (f": {wrong}" if wrong else "")
    room = max(20.0, wide - x - 6)
    yield box(x, y, room, _HIGH, colour="paper", edge="alarm" if wrong else "", title=whole)
    yield box(x, y, 6, _HIGH, colour=colour)
    yield text(fitted(name, room - 12), x + 11, y + 14, colour="alarm" if wrong else "ink")
    left = x + 11 + text_width(name) + 10
    if x + room - left > 24:
        yield text(fitted(rest, x + room - left - 4), left, y + 14, colour="faint")


def _between(host: Host, middles: dict[str, float]) -> dict[tuple[str, str], int]:
    """Return the number of links between each two GPUs, the upper one first."""
    counts: dict[tuple[str, str], int] = {}
    for link in host.fabric:
        ends = {link.source, link.target} & middles.keys()
        if link.state != "down" and link.target_kind != "switch" and len(ends) == 2:
            first, last = sorted(ends, key=middles.__getitem__)
            counts[first, last] = max(counts.get((first, last), 0), link.count)
    return counts


def _curves(
    counts: dict[tuple[str, str], int], middles: dict[str, float], left: float, wide: float
) -> Iterator[str]:
    """Yield a curve between each two linked GPUs."""
    span = max((middles[last] - middles[first] for first, last in counts), default=1.0)
    for (first, last), count in sorted(counts.items()):
        top, bottom = middles[first], middles[last]
        reach = left + 1.3 * (14 + (wide - 26) * (bottom - top) / span)
        path = f"M{left:.1f} {top:.1f}C{reach:.1f} {top:.1f} {reach:.1f} {bottom:.1f} {left:.1f} {bottom:.1f}"
        yield stroke(path, COLOURS[2], width=_thick(count))


def _switches(host: Host, middles: dict[str, float], left: float, wide: float) -> Iterator[str]:
    """Yield one bar for all NVSwitches, with each GPU's number of links to them."""
    links = [link for link in host.fabric if link.target_kind == "switch" and link.source in middles]
    counts: Counter[str] = Counter()
    for link in links:
        counts[link.source] += link.count if link.state != "down" else 0
    rows, x = [middles[source] for source in +counts], left + wide - 34
    if not rows:
        return
    for source, count in (+counts).items():
        fewer, y = count < max(counts.values()), middles[source]
        number = f"{count}" if wide < 100 else f"{count} links"
        yield stroke(f"M{left:.1f} {y:.1f}H{x:.1f}", "alarm" if fewer else COLOURS[2], width=3)
        yield text(number, left + 12, y - 5, colour="alarm" if fewer else "ink")
    yield box(x, min(rows) - 8, 24, max(rows) - min(rows) + 16, colour=COLOURS[2])
    shown = len({link.target for link in links if link.target in middles})
    name = f"{shown} NVSwitches" if shown > 1 else "NVSwitch"
    yield text(name, x + 24, min(rows) - 15, anchor="end")


def _thick(count: int) -> float:
    return min(1.0 + 0.75 * count, 5.0)


def _probes(host: Host, probed: list[Probed], width: int) -> Drawing:
    """Return a group of bars for each probe: the measurement of each alternative."""
    names = {gpu.bus_id: label(gpu) for gpu in host.gpus} | {nic.name: label(nic) for nic in host.nics}
    rows = []
    for one in probed:
        asked = " and ".join(names.get(name, name) for name in one.devices)
        answer = f"  answer {one.answer}, {percent(one.confidence or 0)} sure"
        for alternative, value in one.measured.items():
            measured = seconds(value) if one.what == "nic_numa" else f"{value:.3g}"
            name = f"{asked}: {_QUESTIONS[one.what]}, {names.get(alternative, alternative)}"
            rows.append(bar(name, [("median", value, COLOURS[0])], measured + answer, first=bool(answer)))
            answer = ""
    rates = Axis(
        "median: seconds, or the ratio of GB/s beside the other's traffic to GB/s alone",
        lambda value: f"{value:.3g}",
    )
    timed = all(one.what == "nic_numa" for one in probed)
    return lanes(
        f"active probes of {host.name}: what each alternative measured",
        "A group of bars for each question of AdapCC's probes, and the answer.",
        LaneChart(rows, replace(TIME, title="time, median") if timed else rates),
        width,
    )
