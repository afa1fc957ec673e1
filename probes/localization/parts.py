"""The parts that links cross, as families of possible causes: hosts, NICs, ranks, pairs, trunks, fabric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from probes.base import Indices, Mask
from probes.localization.fit import Cause, Family
from probes.localization.links import LinkTable
from probes.localization.model import FaultKind
from probes.localization.racks import Racks

__all__ = ["FABRIC", "WHOLE", "families", "families_inside", "is_trunk", "is_whole"]

FABRIC = "fabric"
WHOLE = (FABRIC,)
# The extra penalty of each kind of cause, in units of the logarithm of the likelihood. Rarer kinds cost more,
# so that a rank or a pair is blamed only if no host explains as much.
_OF_HOST, _OF_TRUNK, _OF_NIC, _OF_PAIR, _OF_END_PAIR = 0.0, 2.0, 2.0, 4.0, 6.0
# The extra penalty of trunks for each later division of hosts into racks: if two divisions have a trunk of
# the same links, the earlier division wins.
_OF_DIVISION = 2.0
# The share of the links that must favour a fault of the fabric (_ALL) or of a trunk, because such a fault
# holds back all its links. If only most links are slow, the fault is in most hosts.
_ALL, _TRUNK = 0.97, 0.9


def families(
    table: LinkTable,
    divisions: Sequence[Racks],
    least: Mapping[str, float],
    *,
    directed: bool = True,
    fabric: bool = False,
    end_pairs: bool = True,
) -> list[Family]:
    """Return the families of parts of the links of ``table``.

    ``least`` has the smallest slowdown that counts, as a logarithm, of "end", "pair", "one way" (of a pair),
    "trunk" and "fabric". Without ``directed`` both directions of a part are one part. With ``fabric``, one
    cause may hold back all links. With ``end_pairs``, pairs of NICs and of ranks are parts, too.
    """
    ends = table.ends
    found = list(_end_families(table, ends.host, ends.host_names, _OF_HOST, least, directed))
    found += _pair_families(table, ends.host, ends.host_names, _OF_PAIR, least, directed)
    if ends.has_nics:
        found += _end_families(table, ends.nic, ends.nic_names, _OF_NIC, least, directed)
        if end_pairs:
            found += _pair_families(table, ends.nic, ends.nic_names, _OF_END_PAIR, least, directed)
    if ends.has_ranks:
        ranks = np.arange(len(ends.host))
        found += _end_families(table, ranks, ends.rank_names, _OF_NIC, least, directed)
        if end_pairs:
            found += _pair_families(table, ranks, ends.rank_names, _OF_END_PAIR, least, directed)
    for at, racks in enumerate(divisions):
        found += _trunk_families(table, racks, least["trunk"], _OF_TRUNK + at * _OF_DIVISION, directed)
    if fabric:
        found.append(_whole("fabric", table, least, "links between hosts"))
    return found


def families_inside(table: LinkTable, least: Mapping[str, float], *, fabric: bool) -> list[Family]:
    """Return the families of parts of links inside hosts: ranks, pairs of ranks, and all of a host."""
    ends = table.ends
    host, count = table.src_host.astype(np.int64), len(ends.host_names)
    ranks = np.arange(len(ends.host))
    found = [
        Family(
            "inside",
            (host,),
            count,
            lambda part: (ends.host_names[part],),
            least["end"],
            _OF_HOST,
            np.bincount(host, minlength=count) > 1,
            "links inside {0}",
        ),
        *_end_families(table, ranks, ends.rank_names, _OF_NIC, least, directed=True),
        *_pair_families(table, ranks, ends.rank_names, _OF_PAIR, least, directed=True),
    ]
    if fabric:
        found.append(_whole("inside", table, least, "links inside hosts"))
    return found


def is_trunk(family: Family) -> bool:
    """Return whether the parts of the family are trunks."""
    return family.kind == "trunk"


def is_whole(cause: Cause) -> bool:
    """Return whether all links cross the part at fault."""
    return cause.parts == WHOLE


def _end_families(
    table: LinkTable,
    unit: Indices,
    names: Sequence[str],
    cost: float,
    least: Mapping[str, float],
    directed: bool,
) -> Iterator[Family]:
    """Yield the families of hosts, NICs or ranks: both directions, sending only, receiving only."""
    src, dst = unit[table.src].astype(np.int64), unit[table.dst].astype(np.int64)
    count = len(names)
    sends, receives = _several_peers(src, dst, count), _several_peers(dst, src, count)

    def name(part: int) -> tuple[str, ...]:
        return (names[part],)

    def family(kind: FaultKind, labels: tuple[Indices, ...], possible: Mask, subject: str) -> Family:
        return Family(kind, labels, count, name, least["end"], cost, possible, subject)

    yield family("host", (src, dst), sends | receives, "links from and to {0}")
    if directed:
        yield family("egress", (src,), sends, "links from {0}")
        yield family("ingress", (dst,), receives, "links to {0}")


def _pair_families(
    table: LinkTable,
    unit: Indices,
    names: Sequence[str],
    cost: float,
    least: Mapping[str, float],
    directed: bool,
) -> Iterator[Family]:
    """Yield the families of pairs, both ways and one way; only measured pairs are parts."""
    src, dst, count = unit[table.src].astype(np.int64), unit[table.dst].astype(np.int64), len(names)

    one_way = src * count + dst
    measured = np.bincount(one_way, minlength=count * count) > 0
    both = measured & measured.reshape(count, count).T.ravel() if directed else measured
    pair = np.minimum(src, dst) * count + np.maximum(src, dst)
    name, subject = _pair_name(names), "links between {0} and {1}"
    yield Family("pair", (pair,), count * count, name, least["pair"], cost, both, subject)
    if directed:
        smallest, subject = least.get("one way", least["pair"]), "links from {0} to {1}"
        yield Family("one_way_pair", (one_way,), count * count, name, smallest, cost, measured, subject)


def _trunk_families(
    table: LinkTable, racks: Racks, least: float, cost: float, directed: bool
) -> Iterator[Family]:
    """Yield the families of trunks: between two racks and, with over two racks, of each rack."""
    here, there = racks.of_host[table.src_host], racks.of_host[table.dst_host]
    across = (here >= 0) & (there >= 0) & (here != there)
    if not across.any():
        return
    count = len(racks)

    def family(first: Indices, second: Indices, subject: str) -> Family:
        labels = np.where(across, first * count + second, -1)
        several = np.bincount(labels[across], minlength=count * count) > 2
        name = _pair_name(racks.names)
        return Family("trunk", (labels,), count * count, name, least, cost, several, subject, _TRUNK)

    yield family(np.minimum(here, there), np.maximum(here, there), "links between racks {0} and {1}")
    if directed:
        yield family(here, there, "links from rack {0} to rack {1}")
    if len(set(here[across].tolist()) | set(there[across].tolist())) > 2:
        src, dst = np.where(across, here, -1), np.where(across, there, -1)
        sizes = np.bincount(racks.of_host[racks.of_host >= 0], minlength=count)
        # In a rack of one host, no link distinguishes the trunk from the host.
        several = sizes > 1

        def name(part: int) -> tuple[str, ...]:
            return (racks.names[part],)

        def uplinks(labels: tuple[Indices, ...], subject: str) -> Family:
            return Family("trunk", labels, count, name, least, cost, several, subject, _TRUNK)

        yield uplinks((src, dst), "links between rack {0} and other racks")
        if directed:
            yield uplinks((src,), "links from rack {0} to other racks")
            yield uplinks((dst,), "links from other racks to rack {0}")


def _pair_name(names: Sequence[str]) -> Callable[[int], tuple[str, ...]]:
    def name(part: int) -> tuple[str, ...]:
        first, second = divmod(part, len(names))
        return names[first], names[second]

    return name


def _several_peers(unit: Indices, peer: Indices, count: int) -> Mask:
    """Return which units have several peers; a slow unit with one peer looks like a slow pair."""
    met = np.zeros((count, count), dtype=np.bool_)
    met[unit, peer] = True
    several: Mask = met.sum(axis=1) > 1
    return several


def _whole(kind: FaultKind, table: LinkTable, least: Mapping[str, float], subject: str) -> Family:
    """Return the family of one part that all links cross."""
    labels, possible = np.zeros(len(table), dtype=np.int64), np.ones(1, dtype=np.bool_)
    return Family(kind, (labels,), 1, lambda _: WHOLE, least["fabric"], 0.0, possible, subject, _ALL)
