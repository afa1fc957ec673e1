"""A running lab as text: its hosts with their byte counters, and the rate of each path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccctl import console
from exec.lab import Lab
from probes.base import format_rate

__all__ = ["draw", "summary"]

Traffic = Mapping[str, tuple[int, int]]
_COLUMNS = ("host", "slots", "address", "egress", "ingress", "cable", "sent (B)", "received (B)")


def draw(lab: Lab, traffic: Traffic, cables: Mapping[str, bool]) -> None:
    """Print one row for each host, then one for each sender with the rate to each receiver."""
    rows = [
        (
            host.name,
            host.slots,
            lab.address(host.name),
            _rate(host.egress_bytes_per_s),
            _rate(host.ingress_bytes_per_s),
            "up" if cables[host.name] else "pulled",
            *traffic[host.name],
        )
        for host in lab.hosts
    ]
    console.table(_COLUMNS, rows)
    console.data("")
    names = [host.name for host in lab.hosts]
    paths = [[src, *(_path(lab, src, dst) for dst in names)] for src in names]
    console.table(("one flow from", *(f"to {name}" for name in names)), paths)


def summary(lab: Lab, traffic: Traffic, cables: Mapping[str, bool]) -> dict[str, Any]:
    """Return the lab as one object; a rate of None means unlimited."""
    names = [host.name for host in lab.hosts]
    return {
        "name": lab.name,
        "hosts": [
            {
                "name": host.name,
                "slots": host.slots,
                "address": lab.address(host.name),
                "egress_bytes_per_s": host.egress_bytes_per_s,
                "ingress_bytes_per_s": host.ingress_bytes_per_s,
                "cable": cables[host.name],
                "sent_bytes": traffic[host.name][0],
                "received_bytes": traffic[host.name][1],
            }
            for host in lab.hosts
        ],
        "paths": [
            {"src": src, "dst": dst, "bytes_per_s": lab.rate_bytes_per_s(src, dst)}
            for src in names
            for dst in names
            if src != dst
        ],
    }


def _path(lab: Lab, src: str, dst: str) -> str:
    return "-" if src == dst else _rate(lab.rate_bytes_per_s(src, dst))


def _rate(bytes_per_s: float | None) -> str:
    return "unlimited" if bytes_per_s is None else format_rate(bytes_per_s)
