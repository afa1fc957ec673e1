"""A topology as one object and as text: each host's tree, its fabric, the path and bandwidth of every pair.

``ccctl.render.machine_tree`` makes the tree. If asked for, an explained path and the differences from another
topology are shown, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import counted, device_tree, fabric_words, figures, gib, labels_of
from exec.launcher import fold
from probes.base import plural, some
from probes.paths import MEANING, Expected, Paths, expected_gbs, key_of, load
from probes.topology import Gpu, Host, Nic, Probed, Topology, label

if TYPE_CHECKING:
    from probes.diff import Comparison
    from probes.paths import Explanation

__all__ = ["draw", "draw_differences", "draw_path", "headline", "remarks", "summary"]

# A host with more differences than this is drawn whole, as another kind of machine.
_MOST_DIFFERENCES = 12
_WHAT = {
    "nic_numa": "NUMA node of NICs",
    "gpu_switch": "GPUs on one PCIe switch",
    "nic_switch": "GPUs on the switch of NICs",
}


_MOST_NAMES = 6


def summary(found: Topology, why: Explanation | None, comparison: Comparison | None) -> dict[str, Any]:
    """Return the counts of a topology, the explained path and the differences, as ``--json`` prints them."""
    hosts = found.hosts
    more: dict[str, Any] = {} if comparison is None else dataclasses.asdict(comparison)
    notes = [*found.notes, *more.pop("notes", ())]
    if why is not None:
        more["why"] = dataclasses.asdict(why)
    return {
        "hosts": len(hosts),
        "host_names": fold(host.name for host in hosts),
        "gpus": sum(len(host.usable_gpus) for host in hosts),
        "nics": sum(len(host.physical_nics) for host in hosts),
        "nvlinks": sum(host.fabric_links() for host in hosts),
        "findings": [figures(finding, "what where text") for finding in found.findings],
        "notes": notes,
        "numa_nodes": sum(len(host.numa) for host in hosts),
        "pci_devices": sum(len(host.pci) for host in hosts),
        "software_nics": sum(len(host.nics) - len(host.physical_nics) for host in hosts),
        "expected_gbs": {host.name: expected_gbs(host, load()) for host in hosts},
        "probed": {host.name: figures(host, "probed")["probed"] for host in hosts if host.probed},
        "ranks_are": "gpus" if any(host.usable_gpus for host in hosts) else "processes",
        **more,
    }


def draw(topology: Topology) -> None:
    """Print every host on stdout, equal ones once, then findings and notes on stderr."""
    from probes.diff import fold_hosts

    groups = fold_hosts(topology)
    for number, group in enumerate(groups):
        name = fold(group.names) + (f": {len(group.hosts)} alike" if len(group.hosts) > 1 else "")
        if number:
            console.data("")
        if 0 < len(group.differences) <= _MOST_DIFFERENCES:
            console.data(f"{name}: as {groups[0].names[0]}, but for")
            for difference in group.differences:
                console.data(f"  {difference.severity}: {difference.text}")
        else:
            _draw_host(group.hosts[0], name)
    if not topology.findings:
        console.note("nothing wrong was found")
    remarks(topology)


def headline(host: Host, name: str = "") -> str:
    """Return one line with a host's devices; it says if ranks are processes for lack of a GPU."""
    hidden = len(host.gpus) - len(host.usable_gpus)
    more = f" (and {hidden} not given to this process)" if hidden else ""
    parts = [counted(len(host.usable_gpus), "GPU") + more, counted(len(host.physical_nics), "NIC")]
    if host.numa:
        parts.append(counted(len(host.numa), "NUMA node"))
    if host.cores:
        parts.append(counted(host.cores, "core"))
    if host.memory_bytes:
        parts.append(gib(host.memory_bytes))
    ranks = "" if host.usable_gpus else "; no GPU, so its ranks are processes"
    return f"{name or host.name}: {', '.join(parts)}{ranks}"


def _draw_host(host: Host, name: str) -> None:
    console.data(headline(host, name))
    for line in _tree_lines(host):
        console.data(f"  {line}")
    for line in (*fabric_words(host), *_probed_lines(host)):
        console.data(f"  {line}")
    _draw_reach(host)


def _tree_lines(host: Host) -> Iterator[str]:
    for line in device_tree(host):
        parts = (line.bus_id, *line.words, line.pcie)
        yield "  " * line.depth + "  ".join(part for part in parts if part)


def _draw_reach(host: Host) -> None:
    """Print the paths between GPUs, and from GPUs to NICs; between NICs if there is no GPU."""
    labels, paths, expected = labels_of(host), Paths(host), Expected(host, load())
    rows: list[Gpu | Nic] = [*host.gpus] or [*host.physical_nics]
    columns: list[Gpu | Nic] = [*host.gpus, *host.physical_nics]
    if len(columns) < 2:
        return

    def table(corner: str, cells: Sequence[Sequence[str]]) -> None:
        names = [labels[key_of(device)] for device in columns]
        console.data("")
        console.table(
            [corner, *names], [[labels[key_of(row)], *line] for row, line in zip(rows, cells, strict=True)]
        )

    kinds = [[paths.between(row, column) for column in columns] for row in rows]
    table("", kinds)
    seen = {kind for line in kinds for kind in line}
    console.data("; ".join(f"{word} {text}" for word, text in MEANING.items() if word in seen))
    words = [[_expectation(expected, row, column) for column in columns] for row in rows]
    if host.gpus and any(word for line in words for word in line):
        table("GB/s", words)
        relayed = any(word.endswith("+") for line in words for word in line)
        more = "; +: faster by PXN, over NVLink and a GPU nearer to the NIC" if relayed else ""
        console.data(f"expected in one direction, in GB/s of payload; a blank is unknown{more}")


def _expectation(expected: Expected, a: Gpu | Nic, b: Gpu | Nic) -> str:
    gbs = expected.between(a, b).gbs
    if gbs is None:
        return ""
    over = expected.over_peer(a, b) if isinstance(a, Gpu) and isinstance(b, Nic) else None
    return f"{gbs:.4g}" + ("+" if over is not None and (over.gbs or 0) > 1.1 * gbs else "")


def _probed_lines(host: Host) -> Iterator[str]:
    """Yield the answers of probes with their confidence, then why other probes gave none."""
    labels = {gpu.bus_id: label(gpu) for gpu in host.gpus} | {nic.name: label(nic) for nic in host.nics}
    apart: list[str] = []
    refused: dict[tuple[str, str], None] = {}
    for one in host.probed:
        if one.reason:
            refused[_WHAT[one.what], one.reason] = None
        elif one.answer == "no":
            apart.append(" and ".join(labels[name] for name in one.devices))
        else:
            sure = f"{one.confidence or 0:.0%} sure after {one.repetitions} repetitions"
            yield f"probed: {_answer_of(one, labels)}, {sure}"
    if apart:
        yield f"probed: no PCIe switch is shared by {'; '.join(apart)}"
    for what, reason in refused:
        yield f"not probed: {what}: {reason}"


def _answer_of(one: Probed, labels: dict[str, str]) -> str:
    first = labels[one.devices[0]]
    if one.what == "nic_numa":
        return f"{first} is nearest to NUMA node {one.answer}"
    if one.what == "gpu_switch":
        return f"{first} and {labels[one.devices[1]]} share a PCIe switch"
    return f"on the switch of {first}: {', '.join(labels[name] for name in one.answer.split(','))}"


def remarks(topology: Topology) -> None:
    """Print findings as warnings, then notes; equal ones of several hosts share a line."""
    hosts = {host.name for host in topology.hosts}
    places: dict[tuple[str, str], list[str]] = {}
    for finding in topology.findings:
        places.setdefault((finding.what, finding.text), []).append(finding.where)
    for (what, text), where in places.items():
        console.warn(f"{what}: {some(_places(where), _MOST_NAMES)}: {text}")
    same: dict[str, list[str]] = {}
    for note in topology.notes:
        name, colon, text = note.partition(": ")
        same.setdefault(text if colon and name in hosts else note, []).append(name if name in hosts else "")
    for text, names in same.items():
        console.note(f"note: {fold(names)}: {text}" if any(names) else f"note: {text}")


def _places(where: list[str]) -> list[str]:
    """Return places ("host/device") with the hosts of one device joined to a node set."""
    hosts: dict[str, list[str]] = {}
    for place in where:
        host, _, device = place.partition("/")
        hosts.setdefault(device, []).append(host)
    return [f"{fold(names)}/{device}" if device else fold(names) for device, names in hosts.items()]


def draw_path(why: Explanation) -> None:
    """Print the verdict on a path, its parts in the order of the data, and the reasons."""
    console.data(f"{why.a} to {why.b}: {why.path}, {why.meaning}")
    steps = [("", step.what, step.name + (f"  {step.link}" if step.link else "")) for step in why.steps]
    for line in console.aligned(["", "", ""], steps)[1:]:
        console.data(line)
    if why.gbs is not None:
        console.data(f"expected: {why.gbs:.4g} GB/s in one direction, limited by {why.limit}")
    elif why.path != "LOC":
        console.data("expected: unknown, as no part of the way states its speed")
    if why.reasons:
        console.data("why this path, and not a better one:")
    for reason in why.reasons:
        console.data(f"- {reason}")


def draw_differences(comparison: Comparison, found: Topology, other: str) -> None:
    """Print the differences, equal ones of several hosts once, or that there are none; then notes."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for difference in comparison.differences:
        host, _, device = difference.where.partition("/")
        lines.setdefault((difference.severity, device, difference.text), []).append(host)
    for (severity, device, text), hosts in lines.items():
        console.data(f"{severity:8}  {'/'.join(filter(None, (fold(hosts), device)))}  {text}")
    if not comparison.differences:
        parts = [(len(host.gpus), len(host.physical_nics), host.fabric_links()) for host in found.hosts]
        gpus, nics, links = map(sum, zip(*parts, strict=True)) if parts else (0, 0, 0)
        counts = ", ".join(map(plural, (gpus, nics, links), ("GPU", "NIC", "NVLink")))
        console.data(f"same as {other}: {counts}")
    for note in comparison.notes:
        console.note(f"note: {note}")
