"""Contradictions between the records of a topology, which no reader may leave and no file may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from probes.finite import not_finite
from probes.spelling import is_cpu_list

if TYPE_CHECKING:
    from probes.topology import Host, Topology

__all__ = ["problems_of"]


def problems_of(topology: Topology) -> list[str]:
    """Every contradiction between the records, as ``path: what is wrong``."""
    names = _repeated(host.name for host in topology.hosts)
    found = [f"hosts: {name!r} is there {count} times" for name, count in names]
    found += not_finite(topology)
    for index, host in enumerate(topology.hosts):
        found += [f"hosts[{index}].{problem}" for problem in _host_problems(host)]
    return found


def _repeated(names: Iterator[str]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in Counter(names).items() if count > 1]


def _host_problems(host: Host) -> Iterator[str]:
    for label, keys in (
        ("numa", (str(node.index) for node in host.numa)),
        ("pci", (device.bus_id for device in host.pci)),
        ("gpus", (gpu.bus_id for gpu in host.gpus)),
        ("gpus", (f"index {gpu.index}" for gpu in host.gpus)),
        ("nics", (nic.name for nic in host.nics)),
    ):
        yield from (f"{label}: {name} is there {count} times" for name, count in _repeated(keys))
    for row, node in enumerate(host.numa):
        if not is_cpu_list(node.cpus):
            yield f"numa[{row}].cpus: expected CPUs as 0-23,48-71, found {node.cpus[:40]!r}"
    yield from _tree_problems(host)
    known = {gpu.bus_id for gpu in host.gpus}
    for row, link in enumerate(host.fabric):
        if link.source not in known:
            yield f"fabric[{row}].source: there is no GPU {link.source}"
        if link.count < 1:
            yield f"fabric[{row}].count: expected a number ≥ 1, found {link.count}"
    yield from _matrix_problems(host)


def _matrix_problems(host: Host) -> Iterator[str]:
    known = {gpu.bus_id for gpu in host.gpus} | {nic.name for nic in host.nics}
    for row, matrix in enumerate(host.matrices):
        unknown = [device for device in matrix.devices if device not in known]
        if unknown:
            yield f"matrices[{row}].devices: there is no device {', '.join(unknown)}"
        size = len(matrix.devices)
        if len(matrix.cells) != size or any(len(cells) != size for cells in matrix.cells):
            yield f"matrices[{row}].cells: expected {size} rows of {size} cells"


def _tree_problems(host: Host) -> Iterator[str]:
    parents = {device.bus_id: device.parent for device in host.pci}
    for row, device in enumerate(host.pci):
        if device.parent and device.parent not in parents:
            yield f"pci[{row}].parent: there is no device {device.parent}"
        seen, here = {device.bus_id}, device.parent
        while here and here not in seen:
            seen.add(here)
            here = parents.get(here, "")
        if here == device.bus_id:
            yield f"pci[{row}].parent: {device.bus_id} is its own ancestor"
