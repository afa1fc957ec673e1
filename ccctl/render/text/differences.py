"""A comparison as text: one difference a line, the most serious first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from exec.launcher import fold
from probes.base import plural

if TYPE_CHECKING:
    from probes.diff import Comparison
    from probes.topology import Topology

__all__ = ["draw"]


def draw(comparison: Comparison, found: Topology, other: str) -> None:
    """Print the differences, equal ones of several hosts once, or that there are none; then notes."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for one in comparison.differences:
        host, _, device = one.where.partition("/")
        lines.setdefault((one.severity, device, one.text), []).append(host)
    for (severity, device, text), hosts in lines.items():
        console.data(f"{severity:8}  {'/'.join(filter(None, (fold(hosts), device)))}  {text}")
    if not comparison.differences:
        gpus = sum(len(host.gpus) for host in found.hosts)
        nics = sum(len(host.physical_nics) for host in found.hosts)
        links = sum(host.fabric_links() for host in found.hosts)
        counted = ", ".join(map(plural, (gpus, nics, links), ("GPU", "NIC", "NVLink")))
        console.data(f"same as {other}: {counted}")
    for note in comparison.notes:
        console.note(f"note: {note}")
