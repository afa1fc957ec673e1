"""A topology as text: each host's tree, its fabric, and the path and bandwidth of every pair.

``ccctl.render.machine_tree`` makes the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccctl import console
from ccctl.render import counted, device_tree, fabric_words, gib, labels_of
from ccctl.render.text.remarks import remarks
from probes.paths import MEANING, Expected, Paths, key_of, load
from probes.topology import Gpu, Host, Nic, Probed, Topology, label

__all__ = ["draw", "headline"]

# A host with more differences than this is drawn whole, as another kind of machine.
_MOST_DIFFERENCES = 12
_WHAT = {
    "nic_numa": "NUMA node of NICs",
    "gpu_switch": "GPUs on one PCIe switch",
    "nic_switch": "GPUs on the switch of NICs",
}


def draw(topology: Topology) -> None:
    """Print every host on stdout, equal ones once, then findings and notes on stderr."""
    from exec.launcher import fold
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
    remarks(topology)


def headline(host: Host, name: str = "") -> str:
    """Return one line with a host's devices and the devices of its ranks."""
    parts = [counted(len(host.usable_gpus), "GPU"), counted(len(host.physical_nics), "NIC")]
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
    labels, paths = labels_of(host), Paths(host)
    rows: list[Gpu | Nic] = [*host.gpus] or [*host.physical_nics]
    columns: list[Gpu | Nic] = [*host.gpus, *host.physical_nics]
    if len(columns) < 2:
        return
    names = [labels[key_of(device)] for device in columns]
    cells = [[labels[key_of(row)], *(paths.between(row, column) for column in columns)] for row in rows]
    console.data("")
    console.table(["", *names], cells)
    seen = {cell for row in cells for cell in row[1:]}
    console.data("; ".join(f"{word} {text}" for word, text in MEANING.items() if word in seen))
    _expectations(host, rows, columns)


def _expectations(host: Host, rows: Sequence[Gpu | Nic], columns: Sequence[Gpu | Nic]) -> None:
    """Print the expected bandwidth of each of those paths."""
    labels, expected = labels_of(host), Expected(host, load())
    words = [[_expectation(expected, row, column) for column in columns] for row in rows]
    if not host.gpus or not any(word for row in words for word in row):
        return
    lines = [[labels[key_of(row)], *line] for row, line in zip(rows, words, strict=True)]
    console.data("")
    console.table(["GB/s", *(labels[key_of(device)] for device in columns)], lines)
    relayed = any(word.endswith("+") for row in words for word in row)
    more = "; + more over NVLink and a GPU that is nearer (PXN)" if relayed else ""
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
            yield f"probed: {_said(one, labels)}, {_sure(one)}"
    if apart:
        yield f"probed: no PCIe switch is shared by {'; '.join(apart)}"
    for what, reason in refused:
        yield f"not probed: {what}: {reason}"


def _said(one: Probed, labels: dict[str, str]) -> str:
    first = labels[one.devices[0]]
    if one.what == "nic_numa":
        return f"{first} is nearest to NUMA node {one.answer}"
    if one.what == "gpu_switch":
        return f"{first} and {labels[one.devices[1]]} share a PCIe switch"
    return f"on the switch of {first}: {', '.join(labels[name] for name in one.answer.split(','))}"


def _sure(one: Probed) -> str:
    return f"{one.confidence or 0:.0%} sure after {one.repetitions} repetitions"
