"""A declared topology compared with a profile: contradictions, their costs, and the correction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.errors import FoundProblem
from ccctl.render import figures
from probes.base import plural

if TYPE_CHECKING:
    from probes.detection import Edit, Reconciled
    from probes.topology import Host, Topology
    from synth.nccl_graphs import HostGraphs

__all__ = ["DeclaredComparison", "compare", "draw", "judge", "summary"]


@dataclass(frozen=True)
class DeclaredComparison:
    """The corrections of a topology file by a profile, and the effect of each in GB/s.

    ``costs`` are the GB/s before and after each edit, of NCCL's rings inside the host or of the corrected
    NIC. ``orders`` has a row for each host with wrongly declared GPUs. A row is the host's name, the GB/s of
    the rings planned for the declared topology on the corrected one, and the GB/s of the rings planned for
    the corrected one.
    """

    held: Reconciled
    declared: str
    profile: str
    costs: tuple[tuple[float, float], ...]
    orders: tuple[tuple[str, float, float], ...]


def compare(declared: str, profile: str) -> DeclaredComparison:
    """Compare a topology file with a profile file; raises the errors of reading them."""
    from ccctl.arguments import read_topologies
    from ccctl.artifacts import codec
    from probes.detection import reconcile

    topology = read_topologies([declared])
    found = reconcile(topology, codec.read(profile, "profile").body)
    if not found.pairs:
        console.doubt(f"{profile}: nothing to compare: it has no measured link between devices of {declared}")
    rings = _Rings()
    costs = tuple(_cost(edit, rings) for edit in found.edits)
    orders = []
    for before, after in zip(topology.hosts, found.topology.hosts, strict=True):
        if any(edit.host == before.name and edit.what != "nic" for edit in found.edits):
            orders.append((before.name, *_orders(before, after, rings)))
    return DeclaredComparison(
        replace(found, topology=_with_findings(found)), declared, profile, costs, tuple(orders)
    )


def _with_findings(found: Reconciled) -> Topology:
    return replace(found.topology, findings=(*found.topology.findings, *found.findings))


class _Rings:
    """A cache of NCCL's graphs by host, as the host after one edit is the host before the next."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Host, HostGraphs]] = {}

    def of(self, host: Host) -> HostGraphs:
        from synth.nccl_graphs import plan_graphs

        if id(host) not in self._found:
            self._found[id(host)] = host, plan_graphs(host, between_hosts=False)
        return self._found[id(host)][1]


def _cost(edit: Edit, rings: _Rings) -> tuple[float, float]:
    """Return GB/s before and after an edit, of NCCL's rings inside the host or of the NIC."""
    if edit.what != "nic":
        return rings.of(edit.before).ring.total_gbs, rings.of(edit.after).ring.total_gbs
    hosts = (edit.before, edit.after)
    speeds = [next(nic.speed_mbit for nic in host.nics if nic.name == edit.where) for host in hosts]
    return (speeds[0] or 0) / 8000, (speeds[1] or 0) / 8000


def _orders(before: Host, after: Host, rings: _Rings) -> tuple[float, float]:
    """Return GB/s on the host ``after`` of rings planned for ``before`` and of rings planned for it."""
    from probes.paths import load
    from synth.nccl_graphs import capacities_of, total_gbs

    room = capacities_of(after, (), load())
    return total_gbs(room, rings.of(before).ring.channels), rings.of(after).ring.total_gbs


def draw(comparison: DeclaredComparison) -> None:
    """Print a line for each contradiction, then the gain of NCCL's rings from the correction."""
    found = comparison.held
    for edit, cost in zip(found.edits, comparison.costs, strict=True):
        told = "" if cost[0] == cost[1] else f"; {_told(edit.what, cost)}"
        console.data(f"{edit.host}/{edit.where}: {edit.text}{told}")
    for one in found.unexplained:
        console.data(f"{one.where}: {one.text}")
    for host, wrong, right in comparison.orders:
        console.data(
            f"{host}: NCCL's rings planned for the declared topology carry {wrong:.1f} GB/s, planned for the "
            f"corrected one {right:.1f} GB/s: {right / wrong:.2f}x"
        )
    if not found.findings:
        console.data(f"{comparison.declared} agrees with all {plural(found.pairs, 'measured pair')}")


def _told(what: str, cost: tuple[float, float]) -> str:
    if what == "nic":
        return f"messages through it take {cost[0] / cost[1]:.2f} times as long as declared"
    return f"NCCL's rings carry {cost[1]:.1f} GB/s instead of {cost[0]:.1f}"


def summary(comparison: DeclaredComparison) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "declared": comparison.declared,
        "profile": comparison.profile,
        "pairs": comparison.held.pairs,
        "edits": [
            {
                **figures(edit, "what host where text"),
                "gbs_as_declared": cost[0],
                "gbs_as_measured": cost[1],
            }
            for edit, cost in zip(comparison.held.edits, comparison.costs, strict=True)
        ],
        "unexplained": [{"where": one.where, "text": one.text} for one in comparison.held.unexplained],
        "orders": [
            {"host": host, "order_as_declared_gbs": wrong, "order_as_measured_gbs": right}
            for host, wrong, right in comparison.orders
        ],
    }


def judge(comparison: DeclaredComparison, *, written: bool) -> None:
    """Raise FoundProblem on a contradiction; ``written`` says whether the correction was saved."""
    if count := len(comparison.held.findings):
        raise FoundProblem(
            f"{plural(count, 'contradiction')} between {comparison.declared} and {comparison.profile}",
            hint="" if written else "--export nccl-xml FILE writes it corrected, for NCCL_TOPO_FILE.",
        )
