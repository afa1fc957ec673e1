"""Random losses of a lab's packets, by a program that the kernel runs for each (tc bpf).

A host's egress loss happens where its packets enter the switch, and its ingress loss where they enter the
host. A packet dropped on its way out of a host would not look lost: the sender's TCP would notice, and send
it again without counting a retransmission. The kernel hands on two segments as one packet; both are lost.
"""

from __future__ import annotations

from exec.lab.htb import port
from exec.lab.model import Lab

__all__ = ["commands", "losses"]

Device = tuple[str, str]
# Instructions of classic BPF (Linux, Documentation/networking/filter.rst): load a random number of 32 bits;
# if it is at least the threshold, skip one; drop the packet; let it pass. The results are actions of
# linux/pkt_cls.h: TC_ACT_SHOT is 2, TC_ACT_UNSPEC is -1.
_PROGRAM = "4,32 0 0 4294963256,53 1 0 {threshold},6 0 0 2,6 0 0 4294967295"
_RANDOM_NUMBERS = 1 << 32


def losses(lab: Lab) -> dict[Device, float]:
    """Return the share of the arriving packets that each interface loses, where there is any."""
    made: dict[Device, float] = {}
    for number, host in enumerate(lab.hosts):
        for nic, device in enumerate(lab.devices()):
            made[lab.switch, port(number, nic)] = host.egress_loss
            made[lab.namespace(host.name), device] = host.ingress_loss
    return {device: share for device, share in made.items() if share}


def commands(device: str, before: float, after: float) -> list[str]:
    """Return the lines for ``tc -batch`` that change the loss of one interface from ``before`` to ``after``.

    Only IPv4 packets are lost, so hosts keep knowing each other's addresses on the link.
    """
    if before == after:
        return []
    if not after:
        return [f"qdisc del dev {device} clsact"]
    threshold = min(round(after * _RANDOM_NUMBERS), _RANDOM_NUMBERS - 1)
    program = f"bpf direct-action bytecode '{_PROGRAM.format(threshold=threshold)}'"
    verb, first = ("replace", []) if before else ("add", [f"qdisc add dev {device} clsact"])
    return [*first, f"filter {verb} dev {device} ingress protocol ip prio 1 handle 1 {program}"]
