"""Explanation of a path between two devices: its parts, its expected bandwidth, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass

from probes.paths.bandwidth import Bandwidths
from probes.paths.expected import Expected, Way
from probes.paths.lookup import Named
from probes.paths.nic_affinity import NEAR_TO_FAR
from probes.paths.path_type import MEANING, PathType
from probes.paths.reasons import reasons
from probes.paths.route import Step, steps_between
from probes.topology import Gpu, Nic

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """A path from ``a`` to ``b``: its type and meaning, GB/s and limit, parts, and reasons."""

    a: str
    b: str
    path: PathType
    meaning: str
    gbs: float | None
    limit: str
    steps: tuple[Step, ...]
    reasons: tuple[str, ...]


def explain(a: Named, b: Named, tables: Bandwidths) -> Explanation:
    """Explain the nearest path between two devices of a cluster."""
    if a.host.name != b.host.name:
        return _between_hosts(a, b, tables)
    way = Expected(a.host, tables).between(a.device, b.device)
    steps = steps_between(a.host, a.device, b.device, way.path, tables)
    return _explanation(a, b, way, steps, reasons(a.host, a.device, b.device, way.path, tables))


def _explanation(a: Named, b: Named, way: Way, steps: list[Step], why: list[str]) -> Explanation:
    names = [f"{one.host.name}:{one.label}" for one in (a, b)]
    return Explanation(
        names[0], names[1], way.path, MEANING[way.path], way.gbs, way.limit, tuple(steps), tuple(why)
    )


def _between_hosts(a: Named, b: Named, tables: Bandwidths) -> Explanation:
    if _one_fabric(a.device, b.device):
        fabric = Step("NVLink fabric", getattr(a.device, "fabric_cluster", ""))
        ends = [Step(one.label, f"{one.host.name} {one.bus_id}") for one in (a, b)]
        return _explanation(a, b, Way("NVL", None), [ends[0], fabric, ends[1]], [])
    steps: list[Step] = []
    why = ["they are in different hosts" + _no_fabric(a.device, b.device)]
    known: list[tuple[float, str]] = []
    for end, back in ((a, False), (b, True)):
        nic = _nearest(end, tables)
        if nic is None:
            why.append(f"{end.host.name} has no network port that is up")
            continue
        part = explain(end, Named(end.host, nic), tables)
        steps += [*reversed(part.steps)] if back else [*part.steps, Step("network")]
        why += part.reasons
        known += [(part.gbs, f"{part.limit} in {end.host.name}")] if part.gbs is not None else []
        if isinstance(end.device, Nic) and nic.speed_mbit:
            known.append((nic.speed_mbit / 8000, f"the speed of {end.host.name}:{nic.name}"))
    gbs, limit = min(known, default=(None, ""), key=lambda one: one[0] or 0)
    return _explanation(a, b, Way("NET", gbs, limit), steps, list(dict.fromkeys(why)))


def _one_fabric(a: Gpu | Nic, b: Gpu | Nic) -> bool:
    if not isinstance(a, Gpu) or not isinstance(b, Gpu) or not a.fabric_cluster.strip("0-"):
        return False
    same = (a.fabric_cluster, a.fabric_clique) == (b.fabric_cluster, b.fabric_clique)
    return same and a.fabric_state == b.fabric_state == "completed"


def _no_fabric(a: Gpu | Nic, b: Gpu | Nic) -> str:
    if not isinstance(a, Gpu) or not isinstance(b, Gpu):
        return ""
    if a.fabric_cluster and b.fabric_cluster:
        return ", in different NVLink fabrics or cliques, or one has not joined"
    return " without an NVLink fabric across them"


def _nearest(end: Named, tables: Bandwidths) -> Nic | None:
    """Return the port by which this device sends out of its host: the nearest, then the fastest."""
    if isinstance(end.device, Nic):
        return end.device
    expected = Expected(end.host, tables)
    ports = [nic for nic in end.host.physical_nics if nic.state not in ("down", "disabled")]
    ways = {nic.name: expected.between(end.device, nic) for nic in ports}
    return min(
        ports,
        key=lambda nic: (NEAR_TO_FAR.index(ways[nic.name].path), -(ways[nic.name].gbs or 0)),
        default=None,
    )
