"""The values of a localization: the plan of the fabric, what was bought, and the faults that were found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["Bought", "FabricPlan", "Fault", "FaultKind", "joined"]

FaultKind = Literal[
    "egress",
    "ingress",
    "host",
    "pair",
    "one_way_pair",
    "trunk",
    "fabric",
    "latency",
    "loss",
    "flapping",
    "cpu",
    "miswired",
    "inside",
]


@dataclass(frozen=True)
class FabricPlan:
    """The wires as planned: the hosts of each rack (leaf switch), and the rail of each NIC.

    ``rails`` maps (host, NIC) to the number of the rail that the NIC should be on; empty without rails.
    ``trunk_bytes_per_s`` is what each rack's uplinks carry each way, None if unknown.
    """

    racks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rails: dict[tuple[str, str], int] = field(default_factory=dict)
    trunk_bytes_per_s: float | None = None

    def rack_of(self, host: str) -> str:
        """Return the rack of a host; "" if the plan does not name it."""
        return next((rack for rack, hosts in self.racks.items() if host in hosts), "")


@dataclass(frozen=True)
class Bought:
    """The offer that was bought: rates in bytes/s each way, latency in seconds; None if not stated.

    ``nic_bytes_per_s`` is the rate of one NIC on the wire, ``nics`` the number of NICs per host. ``goodput``
    is the share of the wire rate that payload reaches on a sound link; headers and acknowledgements take the
    rest. ``inside_bytes_per_s`` is the rate from one rank to another of the same host. ``name`` is what the
    user typed.
    """

    name: str
    nic_bytes_per_s: float | None = None
    nics: int = 1
    goodput: float = 0.92
    latency_s: float | None = None
    inside_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Fault:
    """One fault. ``parts`` names what is at fault: a host, a NIC ("gpu1 mlx5_2"), a pair of hosts, a rack.

    ``level`` is the rate relative to the normal one (0.5: half), ``extra_s`` the latency above the normal
    one. ``rows`` are the rows of the profile's links that it explains. ``sure`` says how certain the fault
    is. ``evidence`` says which measurements show it, in sentences with numbers and normal values. A fault of
    single links is not ``confirmed`` if a disturbance of one moment would look the same.
    """

    kind: FaultKind
    parts: tuple[str, ...]
    level: float = 1.0
    extra_s: float = 0.0
    rows: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    sure: Literal["certain", "likely", "possible"] = "certain"
    confirmed: bool = True


def joined(one: Fault, other: Fault) -> Fault:
    """Return two faults of the same parts merged into one, such as both directions of a host."""
    kind, parts = one.kind, one.parts
    if "pair" in kind and (kind != other.kind or parts != other.parts):
        kind, parts = "pair", tuple(sorted(parts))
    elif kind in ("egress", "ingress") and kind != other.kind:
        kind = "host"
    return replace(
        one,
        kind=kind,
        parts=parts,
        level=min(one.level, other.level),
        extra_s=max(one.extra_s, other.extra_s),
        rows=tuple(sorted({*one.rows, *other.rows})),
        evidence=tuple(dict.fromkeys((*one.evidence, *other.evidence))),
        confirmed=one.confirmed or other.confirmed,
    )
