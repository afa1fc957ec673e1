"""Findings and notes of a topology, printed on stderr; equal ones of many hosts once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from exec.launcher import fold
from probes.base import some

if TYPE_CHECKING:
    from probes.topology import Topology

__all__ = ["remarks"]

_MOST_NAMES = 6


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
