"""A declared topology compared with a profile: contradictions, their costs, and the correction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.errors import DataError, FoundProblem
from ccctl.render import figures
from probes.base import plural

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from probes.detection import Edit
    from probes.topology import Host, Topology
    from synth.nccl_graphs import HostGraphs

__all__ = ["DeclaredComparison", "compare"]


@dataclass(frozen=True)
class DeclaredComparison:
    """The corrected topology, and the object of ``--json``.

    ``summary`` has the GB/s before and after each correction: of NCCL's rings inside the host, or of the
    corrected NIC. For a host with corrections inside, ``summary`` also has the GB/s that two sets of rings
    carry on the corrected host: rings planned for the declared topology, and for the corrected one.
    """

    topology: Topology
    findings: int
    summary: dict[str, Any]

    def draw(self) -> None:
        """Print a line for each contradiction, then the gain of NCCL's rings from the correction."""
        result = self.summary
        for edit in result["edits"]:
            console.data(f"{edit['host']}/{edit['where']}: {edit['text']}{_cost(edit)}")
        for one in result["unexplained"]:
            console.data(f"{one['where']}: {one['text']}")
        for one in result["orders"]:
            wrong, right = one["order_as_declared_gbs"], one["order_as_measured_gbs"]
            console.data(
                f"{one['host']}: NCCL's rings planned for the declared topology carry {wrong:.1f} GB/s, "
                f"on the corrected one, planned for it {right:.1f} GB/s: {right / wrong:.2f}x"
            )
        if not self.findings:
            pairs = plural(result["pairs"], "measured pair")
            console.data(f"{result['declared']} agrees with all {pairs}")

    def judge(self, *, written: bool) -> None:
        """Raise FoundProblem on a contradiction; ``written`` says whether the correction was saved."""
        if self.findings:
            between = "{declared} and {profile}".format(**self.summary)
            raise FoundProblem(
                f"{plural(self.findings, 'contradiction')} between {between}",
                hint="" if written else "--export nccl-xml FILE writes it corrected, for NCCL_TOPO_FILE.",
            )


def _cost(edit: dict[str, Any]) -> str:
    before, after = edit["gbs_as_declared"], edit["gbs_as_measured"]
    if before == after:
        return ""
    if edit["what"] == "nic":
        return f"; messages through it take {before / after:.2f} times as long as declared"
    return f"; NCCL's rings carry {after:.1f} GB/s instead of {before:.1f}"


def compare(declared: str, topology: Topology, profile: Artifact) -> DeclaredComparison:
    """Compare the topology of a file with a profile; raises DataError if they have no link in common."""
    from probes.detection import reconcile

    found = reconcile(topology, profile.body)
    if not found.pairs:
        problem = f"nothing to compare: it has no measured link between devices of {declared}"
        raise DataError(profile.source, [problem])
    rings = _Rings()
    changed = {edit.host for edit in found.edits if edit.what != "nic"}
    hosts = zip(topology.hosts, found.topology.hosts, strict=True)
    result = {
        "declared": declared,
        "profile": profile.source,
        "pairs": found.pairs,
        "edits": [figures(edit, "what host where text") | rings.costs(edit) for edit in found.edits],
        "unexplained": [figures(one, "where text") for one in found.unexplained],
        "orders": [rings.orders(before, after) for before, after in hosts if before.name in changed],
    }
    remarked = replace(found.topology, findings=(*found.topology.findings, *found.findings))
    return DeclaredComparison(remarked, len(found.findings), result)


class _Rings:
    """A cache of NCCL's graphs by host, as the host after one edit is the host before the next."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Host, HostGraphs]] = {}

    def costs(self, edit: Edit) -> dict[str, float]:
        """Return GB/s before and after an edit, of NCCL's rings inside the host or of the NIC."""
        before, after = (
            (next(nic.speed_mbit for nic in host.nics if nic.name == edit.where) or 0) / 8000
            if edit.what == "nic"
            else self._graphs_of(host).ring.total_gbs
            for host in (edit.before, edit.after)
        )
        return {"gbs_as_declared": before, "gbs_as_measured": after}

    def orders(self, before: Host, after: Host) -> dict[str, Any]:
        """Return the GB/s on ``after`` of rings planned for ``before`` and for ``after``."""
        from probes.paths import load
        from synth.nccl_graphs import capacities_of, total_gbs

        room = capacities_of(after, (), load())
        return {
            "host": before.name,
            "order_as_declared_gbs": total_gbs(room, self._graphs_of(before).ring.channels),
            "order_as_measured_gbs": self._graphs_of(after).ring.total_gbs,
        }

    def _graphs_of(self, host: Host) -> HostGraphs:
        from synth.nccl_graphs import plan_graphs

        if id(host) not in self._found:
            self._found[id(host)] = host, plan_graphs(host, between_hosts=False)
        return self._found[id(host)][1]
