"""Sentences about a fault of links: the part at fault, its cost for a collective, and the remedy."""

from __future__ import annotations

from probes.localization.model import Fault, FaultKind

__all__ = ["cost_of", "describe", "remedy_of", "summary_of"]

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
# The sentences about two parts that differ from the sentences about one part.
_OF_TWO: dict[FaultKind, str] = {
    "trunk": "the trunk between {part} carries {level} of {normal}",
    "latency": "messages between {part} take {extra} longer than those between others",
    "loss": "packets between {part} get lost",
    "flapping": "links between {part} are slow in some passes and normal in others: {level} of {normal} in "
    "the median",
    "inside": "the link between {part} is slower than others inside the host: {level} of {normal}",
}
# Smaller costs round to 1.0 times.
_LEAST_COST = 1.05
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
    "inside": "measure again while nothing else runs there; then check NUMA binding, and the PCIe width and "
    "peer-to-peer access of a GPU",
}


def describe(fault: Fault, *, bought: bool = False) -> str:
    """Return one sentence about a fault; with ``bought``, a slow fabric is compared with what was bought."""
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


def cost_of(fault: Fault) -> str:
    """Return what a fault of rates costs a collective of large messages, "" for other faults.

    A ring passes through every host once, so it is as slow as the slowest host. A ring may avoid a single
    link.
    """
    times = 1 / fault.level
    if times < _LEAST_COST or fault.kind in ("latency", "miswired", "cpu"):
        return ""
    if fault.kind in ("egress", "ingress", "host", "fabric") and " " not in fault.parts[0]:
        return f"a ring all_reduce takes {times:.1f} times as long"
    if len(fault.parts) == 2 and fault.kind != "trunk":
        return f"a ring all_reduce through it takes {times:.1f} times as long, unless it avoids the link"
    return f"a ring all_reduce through it takes up to {times:.1f} times as long"


def summary_of(fault: Fault, *, bought: bool = False) -> str:
    """Return all that is known of a fault: the part, the evidence, the cost and the remedy."""
    unsure = {"certain": "", "likely": " (likely)", "possible": " (if it is not planned so)"}[fault.sure]
    facts = "; ".join(fault.evidence)
    found = f"{describe(fault, bought=bought)}{unsure}" + (f": {facts}" if facts else "")
    return "; ".join(filter(None, (found, cost_of(fault), remedy_of(fault))))


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"
