"""A declared topology held against a profile: what contradicts, what each error costs, what is corrected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.errors import FoundProblem
from probes.wording import plural

if TYPE_CHECKING:
    from probes.detection.declared import Reconciled
    from probes.detection.host_edits import Edit
    from probes.topology import Host, Topology
    from synth.nccl_graphs.planner import HostGraphs

__all__ = ["Judged", "draw", "held", "judge", "summary"]


@dataclass(frozen=True)
class Judged:
    """What was held against what, and the cost of each edit: rings of NCCL, GB/s before it and after.

    ``orders`` are, for each host whose GPUs were declared wrongly, GB/s of the rings that its declared
    topology leads to, as they run on the corrected one, and of those planned for that.
    """

    held: Reconciled
    declared: str
    profile: str
    costs: tuple[tuple[float, float] | None, ...]
    orders: tuple[tuple[str, float, float], ...]


def held(declared: str, profile: str) -> Judged:
    """Hold one file against the other; raises what reading them raises."""
    from ccctl.arguments.topologies import read_topologies
    from ccctl.artifacts import codec
    from probes.detection.declared import reconcile

    topology = read_topologies([declared])
    found = reconcile(topology, codec.read(profile, "profile").body)
    if not found.pairs:
        console.doubt(f"{profile}: nothing that it measured is between devices of {declared}")
    rings = _Rings()
    costs = tuple(_cost(edit, rings) for edit in found.edits)
    orders = []
    for before, after in zip(topology.hosts, found.topology.hosts, strict=True):
        if any(edit.host == before.name and edit.what != "nic" for edit in found.edits):
            orders.append((before.name, *_orders(before, after, rings)))
    return Judged(replace(found, topology=_with_findings(found)), declared, profile, costs, tuple(orders))


def _with_findings(found: Reconciled) -> Topology:
    return replace(found.topology, findings=(*found.topology.findings, *found.findings))


class _Rings:
    """The graphs of each host as it is between two edits, planned once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Host, HostGraphs]] = {}

    def of(self, host: Host) -> HostGraphs:
        from synth.nccl_graphs.planner import plan_graphs

        if id(host) not in self._found:
            self._found[id(host)] = host, plan_graphs(host, between_hosts=False)
        return self._found[id(host)][1]


def _cost(edit: Edit, rings: _Rings) -> tuple[float, float] | None:
    """What rings carry before an edit and after; of a NIC, its speed in GB/s."""
    if edit.what != "nic":
        return rings.of(edit.before).ring.total_gbs, rings.of(edit.after).ring.total_gbs
    hosts = (edit.before, edit.after)
    speeds = [next(nic.speed_mbit for nic in host.nics if nic.name == edit.where) for host in hosts]
    return (speeds[0] or 0) / 8000, (speeds[1] or 0) / 8000


def _orders(before: Host, after: Host, rings: _Rings) -> tuple[float, float]:
    from probes.paths.bandwidth import load
    from synth.nccl_graphs.capacities import capacities_of
    from synth.nccl_graphs.channels import total_gbs

    room = capacities_of(after, (), load())
    return total_gbs(room, rings.of(before).ring.channels), rings.of(after).ring.total_gbs


def draw(judged: Judged) -> None:
    """Each contradiction as a line, then what the corrected topology is good for."""
    found = judged.held
    for edit, cost in zip(found.edits, judged.costs, strict=True):
        told = "" if cost is None or cost[0] == cost[1] else f"; {_told(edit.what, cost)}"
        console.data(f"{edit.host}/{edit.where}: {edit.text}{told}")
    for one in found.unexplained:
        console.data(f"{one.where}: {one.text}")
    for host, wrong, right in judged.orders:
        console.data(
            f"{host}: rings in the order for what was declared carry {wrong:.1f} GB/s, in the order for what "
            f"was measured {right:.1f}: {right / wrong:.2f}x"
        )
    if not found.findings:
        console.data(f"{judged.declared}: nothing contradicts it in {plural(found.pairs, 'measured pair')}")


def _told(what: str, cost: tuple[float, float]) -> str:
    if what == "nic":
        return f"what goes by it takes {cost[0] / cost[1]:.2f} times as long as declared"
    return f"NCCL's rings carry {cost[1]:.1f} GB/s instead of {cost[0]:.1f}"


def summary(judged: Judged) -> dict[str, Any]:
    """What ``--json`` adds."""
    return {
        "declared": judged.declared,
        "profile": judged.profile,
        "pairs": judged.held.pairs,
        "edits": [
            {
                "what": edit.what,
                "host": edit.host,
                "where": edit.where,
                "text": edit.text,
                "gbs_as_declared": None if cost is None else cost[0],
                "gbs_as_measured": None if cost is None else cost[1],
            }
            for edit, cost in zip(judged.held.edits, judged.costs, strict=True)
        ],
        "unexplained": [{"where": one.where, "text": one.text} for one in judged.held.unexplained],
        "orders": [
            {"host": host, "order_as_declared_gbs": wrong, "order_as_measured_gbs": right}
            for host, wrong, right in judged.orders
        ],
    }


def judge(judged: Judged) -> None:
    """Raise FoundProblem where something contradicts."""
    if count := len(judged.held.findings):
        raise FoundProblem(f"{plural(count, 'contradiction')} between {judged.declared} and {judged.profile}")
