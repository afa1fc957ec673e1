"""Utilization of links and shared ports as text: by class, for the busiest by name, and over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, percent, print_table

if TYPE_CHECKING:
    from probes.base import Floats, Indices, Mask
    from synth.network import Network

__all__ = ["draw", "over_time", "port_busy", "summary"]

_BUSIEST = 10


def draw(network: Network, link_busy: Floats) -> None:
    """Print the busy share of each class, and the ten busiest links or ports."""
    told = summary(network, link_busy)
    classes = [{"name": name.replace("_", " "), **one} for name, one in told.items() if name != "busiest"]
    for columns, rows in ((_CLASS, classes), (_BUSY, told["busiest"])):
        console.data("")
        print_table(columns, rows)


_CLASS = (
    Column("busy", "name"),
    Column("count", "count"),
    Column("never used", "idle"),
    *(Column(share, share, percent) for share in ("min", "mean", "max")),
)
_BUSY = (
    Column("busiest", "name"),
    Column("busy", "busy", percent),
    Column("ports", lambda one: one["ports"] or None),
)


def summary(network: Network, link_busy: Floats) -> dict[str, Any]:
    """Return count, idle count and min, mean and max busy share of each class, and the busiest."""
    ports = port_busy(network, link_busy)
    told: dict[str, Any] = {name: _range(link_busy[chosen]) for name, chosen in classes(network)}
    if len(ports):
        told["ports"] = _range(ports)
    return {**told, "busiest": _busiest(network, link_busy, ports)}


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


def over_time(start_s: Floats, end_s: Floats, time_s: float, slots: int, of: int) -> Floats:
    """Return the mean share of ``of`` resources that is held, in each of ``slots`` equal parts of the time.

    Each slice holds one resource from its ``start_s`` to its ``end_s``. The work is O((slices + slots) · log
    slices).
    """
    import numpy as np

    edges = np.linspace(0.0, time_s, slots + 1)
    held_s = _passed(start_s, edges) - _passed(end_s, edges)
    return np.asarray(np.diff(held_s) / (time_s / slots * max(of, 1)))


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


def _busiest(network: Network, link_busy: Floats, ports: Floats) -> list[dict[str, Any]]:
    """Return the busiest links and ports; on a tie, links come first."""
    import numpy as np

    found = []
    for row in np.argsort(-np.concatenate((link_busy, ports)), kind="stable")[:_BUSIEST].tolist():
        if row < network.links:
            name = f"link {network.src[row]}→{network.dst[row]}"
            through = ", ".join(network.ports[port] for port in network.ports_of(row))
            found.append({"name": name, "busy": float(link_busy[row]), "ports": through})
        else:
            port = row - network.links
            found.append({"name": f"port {network.ports[port]}", "busy": float(ports[port]), "ports": ""})
    return found
