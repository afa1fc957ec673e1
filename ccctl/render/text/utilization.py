"""Utilization of links and shared ports as text: by class, for the busiest by name, and over time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, percent, print_table
from probes.base import plural, some

if TYPE_CHECKING:
    from probes.base import Floats, Indices, Mask
    from synth.network import Network
    from synth.networks import SymmetricNetwork

__all__ = ["busiest", "draw", "in_words", "is_behind_ports", "over_time", "port_busy", "summary"]

_BUSIEST = 10
_CORE = re.compile(r"port (?P<host>.+) core (?P<core>\d+)")
_NIC = re.compile(r"port (?P<owner>\S+) (?P<part>\S+) (?P<way>egress|ingress)")
_RANK = re.compile(r"port rank (?P<owner>\d+) (?P<part>switch )?(?P<way>egress|ingress)")
_WAYS = {"egress": "outgoing", "ingress": "incoming"}


def draw(network: Network, link_busy: Floats) -> None:
    """Print the busy share of each class, and the busiest links or ports; equally busy ones share a row.

    A link behind a port only stands for a pair of ranks, so its own share means nothing.
    """
    result = summary(network, link_busy)
    only_ports = is_behind_ports(network)
    classes = [
        {"name": name.replace("_", " "), **one}
        for name, one in result.items()
        if name != "busiest" and (name == "ports" or not only_ports)
    ]
    alike: dict[tuple[float, bool], list[str]] = {}
    for name, busy in busiest(network, link_busy):
        alike.setdefault((round(busy, 3), name.startswith("port ")), []).append(name)
    rows = [{"names": some(names, 1), "busy": busy} for (busy, _), names in alike.items()]
    for columns, shown in ((_CLASS, classes), (_BUSY, rows[:_BUSIEST])):
        console.data("")
        print_table(columns, shown)


def is_behind_ports(network: Network | SymmetricNetwork) -> bool:
    """Return whether each link has a port, as links through switches and NICs have."""
    import numpy as np

    return bool((np.diff(network.link_port_start) > 0).all()) and network.links > 0


def busiest(network: Network, link_busy: Floats) -> list[tuple[str, float]]:
    """Return (name, busy share) of all ports, and of all links that have no port; the busiest first."""
    import numpy as np

    ports = port_busy(network, link_busy)
    alone = np.flatnonzero(np.diff(network.link_port_start) == 0).tolist()
    found = [(f"link {network.src[at]}→{network.dst[at]}", float(link_busy[at])) for at in alone]
    found += [(f"port {name}", float(busy)) for name, busy in zip(network.ports, ports, strict=True)]
    return sorted(found, key=lambda one: -one[1])


def in_words(network: Network, names: Sequence[str]) -> tuple[str, bool]:
    """Return (links or ports in words, whether there are several).

    Ports of all ranks or hosts are counted by their owners. Of other links or ports, only the first is named.
    """
    for pattern, owners, what, whose in (
        (_RANK, network.ranks, "ports", "rank"),
        (_NIC, len(set(network.hosts)), "NIC ports", "host"),
    ):
        found = [one for one in (pattern.fullmatch(name) for name in names) if one]
        owners_named = {one["owner"] for one in found}
        if len(found) == len(names) > 1 and len(owners_named) == owners > 1:
            part = "switch ports" if pattern is _RANK and all(one["part"] for one in found) else what
            return f"the {part} of all {plural(owners, whose)}", True
    rest = f" and {len(names) - 1} about as busy" if len(names) > 1 else ""
    return f"{_one_in_words(names[0])}{rest}", len(names) > 1


def _one_in_words(name: str) -> str:
    if core := _CORE.fullmatch(name):
        return f"CPU core {core['core']} of {core['host']} (its copies)"
    if port := _RANK.fullmatch(name):
        return f"the {_WAYS[port['way']]} {port['part'] or ''}port of rank {port['owner']}"
    if port := _NIC.fullmatch(name):
        return (
            f"the {_WAYS[port['way']]} port of NIC {port['part'].removeprefix('nic')} of host {port['owner']}"
        )
    return name


_CLASS = (
    Column("busy", "name"),
    Column("count", "count"),
    Column("never used", "idle"),
    *(Column(share, share, percent) for share in ("min", "mean", "max")),
)
_BUSY = (
    Column("busiest", "names"),
    Column("busy", "busy", percent),
)


def summary(network: Network, link_busy: Floats) -> dict[str, Any]:
    """Return count, idle count and min, mean and max busy share of each class, and the busiest."""
    ports = port_busy(network, link_busy)
    result: dict[str, Any] = {name: _range(link_busy[chosen]) for name, chosen in classes(network)}
    if len(ports):
        result["ports"] = _range(ports)
    first = busiest(network, link_busy)[:_BUSIEST]
    return {**result, "busiest": [{"name": name, "busy": busy} for name, busy in first]}


def port_busy(network: Network, link_busy: Floats) -> Floats:
    """Return each port's busy share: the sum over the links that use it, as they take turns."""
    import numpy as np

    each = link_busy[network.port_user] * network.port_part
    return np.asarray(np.bincount(network.link_port, weights=each, minlength=len(network.ports)))


def classes(network: Network) -> Iterator[tuple[str, Mask]]:
    """Yield (name, mask) of links inside and between hosts; of all links if one kind is absent."""
    import numpy as np

    inside = network.within_host
    if inside.all() or not inside.any():
        yield "links", np.ones(network.links, dtype=bool)
    else:
        yield "links_in_hosts", inside
        yield "links_between_hosts", ~inside


def over_time(start_s: Floats, end_s: Floats, time_s: float, slots: int, count: int) -> Floats:
    """Return the mean share of ``count`` resources that is held, in each of ``slots`` equal spans of time.

    Each slice holds one resource from its ``start_s`` to its ``end_s``. The work is O((slices + slots) · log
    slices).
    """
    import numpy as np

    edges = np.linspace(0.0, time_s, slots + 1)
    held_s = _passed(start_s, edges) - _passed(end_s, edges)
    return np.asarray(np.diff(held_s) / (time_s / slots * max(count, 1)))


def _passed(moments_s: Floats, edges: Floats) -> Floats:
    """Return, for each edge, the sum of the seconds since each earlier moment."""
    import numpy as np

    ordered = np.sort(moments_s)
    before: Indices = np.searchsorted(ordered, edges)
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    return np.asarray(before * edges - total[before])


def _range(busy: Floats) -> dict[str, Any]:
    return {
        "count": len(busy),
        "idle": int((busy == 0).sum()),
        "min": float(busy.min()),
        "mean": float(busy.mean()),
        "max": float(busy.max()),
    }
