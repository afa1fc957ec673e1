"""Random packet loss in a lab, by a BPF program that the kernel runs for each packet (tc bpf).

A host's egress loss is applied where its packets enter the switch, and its ingress loss where packets enter
the host. If a packet were dropped on its way out of a host, the sender's TCP would notice, and send it again
without counting a retransmission. If the kernel passes on two segments as one packet, they are dropped or
kept together.
"""

from __future__ import annotations

from exec.lab.htb import Device, port
from exec.lab.model import Lab

__all__ = ["commands", "losses"]

# Instructions of classic BPF (Linux, Documentation/networking/filter.rst): load a random number of 32 bits;
# if it is at least the threshold, skip one; drop the packet; let it pass. 4294963256 is the address of the
# random number, SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h. The last two instructions return actions of
# linux/pkt_cls.h: TC_ACT_SHOT is 2, TC_ACT_UNSPEC is -1 (4294967295 in 32 bits).
_PROGRAM = "4,32 0 0 4294963256,53 1 0 {threshold},6 0 0 2,6 0 0 4294967295"
_RANDOM_NUMBERS = 1 << 32


def losses(lab: Lab) -> dict[Device, float]:
    """Return the share of arriving packets that each interface drops, if it drops any."""
    made: dict[Device, float] = {}
    for number, host in enumerate(lab.hosts):
        for nic, device in enumerate(lab.devices()):
            made[lab.switch, port(number, nic)] = host.egress_loss
            made[lab.namespace(host.name), device] = host.ingress_loss
    return {device: share for device, share in made.items() if share}


def commands(device: str, before: float, after: float) -> list[str]:
    """Return the lines for ``tc -batch`` that change the loss of one interface from ``before`` to ``after``.

    Only IPv4 packets are dropped, so ARP keeps working.
    """
    if before == after:
        return []
    if not after:
        return [f"qdisc del dev {device} clsact"]
    threshold = min(round(after * _RANDOM_NUMBERS), _RANDOM_NUMBERS - 1)
    program = f"bpf direct-action bytecode '{_PROGRAM.format(threshold=threshold)}'"
    verb, first = ("replace", []) if before else ("add", [f"qdisc add dev {device} clsact"])
    return [*first, f"filter {verb} dev {device} ingress protocol ip prio 1 handle 1 {program}"]
