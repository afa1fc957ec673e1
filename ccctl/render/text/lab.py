"""A running lab as text: its hosts with their byte counters, and the rate of each path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccctl import console
from ccctl.render import Column, figures, print_table
from exec.lab import MOST_MTU_BYTES, Lab
from probes.base import format_rate

__all__ = ["draw", "summary"]

Traffic = Mapping[str, tuple[int, int]]


def summary(lab: Lab, traffic: Traffic, cables: Mapping[str, bool]) -> dict[str, Any]:
    """Return the lab as one object; a rate of None means unlimited."""
    names = [host.name for host in lab.hosts]
    return {
        "name": lab.name,
        "hosts": [
            figures(host, _FIGURES)
            | {"address": lab.address(host.name), "cable": cables[host.name]}
            | dict(zip(("sent_bytes", "received_bytes"), traffic[host.name], strict=True))
            for host in lab.hosts
        ],
        "paths": [
            {"src": src, "dst": dst, "bytes_per_s": lab.rate_bytes_per_s(src, dst)}
            for src in names
            for dst in names
            if src != dst
        ],
    }


# Fields of a host in the object of --json.
_FIGURES = (
    "name slots egress_bytes_per_s ingress_bytes_per_s egress_delay_s ingress_delay_s egress_loss "
    "ingress_loss mtu_bytes"
)


def draw(result: dict[str, Any]) -> None:
    """Print the object of --json: a row for each host, then a row of rates for each sender."""
    hosts = result["hosts"]
    faults = [column for column in _FAULTS if any(column.cell(host) != "-" for host in hosts)]
    print_table((*_HOSTS, *faults), hosts)
    console.data("")
    names = [host["name"] for host in hosts]
    rates = {(path["src"], path["dst"]): _rate(path["bytes_per_s"]) for path in result["paths"]}
    paths = [[src, *(rates.get((src, dst), "-") for dst in names)] for src in names]
    console.table(("rate of one flow, from", *(f"to {name}" for name in names)), paths)


def _duration(seconds: float) -> str:
    return f"{1e3 * seconds:g}ms"


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _rate(bytes_per_s: float | None) -> str:
    return "unlimited" if bytes_per_s is None else format_rate(bytes_per_s)


_HOSTS = (
    Column("host", "name"),
    Column("slots", "slots"),
    Column("address", "address"),
    Column("egress", lambda host: _rate(host["egress_bytes_per_s"])),
    Column("ingress", lambda host: _rate(host["ingress_bytes_per_s"])),
    Column("cable", lambda host: "up" if host["cable"] else "pulled"),
    Column("sent (B)", "sent_bytes", "{}"),
    Column("received (B)", "received_bytes", "{}"),
)
# Columns that few labs need, left out if no host has a value.
_FAULTS = (
    Column("delay out", lambda host: host["egress_delay_s"] or None, _duration),
    Column("delay in", lambda host: host["ingress_delay_s"] or None, _duration),
    Column("loss out", lambda host: host["egress_loss"] or None, _percent),
    Column("loss in", lambda host: host["ingress_loss"] or None, _percent),
    Column("MTU", lambda host: None if host["mtu_bytes"] == MOST_MTU_BYTES else host["mtu_bytes"], "{}"),
)
