"""A model of shared resources: which links share processes, cores and NICs, corrected by trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from probes.link_costs import SharedPort
from probes.sampling import Pair, Place

__all__ = ["Share", "is_of", "nic_name", "ports"]


@dataclass(frozen=True)
class Share:
    """A trial's verdict: ``pairs`` share a port of this name; without pairs, there is no such port.

    ``s_per_byte`` is the port's own time per byte if that is less than its fastest link's, else 0.
    """

    name: str
    pairs: tuple[Pair, ...] = ()
    s_per_byte: float = 0.0


def nic_name(host: str, way: str, group: int | str | None = None) -> str:
    """Return the port name of a host's NIC; ``group``, a name or number, distinguishes several."""
    return f"{host} NIC {way}" if group is None else f"{host} NIC {group} {way}"


def is_of(port: str, host: str, way: str) -> bool:
    """Return whether a port of this name is a NIC of ``host``, in this direction."""
    return port.startswith(f"{host} NIC ") and port.endswith(way)


def ports(pairs: Sequence[Pair], places: Sequence[Place], shares: Sequence[Share]) -> tuple[SharedPort, ...]:
    """Return the ports shared by rows of ``pairs``; ``shares`` replace assumed ports."""
    assumed = _assumed(pairs, places)
    own = {share.name: share.s_per_byte for share in shares}
    row_of = {pair: row for row, pair in enumerate(pairs)}
    tried = {
        (place.host, way)
        for place in places
        for way in ("egress", "ingress")
        if any(is_of(share.name, place.host, way) for share in shares)
    }
    for name, method in list(assumed):
        if method in ("host", "topology") and any(is_of(name, *one) for one in tried):
            del assumed[name, method]
    for share in shares:
        rows = [row_of[pair] for pair in share.pairs if pair in row_of]
        if rows:
            assumed[share.name, "measured"] = sorted(rows)
    return tuple(
        SharedPort(name, tuple(links), method, own.get(name, 0.0))
        for (name, method), links in assumed.items()
    )


def _assumed(pairs: Sequence[Pair], places: Sequence[Place]) -> dict[tuple[str, str], list[int]]:
    """Return the assumed ports (sending and receiving processes, NICs, cores): rows by (name, method).

    A process moves one message at a time in each direction. If a host has fewer cores than ranks, ranks whose
    receiving copies would run on the same core share it, so that there are no more concurrent copies than
    cores.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    local = _local_numbers(places)
    crowd = Counter(place.host for place in places)
    for row, (src, dst) in enumerate(pairs):
        rows.setdefault((f"rank {src} egress", "process"), []).append(row)
        rows.setdefault((f"rank {dst} ingress", "process"), []).append(row)
        here, there = places[src], places[dst]
        if here.host != there.host:
            for place, way in ((here, "egress"), (there, "ingress")):
                name = nic_name(place.host, way, place.nic or None)
                rows.setdefault((name, "topology" if place.nic else "host"), []).append(row)
        elif crowd[there.host] > there.cores:
            core = local[dst] % there.cores
            rows.setdefault((f"{there.host} core {core}", "cores"), []).append(row)
    return rows


def _local_numbers(places: Sequence[Place]) -> list[int]:
    """Return for each rank how many ranks of its host come before it."""
    seen: Counter[str] = Counter()
    numbers = []
    for place in places:
        numbers.append(seen[place.host])
        seen[place.host] += 1
    return numbers
