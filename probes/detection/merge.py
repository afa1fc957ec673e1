"""Merging of topologies: each source gives a partial one, and earlier sources take precedence.

A fact that only a later source states is taken from it, and ``method_of`` records that. AdapCC (Sec. IV-A)
finds such facts by probing; the machine's own statements are cheaper and are read first.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from probes.base import DataError, distinct
from probes.detection import conflicts
from probes.detection.derive import complete
from probes.detection.identity import by_machine
from probes.files import MOST_TEXT_BYTES
from probes.hwloc import machine as hwloc
from probes.live import recorded, system
from probes.nccl import xml
from probes.nvml import gpus
from probes.paths import load
from probes.smi import matrix as smi, query, rocm
from probes.sysfs import kfd, machine as sysfs
from probes.topology import FabricLink, Finding, Gpu, Host, Matrix, Nic, NumaNode, PciDevice, Topology

__all__ = ["combined", "from_file", "live", "look", "merge", "read_file", "read_recording", "side_by_side"]

_Record = TypeVar("_Record", NumaNode, PciDevice, Gpu, Nic, FabricLink, Matrix)
_Layer = TypeVar("_Layer", Host, NumaNode, PciDevice, Gpu, Nic, FabricLink)
# The bytes in which the document type or root element of an XML file is sought. hwloc and nvidia-smi write it
# within the first 100; the rest is room for comments and for UTF-16.
_ENOUGH = 4096
_HWLOC = re.compile(rb"<!DOCTYPE\s+topology\b|<topology\b")
_QUERY = re.compile(rb"<!DOCTYPE\s+nvidia_smi_log\b|<nvidia_smi_log\b")
_NESTED = {"numa", "pci", "gpus", "nics", "fabric", "matrices"}
_UNSAID: tuple[object, ...] = (None, "", (), {})


def live(host: str = "", *, root: Path = Path("/"), driver: Any = None, processes: Any = None) -> Topology:
    """Return the whole topology of this machine: the result of ``look``, completed."""
    return complete(look(host, root=root, driver=driver, processes=processes), load())


def look(host: str = "", *, root: Path = Path("/"), driver: Any = None, processes: Any = None) -> Topology:
    """Read this machine from /sys below ``root``, NVML and psutil; disagreements become findings.

    ``driver`` and ``processes`` replace the modules pynvml and psutil.
    """
    name = host or socket.gethostname()
    return _laid_together(
        (
            sysfs.read(name, root),
            kfd.read(name, root),
            gpus.read(name, driver or import_module("pynvml")),
            system.read(name, processes or import_module("psutil")),
        )
    )


def from_file(content: bytes, source: str) -> Topology:
    """Read the machines that another tool's file describes, and complete the topology.

    ``source`` names the file in messages. Raises DataError for other files.
    """
    return complete(read_file(content, source), load())


def read_file(content: bytes, source: str) -> Topology:
    """Read only what a file states: XML of NCCL or hwloc, or output of nvidia-smi, rocm-smi or amd-smi."""
    if len(content) > MOST_TEXT_BYTES:
        raise DataError(source, [f"expected at most {MOST_TEXT_BYTES >> 20} MiB, found {len(content)} bytes"])
    # The file may begin with a byte order mark, and UTF-16 has a zero byte per letter.
    start = content[:_ENOUGH].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if not start.startswith(b"<") and content.strip():
        return rocm.read(content, source) if rocm.is_rocm(content) else smi.read(content, source)
    if _QUERY.search(start):
        return query.read(content, source)
    if _HWLOC.search(start):
        return hwloc.read(content, source, load())
    return xml.read(content, source)


def read_recording(folder: Path) -> Topology:
    """Read the machine that ``ccctl detect --record`` recorded in ``folder``."""
    return _laid_together(recorded.read(folder))


def combined(parts: Sequence[Topology]) -> Topology:
    """Combine several descriptions: descriptions of one machine are merged, other machines are added.

    A disagreement about one machine is a finding, and the earlier description takes precedence.
    """
    machines, notes = by_machine(parts)
    found = side_by_side([_laid_together(machine.parts) for machine in machines])
    return complete(replace(found, notes=(*notes, *found.notes)), load())


def _laid_together(parts: Sequence[Topology]) -> Topology:
    merged = merge(parts)
    stated = [finding for host in merged.hosts for finding in conflicts.with_stated(host)]
    return replace(merged, findings=(*merged.findings, *conflicts.between(parts), *stated))


def side_by_side(topologies: Sequence[Topology]) -> Topology:
    """Join several topologies as different hosts; a repeated name gets a number."""
    free = iter(distinct(host.name for topology in topologies for host in topology.hosts))
    hosts: list[Host] = []
    findings: list[Finding] = []
    for topology in topologies:
        own = [replace(host, name=next(free)) for host in topology.hosts]
        names = {host.name: one.name for host, one in zip(topology.hosts, own, strict=True)}
        hosts += own
        findings += [_elsewhere(finding, names) for finding in topology.findings]
    return Topology(tuple(hosts), tuple(findings), tuple(note for t in topologies for note in t.notes))


def _elsewhere(finding: Finding, names: dict[str, str]) -> Finding:
    host, slash, device = finding.where.partition("/")
    return replace(finding, where=f"{names.get(host, host)}{slash}{device}")


def merge(parts: Sequence[Topology]) -> Topology:
    """Merge partial topologies: hosts by name, records by identity, earlier parts first."""
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
        fabric=_fabric(first.fabric, second.fabric),
        matrices=_joined(first.matrices, second.matrices, lambda matrix: (matrix.what, matrix.method)),
    )


def _fabric(first: tuple[FabricLink, ...], second: tuple[FabricLink, ...]) -> tuple[FabricLink, ...]:
    """Merge links: a GPU's links of one kind come from the first source that has any.

    Only some sources name the switch at the other end, so the same link can look different in two sources and
    would count twice. A later source only adds facts to links that both know.
    """
    known = {(link.source, link.kind) for link in first}
    places = {_ends(link) for link in first}
    other = tuple(link for link in second if (link.source, link.kind) not in known or _ends(link) in places)
    return _joined(first, other, _ends)


def _ends(link: FabricLink) -> Hashable:
    return link.source, link.target, link.kind, link.state == "down"


def _joined(
    first: Iterable[_Record], second: Iterable[_Record], key: Callable[[_Record], Hashable]
) -> tuple[_Record, ...]:
    found = {key(record): record for record in first}
    for record in second:
        before = found.get(key(record))
        if before is None:
            found[key(record)] = record
        elif not isinstance(before, Matrix) and not isinstance(record, Matrix):
            found[key(record)] = _laid_over(before, record)
    return tuple(found.values())


def _laid_over(first: _Layer, second: _Layer) -> _Layer:
    """Return ``first`` with its unknown fields taken from ``second``."""
    taken: dict[str, Any] = {}
    for entry in fields(first):
        # The lists of a host are merged elsewhere. In other records the same name may be a fact: ``numa`` is
        # the node of a device.
        if entry.name in ("method", "method_of") or (isinstance(first, Host) and entry.name in _NESTED):
            continue
        value = getattr(second, entry.name)
        if getattr(first, entry.name) in _UNSAID and value not in _UNSAID:
            taken[entry.name] = value
    if not taken:
        return first
    methods = {name: second.method_of.get(name, second.method) for name in taken}
    return replace(first, **taken, method_of={**first.method_of, **methods})
