"""Rates of each interface of a lab, as classes of the kernel's token buckets (tc htb).

A host's interface limits its egress rate and its rates to single hosts. The host's port at the switch limits
its ingress rate. A `Class` describes a class of the kernel. From the classes before and after a change,
``commands`` makes lines for ``tc -batch`` that change a running lab without losing a packet.

A delay is a separate queue (tc netem) in front of the token buckets of the same interface. On kernels without
netem, `wires` makes delays.
"""

from __future__ import annotations

from dataclasses import dataclass

from exec.lab.model import Lab, LabHost

__all__ = ["Class", "Device", "commands", "delays", "port", "shapes", "uplink_ports"]

# Handle of the queue that delays; the token buckets have handle 1.
_DELAY = 2
# Minor numbers of classes: a host's total, its traffic without a pair's rate, its first pair.
_TOTAL, _OTHERS, _FIRST_PAIR = 1, 2, 0x10
# The burst of a rate is the data of ``_BURST_S``, at least ``_LEAST_BURST_BYTES``. It is small, because
# tokens collected while a link is idle are spent at once and make short messages look fast.
_LEAST_BURST_BYTES = 4 << 10
_BURST_S = 5e-4
# Packets that a delay holds at once, at most: 10 ms at 100 Gbit/s in packets of 1500 bytes are 83,000.
_DELAYED_PACKETS = 100_000
# The quantum is one jumbo frame. The kernel would derive it from the rate, and warn if the result is small or
# large.
_QUANTUM_BYTES = 9000


@dataclass(frozen=True)
class Class:
    """One class of an interface: its guaranteed rate, its maximum rate, and its destination, if any."""

    minor: int
    parent: int
    sure_bytes_per_s: float
    most_bytes_per_s: float
    dst: str = ""


Device = tuple[str, str]


def port(number: int, nic: int = 0) -> str:
    """Return the switch port of an interface of host ``number``."""
    return f"p{number}n{nic}" if nic else f"p{number}"


def uplink_ports(rack: int) -> tuple[str, str]:
    """Return the two ends of a rack's trunk: at the rack's switch, and at the core switch."""
    return f"up{rack}", f"down{rack}"


def shapes(lab: Lab) -> dict[Device, tuple[Class, ...]]:
    """Return the classes of every interface as {(namespace, interface): classes}; none without limits."""
    made: dict[Device, tuple[Class, ...]] = {}
    for number, host in enumerate(lab.hosts):
        for nic, device in enumerate(lab.devices()):
            rate = lab.nic_rate(host.name, nic)
            made[lab.namespace(host.name), device] = _egress(lab, host, rate.egress_bytes_per_s)
            made[lab.switch, port(number, nic)] = _whole(rate.ingress_bytes_per_s)
    for rack in range(len(lab.racks)):
        for end in uplink_ports(rack):
            made[lab.switch, end] = _whole(lab.trunk_bytes_per_s)
    return made


def delays(lab: Lab) -> dict[Device, float]:
    """Return the delay in seconds of every interface that has one."""
    made: dict[Device, float] = {}
    for number, host in enumerate(lab.hosts):
        for nic, device in enumerate(lab.devices()):
            made[lab.namespace(host.name), device] = host.egress_delay_s
            made[lab.switch, port(number, nic)] = host.ingress_delay_s
    for rack in range(len(lab.racks)):
        for end in uplink_ports(rack):
            made[lab.switch, end] = lab.trunk_delay_s
    return {device: delay_s for device, delay_s in made.items() if delay_s}


def commands(
    device: str,
    before: tuple[Class, ...],
    after: tuple[Class, ...],
    delay_s: tuple[float, float] = (0.0, 0.0),
) -> list[str]:
    """Return the lines for ``tc -batch`` that change one interface from ``before`` to ``after``.

    ``delay_s`` is the interface's delay before and after. If only rates or delays differ, they are changed in
    place. Otherwise the whole shape is replaced, and the packets queued in it are lost.
    """
    old_s, new_s = delay_s
    if _structure(before) == _structure(after) and bool(old_s) == bool(new_s):
        lines = [_delay_line("change", device, new_s)] if old_s != new_s else []
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        return lines + [_class_line("change", device, each) for each in changed]
    lines = [f"qdisc del dev {device} root"] if before or old_s else []
    if new_s:
        lines.append(_delay_line("add", device, new_s))
    if not after:
        return lines
    default = next((each.minor for each in reversed(after) if not each.dst), 0)
    place = f"parent {_DELAY}:1" if new_s else "root"
    lines.append(f"qdisc add dev {device} {place} handle 1: htb default {default:x}")
    for each in after:
        lines.append(_class_line("add", device, each))
        if each.dst:
            match = f"u32 match ip dst {each.dst}/32 flowid 1:{each.minor:x}"
            lines.append(f"filter add dev {device} protocol ip parent 1: prio 1 {match}")
    return lines


def _whole(bytes_per_s: float | None) -> tuple[Class, ...]:
    return () if bytes_per_s is None else (Class(_TOTAL, 0, bytes_per_s, bytes_per_s),)


def _egress(lab: Lab, host: LabHost, total: float | None) -> tuple[Class, ...]:
    pairs = [pair for pair in lab.pairs if pair.src == host.name]
    if total is None:
        return tuple(
            Class(_FIRST_PAIR + lab.number(p.dst), 0, p.bytes_per_s, p.bytes_per_s, lab.address(p.dst))
            for p in pairs
        )
    if not pairs:
        return _whole(total)
    # A class may always send its guaranteed rate. So guaranteed rates add up to at most the host's rate, and
    # classes borrow what others do not use.
    share = total / (len(pairs) + 1)
    leaves = [Class(_OTHERS, _TOTAL, share, total)]
    for pair in pairs:
        most = min(pair.bytes_per_s, total)
        minor = _FIRST_PAIR + lab.number(pair.dst)
        leaves.append(Class(minor, _TOTAL, min(share, most), most, lab.address(pair.dst)))
    return (Class(_TOTAL, 0, total, total), *leaves)


def _structure(classes: tuple[Class, ...]) -> list[tuple[int, int, str]]:
    return [(each.minor, each.parent, each.dst) for each in classes]


def _delay_line(verb: str, device: str, delay_s: float) -> str:
    delay = f"delay {round(delay_s * 1e6)}us limit {_DELAYED_PACKETS}"
    return f"qdisc {verb} dev {device} root handle {_DELAY}: netem {delay}"


def _class_line(verb: str, device: str, htb_class: Class) -> str:
    parent = f"1:{htb_class.parent:x}" if htb_class.parent else "1:"
    rates = [
        f"{word} {round(8 * rate)}bit {'c' if word == 'ceil' else ''}burst {_burst_bytes(rate)}"
        for word, rate in (("rate", htb_class.sure_bytes_per_s), ("ceil", htb_class.most_bytes_per_s))
    ]
    where = f"class {verb} dev {device} parent {parent} classid 1:{htb_class.minor:x}"
    return f"{where} htb {' '.join(rates)} quantum {_QUANTUM_BYTES}"


def _burst_bytes(rate: float) -> int:
    return max(_LEAST_BURST_BYTES, round(rate * _BURST_S))
