"""The targets of NVLink and xGMI elements in NCCL's files: one record for each GPU and far end.

An element has the number of links to a target. The numbers of a GPU's elements usually add up, because each
element is another switch or peer. If the elements name the peers *behind* a switch, they all describe the
same links, and the largest number counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Literal

from probes.base import is_hidden
from probes.topology import FabricLink, Finding

__all__ = ["CPU_CLASS", "SWITCH_CLASS", "FarEnd", "links_of"]

SWITCH_CLASS, CPU_CLASS = "0x068000", "0x068001"


@dataclass(frozen=True)
class FarEnd:
    """One element: the GPU, the far end, the number of links; ``numa`` is the GPU's NUMA node.

    Only C2C elements have a rate per link, in GB/s.
    """

    source: str
    target: str
    kind: Literal["nvlink", "xgmi", "c2c"]
    count: int
    target_class: str
    numa: int
    gbs: float | None = None


def links_of(
    ends: Iterable[FarEnd], gpus: Container[str], method: str
) -> tuple[tuple[FabricLink, ...], list[Finding]]:
    """Return the links of one host's GPUs, in the order of the file, and findings about them.

    ``where`` of a finding is a bus id here; the caller prepends the host.
    """
    links: dict[tuple[str, str], FabricLink] = {}
    findings: dict[tuple[str, str], Finding] = {}
    for end in ends:
        target, target_kind, shared, doubt = _leads_to(end, gpus)
        if end.count < 1:
            doubt = ("no-links", f"{end.count} {end.kind} to {target}: expected a number ≥ 1, left out")
        if doubt:
            findings.setdefault((end.source, doubt[0]), Finding(doubt[0], end.source, doubt[1]))
        if end.count < 1:
            continue
        before = links.get((end.source, target))
        already = before.count if before else 0
        count = max(already, end.count) if shared else already + end.count
        links[end.source, target] = FabricLink(
            end.source, target, target_kind, end.kind, count, method, gbs=end.gbs
        )
    return tuple(links.values()), list(findings.values())


_Where = tuple[str, Literal["gpu", "switch", "cpu", "unknown"], bool, tuple[str, str] | None]


def _leads_to(end: FarEnd, gpus: Container[str]) -> _Where:
    """Return (target, its kind, whether elements share links, code and text of any finding)."""
    if end.kind == "c2c" or end.target_class.startswith(CPU_CLASS):
        return f"numa{end.numa}", "cpu", False, None
    if end.target == end.source:
        text = f"its {end.count} {end.kind} lead to itself: which GPU they reach is unknown"
        return "", "unknown", False, ("self-link", text)
    if is_hidden(end.target):
        return "nvswitch", "switch", False, None
    if end.target_class.startswith(SWITCH_CLASS):
        if end.target not in gpus:
            return end.target, "switch", False, None
        text = "names its peers as switches: taken as one set of links into a hidden NVSwitch"
        return "nvswitch", "switch", True, ("peer-as-switch", text)
    if end.target in gpus:
        return end.target, "gpu", False, None
    text = f"{end.kind} to {end.target}, which is not in the file"
    return end.target, "unknown", False, (f"absent-peer {end.target}", text)
