"""All of detection: each source gives a partial topology, one pure function lays them over each other.

Earlier sources win where two say different things; what only a later one says is taken from it, and
``method_of`` records that. AdapCC (Sec. IV-A) finds such facts by probing; what the machine says
about itself costs less and comes first.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from probes.bandwidth import Bandwidths, load
from probes.complete import complete
from probes.files import hwloc, nccl_xml, smi
from probes.live import nvml, sysfs, system
from probes.topology import FabricLink, Gpu, Host, Nic, NumaNode, PciDevice, Topology

__all__ = ["from_file", "live", "merge", "side_by_side"]

_Record = TypeVar("_Record", NumaNode, PciDevice, Gpu, Nic, FabricLink)
_Layer = TypeVar("_Layer", Host, NumaNode, PciDevice, Gpu, Nic, FabricLink)
_ENOUGH = 4096
_HWLOC = re.compile(rb"<!DOCTYPE\s+topology\b|<topology\b")
_NESTED = {"numa", "pci", "gpus", "nics", "fabric"}


def live(
    host: str = "",
    *,
    root: Path = Path("/"),
    driver: Any = None,
    processes: Any = None,
    tables: Bandwidths | None = None,
) -> Topology:
    """This machine, from /sys below ``root``, NVML and psutil.

    ``driver`` and ``processes`` stand in for the modules pynvml and psutil.
    """
    name = host or socket.gethostname()
    parts = (
        sysfs.read(name, root),
        nvml.read(name, driver or import_module("pynvml")),
        system.read(name, processes or import_module("psutil")),
    )
    return complete(merge(parts), tables or load())


def from_file(content: bytes, source: str, tables: Bandwidths | None = None) -> Topology:
    """The machine or machines that a file of another tool describes; ``source`` names it in messages.

    Raises DataError for what is no such file.
    """
    tables = tables or load()
    # By content, not by name: a byte order mark may stand first, and UTF-16 has a zero byte a letter.
    start = content[:_ENOUGH].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if not start.startswith(b"<"):
        return complete(smi.read(content, source), tables)
    if _HWLOC.search(start):
        return complete(hwloc.read(content, source, tables), tables)
    return complete(nccl_xml.read(content, source), tables)


def side_by_side(topologies: Sequence[Topology]) -> Topology:
    """Several topologies as one of different hosts; a name that is taken gets a number."""
    taken: set[str] = set()
    hosts: list[Host] = []
    for host in (host for topology in topologies for host in topology.hosts):
        name, number = host.name, 2
        while name in taken:
            name, number = f"{host.name}-{number}", number + 1
        taken.add(name)
        hosts.append(replace(host, name=name))
    findings = tuple(finding for topology in topologies for finding in topology.findings)
    return Topology(tuple(hosts), findings, tuple(note for t in topologies for note in t.notes))


def merge(parts: Sequence[Topology]) -> Topology:
    """Partial topologies as one: hosts by name, records by what identifies them, earlier parts first."""
    hosts: dict[str, Host] = {}
    for host in (host for part in parts for host in part.hosts):
        hosts[host.name] = _merged(hosts[host.name], host) if host.name in hosts else host
    findings = tuple(finding for part in parts for finding in part.findings)
    return Topology(tuple(hosts.values()), findings, tuple(note for part in parts for note in part.notes))


def _merged(first: Host, second: Host) -> Host:
    return replace(
        _laid_over(first, second),
        numa=_joined(first.numa, second.numa, lambda node: node.index),
        pci=_joined(first.pci, second.pci, lambda device: device.bus_id),
        gpus=_joined(first.gpus, second.gpus, lambda gpu: gpu.bus_id),
        nics=_joined(first.nics, second.nics, lambda nic: nic.name),
        fabric=_joined(first.fabric, second.fabric, lambda link: (link.source, link.target, link.kind)),
    )


def _joined(
    first: Iterable[_Record], second: Iterable[_Record], key: Callable[[_Record], Hashable]
) -> tuple[_Record, ...]:
    found = {key(record): record for record in first}
    for record in second:
        before = found.get(key(record))
        found[key(record)] = record if before is None else _laid_over(before, record)
    return tuple(found.values())


def _laid_over(first: _Layer, second: _Layer) -> _Layer:
    """``first`` with what it does not say taken from ``second``."""
    taken: dict[str, Any] = {}
    for entry in fields(first):
        if entry.name in _NESTED or entry.name in ("method", "method_of"):
            continue
        value = getattr(second, entry.name)
        if getattr(first, entry.name) in (None, "", ()) and value not in (None, "", ()):
            taken[entry.name] = value
    if not taken:
        return first
    methods = {name: second.method_of.get(name, second.method) for name in taken}
    return replace(first, **taken, method_of={**first.method_of, **methods})
