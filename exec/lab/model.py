"""The model of an emulated cluster: its hosts, their rates, and the links between them.

The rate of a path is the lowest of four limits: the sender's, the receiver's, that of the directed pair, and
that of the trunks between their racks. None means no limit. The delay of a path is the sum of the delays of
its sender, its receiver and the trunks on its way. A packet may be lost at either host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.base import UsageError

__all__ = [
    "DEVICE",
    "LEAST_BYTES_PER_S",
    "LEAST_MTU_BYTES",
    "MOST_BYTES_PER_S",
    "MOST_DELAY_S",
    "MOST_HOSTS",
    "MOST_HOST_LETTERS",
    "MOST_MTU_BYTES",
    "MOST_NICS",
    "SUBNET",
    "Lab",
    "LabHost",
    "NicRate",
    "PairRate",
    "refuse_name",
]

# All labs use the same addresses, because their networks are isolated from each other.
SUBNET = "10.77.0.0/16"
# The last byte of an address is the number of its host, from 1.
MOST_HOSTS = 250
DEVICE = "eth0"
MOST_NICS = 8
# Limits of htb, the kernel's traffic shaper: a smaller rate rounds to zero when divided into shares, and a
# larger one overflows the burst size.
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 4e3, 1.25e12
# A path with such a delay each way looks dead to most programs.
MOST_DELAY_S = 10.0
# Every host accepts IPv4 packets of 576 bytes (RFC 791); Ethernet carries up to 1500.
LEAST_MTU_BYTES, MOST_MTU_BYTES = 576, 1500
# The kernel's limit for a host name.
MOST_HOST_LETTERS = 63
# A lab's name is part of names of namespaces and folders.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_HOST_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{MOST_HOST_LETTERS - 1}}}")


def refuse_name(name: str) -> None:
    """Raise UsageError unless ``name`` is a valid name of a lab."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "a lab's name: expected a letter or digit, then up to 31 letters, digits, - and _, "
            f"found {name[:80]!r}"
        )


@dataclass(frozen=True)
class LabHost:
    """One host: the number of its ranks, and the rate of each of its network interfaces each way.

    Packets are delayed by ``egress_delay_s`` and ``ingress_delay_s``; ``egress_loss`` and ``ingress_loss``
    are the shares that are lost. The host sends packets of up to ``mtu_bytes``.
    """

    name: str
    slots: int = 1
    egress_bytes_per_s: float | None = None
    ingress_bytes_per_s: float | None = None
    egress_delay_s: float = 0.0
    ingress_delay_s: float = 0.0
    egress_loss: float = 0.0
    ingress_loss: float = 0.0
    mtu_bytes: int = MOST_MTU_BYTES


@dataclass(frozen=True)
class NicRate:
    """The rate of one interface of a host, if it differs from the host's others."""

    host: str
    nic: int
    egress_bytes_per_s: float | None = None
    ingress_bytes_per_s: float | None = None


@dataclass(frozen=True)
class PairRate:
    """A limit on the rate from ``src`` to ``dst``, in addition to the hosts' own rates."""

    src: str
    dst: str
    bytes_per_s: float


@dataclass(frozen=True)
class Lab:
    """An emulated cluster: hosts on one switch, or in ``racks`` whose switches are joined by trunks.

    Each host has ``nics`` interfaces, which its ranks use in turn. A rack holds hosts ("gpu1"), or single
    interfaces of hosts ("gpu1/eth1"), as the switches of rails do. Each trunk adds ``trunk_delay_s`` each
    way.

    Raises UsageError for an invalid name of a lab or host.
    """

    name: str
    hosts: tuple[LabHost, ...]
    pairs: tuple[PairRate, ...] = ()
    racks: tuple[tuple[str, ...], ...] = ()
    trunk_bytes_per_s: float | None = None
    nics: int = 1
    nic_rates: tuple[NicRate, ...] = ()
    trunk_delay_s: float = 0.0

    def __post_init__(self) -> None:
        refuse_name(self.name)
        if not 1 <= self.nics <= MOST_NICS:
            raise UsageError(f"expected 1 to {MOST_NICS} NICs a host, found {self.nics}")
        if self.nics > 1 and self.pairs:
            raise UsageError("rates of pairs of hosts are for hosts with one NIC")
        for host in self.hosts:
            if not _HOST_NAME.fullmatch(host.name):
                raise UsageError(
                    f"expected a host name of up to {MOST_HOST_LETTERS} letters, found {host.name[:80]!r}"
                )

    @property
    def switch(self) -> str:
        """The namespace of the switches."""
        return f"ccctl.{self.name}"

    def namespace(self, host: str) -> str:
        """Return the namespace of ``host``; it is unique, because a lab's name has no dot."""
        return f"ccctl.{self.name}.{host}"

    def host(self, name: str) -> LabHost:
        """Return the host of that name; raises KeyError if there is none."""
        return self.hosts[self.number(name)]

    def number(self, name: str) -> int:
        """Return the position of the host of that name; raises KeyError if there is none."""
        for number, host in enumerate(self.hosts):
            if host.name == name:
                return number
        raise KeyError(name)

    def address(self, name: str, nic: int = 0) -> str:
        """Return the address of an interface of a host within the lab."""
        return f"10.77.{nic}.{self.number(name) + 1}"

    def devices(self) -> tuple[str, ...]:
        """Return the interfaces of each host."""
        return tuple(f"eth{nic}" for nic in range(self.nics))

    def nic_rate(self, name: str, nic: int) -> NicRate:
        """Return the rates of an interface of a host each way."""
        override = next((rate for rate in self.nic_rates if (rate.host, rate.nic) == (name, nic)), None)
        host = self.host(name)
        return override or NicRate(name, nic, host.egress_bytes_per_s, host.ingress_bytes_per_s)

    def rack(self, name: str, nic: int = 0) -> int:
        """Return the number of the rack of a host's interface; 0 if it is in none."""
        either = {name, f"{name}/eth{nic}"}
        return next((number for number, rack in enumerate(self.racks) if either.intersection(rack)), 0)

    def rate_bytes_per_s(self, src: str, dst: str) -> float | None:
        """Return the rate, headers included, of one flow on an idle network between hosts' first NICs."""
        limits = [self.nic_rate(src, 0).egress_bytes_per_s, self.nic_rate(dst, 0).ingress_bytes_per_s]
        limits += [pair.bytes_per_s for pair in self.pairs if (pair.src, pair.dst) == (src, dst)]
        if self.rack(src) != self.rack(dst):
            limits.append(self.trunk_bytes_per_s)
        return min((limit for limit in limits if limit is not None), default=None)

    def slots(self) -> str:
        """Return every host with its slots, as a host list."""
        return ",".join(f"{host.name}:{host.slots}" for host in self.hosts)
