"""Conflicts between sources: a finding names both values, and the value that is used.

Only facts that do not change between two readings are compared. The current speed of a link and the state of
a port are not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations

from probes.base import some
from probes.paths import Paths, key_of
from probes.topology import Finding, Gpu, Host, Matrix, Nic, NumaNode, PciDevice, Topology

__all__ = ["between", "with_stated"]

_Record = NumaNode | PciDevice | Gpu | Nic
_COMPARED: dict[str, tuple[str, ...]] = {
    "numa": ("vendor", "family", "model"),
    "pci": ("pci_class", "vendor", "device", "numa", "max_speed_gts", "max_width"),
    "gpus": ("uuid", "arch", "index", "numa"),
    "nics": ("bus_id", "speed_mbit", "numa", "mac"),
}
_OF_LINKS = ("max_speed_gts", "max_width")
_MOST_NAMED = 3


def between(parts: Sequence[Topology]) -> list[Finding]:
    """Return the contradictions between the parts, for each host that several of them describe."""
    hosts: dict[str, list[Host]] = {}
    for host in (host for part in parts for host in part.hosts):
        hosts.setdefault(host.name, []).append(host)
    return [finding for same in hosts.values() for finding in _on_one_host(same)]


def _on_one_host(hosts: Sequence[Host]) -> Iterator[Finding]:
    for table, names in _COMPARED.items():
        said: dict[Hashable, list[tuple[_Record, Host]]] = {}
        for host in hosts:
            for record in getattr(host, table):
                said.setdefault(_name(record), []).append((record, host))
        for key, records in said.items():
            for name in names:
                yield from _field(f"{hosts[0].name}/{key}", name, records)
    yield from _link_counts(hosts)
    yield from _absent(hosts)


def _name(record: _Record) -> str:
    if isinstance(record, NumaNode):
        return f"NUMA node {record.index}"
    return record.name if isinstance(record, Nic) else record.bus_id


def _field(where: str, name: str, records: Sequence[tuple[_Record, Host]]) -> Iterator[Finding]:
    known = [(record, host) for record, host in records if getattr(record, name) not in (None, "")]
    for record, host in known[1:]:
        first, taken = known[0]
        if not _values(first, taken, name) & _values(record, host, name):
            text = (
                f"{name}: {_method(first, name)} says {getattr(first, name)}, {_method(record, name)} says "
                f"{getattr(record, name)}; the first is taken"
            )
            yield Finding("disagree", where, text)


def _method(record: _Record, name: str) -> str:
    return record.method_of.get(name, record.method)


def _values(record: _Record, host: Host, name: str) -> set[Hashable]:
    """Return the possible values of a field: tools give a device's own limit or its link's."""
    value = getattr(record, name)
    if name == "pci_class":
        return {value[:6]}  # hwloc omits the programming interface
    if isinstance(value, str):
        return {value.lower()}
    found: set[Hashable] = {value}
    if name in _OF_LINKS and isinstance(record, PciDevice):
        above = next((device for device in host.pci if device.bus_id == record.parent), None)
        limit = getattr(above, name, None)
        if limit:
            found.add(min(value, limit))
    return found


def _link_counts(hosts: Sequence[Host]) -> Iterator[Finding]:
    said: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for host in hosts:
        counts: dict[tuple[str, str], tuple[str, int]] = {}
        for link in host.fabric:
            if link.kind != "c2c" and link.state != "down":
                before = counts.get((link.source, link.kind), (link.method, 0))
                counts[link.source, link.kind] = before[0], before[1] + link.count
        for key, counted in counts.items():
            said.setdefault(key, []).append(counted)
    for (bus_id, kind), several in said.items():
        method, first = several[0]
        for other, count in several[1:]:
            if count != first:
                text = f"{method} says {first} {kind} links, {other} says {count}; the first is taken"
                yield Finding("disagree", f"{hosts[0].name}/{bus_id}", text)


def _absent(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield GPUs that only one list has; NVML is skipped, because the driver may hide GPUs from a process."""
    lists = [host for host in hosts if host.gpus and host.method != "nvml"]
    for first, second in combinations(lists, 2):
        for here, there in ((first, second), (second, first)):
            absent = sorted({gpu.bus_id for gpu in here.gpus} - {gpu.bus_id for gpu in there.gpus})
            for bus_id in absent:
                text = f"{here.method} lists this GPU, {there.method} does not"
                yield Finding("absent-gpu", f"{hosts[0].name}/{bus_id}", text)


def with_stated(host: Host) -> Iterator[Finding]:
    """Yield contradictions between the path types of a tool and the host's PCI tree and links."""
    paths = Paths(host)
    every: list[Gpu | Nic] = [*host.gpus, *host.nics]
    devices = {key_of(device): device for device in every}
    for matrix in (matrix for matrix in host.matrices if matrix.what == "path"):
        unlike: dict[tuple[str, str], list[str]] = {}
        for a, b in combinations([key for key in matrix.devices if key in devices], 2):
            stated, derived = _both(matrix, paths, devices[a], devices[b])
            if stated != derived:
                unlike.setdefault((stated, derived), []).append(f"{a} and {b}")
        for (stated, derived), pairs in unlike.items():
            yield Finding("disagree", host.name, _text(matrix.method, stated, derived, pairs))


def _both(matrix: Matrix, paths: Paths, a: Gpu | Nic, b: Gpu | Nic) -> tuple[str, str]:
    word = matrix.cell(key_of(a), key_of(b))
    path = paths.between(a, b)
    if word.startswith("NV"):
        return "NVL", path if path != "?" else "NVL"
    # NVML answers for the path over PCIe, even if there is NVLink.
    if path == "NVL" and matrix.method == "smi":
        return word, path
    derived = paths.in_tree(a, b)
    if word == "NODE" and derived == "PHB" and paths.hides_bridges(a):
        return word, word
    return word, derived if word and derived else word


def _text(method: str, stated: str, derived: str, pairs: Iterable[str]) -> str:
    return (
        f"{method} says {stated}, the PCI tree and the links say {derived}, between "
        f"{some(list(pairs), _MOST_NAMED, '; ')}; the tree is taken"
    )
