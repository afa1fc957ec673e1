"""Sentences about a fault of links: what it is, and what to do about it."""

from __future__ import annotations

from probes.localization import Fault, FaultKind

__all__ = ["remedy_of", "told"]

_DOES: dict[FaultKind, str] = {
    "egress": "{part} sends at {level} of {normal}",
    "ingress": "{part} receives at {level} of {normal}",
    "host": "{part} sends and receives at {level} of {normal}",
    "pair": "the links between {part} carry {level} of {normal}, both ways",
    "one_way_pair": "the link {part} carries {level} of {normal}, one way only",
    "trunk": "the trunk of {part} carries {level} of {normal}",
    "fabric": "all links carry {level} of {normal}",
    "latency": "messages of {part} take {extra} longer than those of the others",
    "loss": "packets from {part} get lost",
    "flapping": "{part} is slow in some passes and normal in others: {level} of {normal} in the median",
    "cpu": "the processor of {part} works at {level} of {normal}",
    "miswired": "{part} is wired to another place than the plan says",
    "inside": "{part}: slower than the other links inside the host, {level} of {normal}",
}
_OF_TWO: dict[FaultKind, str] = {
    "latency": "messages between {part} take {extra} longer than those between others",
    "loss": "packets between {part} get lost",
    "flapping": "links between {part} are slow at some times: {level} of {normal} in the median",
    "inside": "links between {part} carry {level} of the normal rate inside hosts",
}
_REMEDY: dict[FaultKind, str] = {
    "egress": "check its NIC (ethtool: rate, errors; lspci -vv: LnkSta) and rate limits; then swap the cable",
    "ingress": "check its NIC (ethtool: rate, errors) and the switch's port; then swap the cable",
    "host": "check its NIC: negotiated rate, PCIe width, cable; then swap the port",
    "pair": "check the route between the two: a bad uplink or an uneven hash of flows (ECMP)",
    "one_way_pair": "check the route in this direction: a bad uplink or an uneven hash of flows (ECMP)",
    "trunk": "check the uplinks of this rack: one may be down, or negotiated a lower rate",
    "fabric": "check what all share: negotiated rate, MTU, PCIe generation, the switch's own limits",
    "latency": "check interrupt moderation, power saving states and the path of this host",
    "loss": "look at the error counters of both ends; clean or swap the cable and its transceiver",
    "flapping": "look at the link-down counters of both ends, and swap the transceiver",
    "cpu": "check governor, power limit, cooling, and other programs on the host",
    "miswired": "compare the cable with the plan and move it, or correct the plan",
    "inside": "check NUMA binding, PCIe width and peer-to-peer access of this device",
}


def told(fault: Fault, bought: bool) -> str:
    """Return one sentence about a fault; with ``bought``, levels are shares of what was bought."""
    two = len(fault.parts) == 2
    joint = " → " if fault.kind == "one_way_pair" else " and " if fault.kind in ("pair", *_OF_TWO) else ", "
    part = joint.join(fault.parts) or "the fabric"
    normal = "what was bought" if fault.kind == "fabric" and bought else "the normal rate"
    does = _OF_TWO.get(fault.kind, _DOES[fault.kind]) if two else _DOES[fault.kind]
    return does.format(
        part=part, level=f"{100 * fault.level:.0f} %", normal=normal, extra=_seconds(fault.extra_s)
    )


def remedy_of(fault: Fault) -> str:
    """Return what to do about a fault of this kind."""
    return _REMEDY[fault.kind]


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
