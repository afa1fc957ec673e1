"""Further output of ``detect``: explained paths, differences, and files for NCCL."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.artifacts import write_output
from ccctl.errors import FoundProblem, UsageError
from ccctl.render import figures
from exec.launcher import fold
from probes.base import plural

if TYPE_CHECKING:
    from probes.diff import Comparison
    from probes.paths import Explanation
    from probes.topology import Topology

__all__ = ["DetectAnswers", "answer", "export", "judge", "show", "summary"]

_LOST = ("host-missing", "host-failed")
_FORMATS = ("nccl-xml",)


@dataclass(frozen=True)
class DetectAnswers:
    """The explained path between two devices and the differences from ``diff``; None if not requested."""

    why: Explanation | None = None
    comparison: Comparison | None = None
    diff: str = ""


def answer(found: Topology, why: tuple[str, str] | None, diff: str | None) -> DetectAnswers:
    """Return both answers; raises UsageError for unknown devices."""
    explanation, comparison = None, None
    if why is not None:
        from probes.paths import explain, load, pair_named

        explanation = explain(*pair_named(found, *why), load())
    if diff is not None:
        from ccctl.arguments import read_topologies
        from probes.diff import compare

        comparison = compare(read_topologies([diff]), found)
    return DetectAnswers(explanation, comparison, diff or "")


def show(found: Topology, answers: DetectAnswers, *, drawn: bool) -> None:
    """Print the answers, or the topology without questions; only its findings unless ``drawn``."""
    from ccctl.render.text import differences, remarks, topology
    from ccctl.summaries import explanation

    if not drawn:
        remarks.remarks(found)
        return
    if answers.why is not None:
        explanation.draw(answers.why)
    if answers.comparison is not None:
        with console.spoken(bool(answers.comparison.differences)):
            differences.draw(answers.comparison, found, answers.diff)
    if answers.why is None and answers.comparison is None:
        topology.draw(found)


def judge(found: Topology, answers: DetectAnswers) -> None:
    """Raise FoundProblem if hosts are missing or something differs."""
    lost = [finding.where for finding in found.findings if finding.what in _LOST]
    if lost:
        raise FoundProblem(
            f"{fold(lost)} gave nothing; {len(found.hosts)} of {len(lost) + len(found.hosts)} hosts did"
        )
    if answers.comparison is not None and answers.comparison.differences:
        count = len(answers.comparison.differences)
        raise FoundProblem(f"{plural(count, 'difference')} from {answers.diff}")


def summary(found: Topology, answers: DetectAnswers) -> dict[str, Any]:
    """Return the counts of a topology and the answers, as ``--json`` prints them."""
    from probes.paths import expected_gbs, load

    hosts = found.hosts
    more: dict[str, Any] = {} if answers.comparison is None else dataclasses.asdict(answers.comparison)
    notes = [*found.notes, *more.pop("notes", ())]
    if answers.why is not None:
        more["why"] = dataclasses.asdict(answers.why)
    return {
        "hosts": len(hosts),
        "host_names": fold(host.name for host in hosts),
        "gpus": sum(len(host.usable_gpus) for host in hosts),
        "nics": sum(len(host.physical_nics) for host in hosts),
        "nvlinks": sum(host.fabric_links() for host in hosts),
        "findings": [figures(f, "what where text") for f in found.findings],
        "notes": notes,
        "numa_nodes": sum(len(host.numa) for host in hosts),
        "pci_devices": sum(len(host.pci) for host in hosts),
        "software_nics": sum(len(host.nics) - len(host.physical_nics) for host in hosts),
        "expected_gbs": {host.name: expected_gbs(host, load()) for host in hosts},
        "probed": {
            host.name: [dataclasses.asdict(one) for one in host.probed] for host in hosts if host.probed
        },
        "ranks_are": "gpus" if any(host.usable_gpus for host in hosts) else "processes",
        **more,
    }


def export(found: Topology, wanted: tuple[str, str]) -> None:
    """Write one host in the format of another tool; raises UsageError or DataError if impossible."""
    from probes.diff import fold_hosts
    from probes.nccl import export as as_nccl

    kind, path = wanted
    if kind not in _FORMATS:
        raise UsageError(f"--export {kind}: unknown format; known is {', '.join(_FORMATS)}")
    groups = fold_hosts(found)
    if len(groups) != 1:
        raise UsageError(
            f"NCCL's file describes one host, and these {len(found.hosts)} are of {len(groups)} kinds",
            hint="Export each kind apart: ccctl detect --hosts HOST --export nccl-xml FILE.",
        )
    done = as_nccl(groups[0].hosts[0])
    for warning in done.warnings:
        console.warn(warning)
    write_output(path, done.content)
    if path == "-":
        return
    same = f", the same for all of {fold(groups[0].names)}" if len(found.hosts) > 1 else ""
    console.note(f"{path}: {done.nodes} nodes{same}; use it as NCCL_TOPO_FILE={path}")
