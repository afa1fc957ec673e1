"""The order in which a run of a watch measures links: urgent ones, then those measured longest ago.

A budget may end a run after any round. Rounds are those of a profile (`probes.sampling.rounds`). Urgent links
of one come first, and the hosts that they leave free get others of it to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from probes.columns import Ints, Mask, ints
from probes.profiling.history import History
from probes.sampling.rounds import Pair, first_fit, rings, strides
from probes.sampling.samples import Place

__all__ = ["Turns", "in_turn", "links_at"]


@dataclass(frozen=True, eq=False)
class Turns:
    """Links in the order in which they are measured, with the number of the round of each.

    ``hosts`` has the host of each rank: a rank is the n-th of its host, whatever its number is elsewhere.
    """

    hosts: tuple[str, ...]
    src: Ints
    dst: Ints
    round: Ints

    def rounds(self, places: Sequence[Place]) -> list[list[Pair]]:
        """The rounds between the ranks at ``places``; links of ranks that are not there are left out."""
        number_of = {name: rank for rank, name in enumerate(_names(place.host for place in places))}
        here = [number_of.get(name) for name in _names(self.hosts)]
        found: dict[int, list[Pair]] = {}
        for at, src, dst in zip(self.round.tolist(), self.src.tolist(), self.dst.tolist(), strict=True):
            ends = here[src], here[dst]
            if ends[0] is not None and ends[1] is not None:
                found.setdefault(at, []).append((ends[0], ends[1]))
        return list(found.values())


def in_turn(history: History, wanted: Mask, urgent: Mask) -> Turns:
    """The ``wanted`` links of a history: ``urgent`` ones, then those that were measured longest ago."""
    pairs = zip(history.src.tolist(), history.dst.tolist(), strict=True)
    row = {pair: at for at, pair in enumerate(pairs) if wanted[at]}
    age_s = history.measured_s

    def oldest(ring: Sequence[Pair]) -> float:
        return min(float(age_s[row[pair]]) for pair in ring)

    ranks = len(history.hosts)
    first, rest = list[tuple[float, list[list[Pair]]]](), list[list[Pair]]()
    for ring in rings(ranks, strides(ranks)):
        hurried = [pair for pair in ring if pair in row and urgent[row[pair]]]
        others = [pair for pair in ring if pair in row and not urgent[row[pair]]]
        if hurried:
            waves, others = _filled(hurried, others, history.hosts)
            first.append((oldest(hurried), waves))
        rest += [others] if others else []
    first.sort(key=lambda one: one[0])
    rounds = [ring for _, waves in first for ring in waves] + sorted(rest, key=oldest)
    return Turns(
        history.hosts,
        ints([src for ring in rounds for src, _ in ring]),
        ints([dst for ring in rounds for _, dst in ring]),
        ints([number for number, ring in enumerate(rounds) for _ in ring]),
    )


def links_at(history: History, groups: Iterable[Sequence[int]]) -> Mask:
    """All links of the hosts that groups of links have in common; of a single link both ends are meant."""
    suspected = set[str]()
    for rows in groups:
        src = {history.hosts[rank] for rank in history.src[list(rows)].tolist()}
        dst = {history.hosts[rank] for rank in history.dst[list(rows)].tolist()}
        suspected |= src if len(src) <= len(dst) else set()
        suspected |= dst if len(dst) <= len(src) else set()
    at = np.array([host in suspected for host in history.hosts], dtype=np.bool_)
    return np.asarray(at[history.src] | at[history.dst], dtype=np.bool_)


def _filled(
    first: Sequence[Pair], others: Sequence[Pair], hosts: Sequence[str]
) -> tuple[list[list[Pair]], list[Pair]]:
    """Links that come ``first`` as rounds in which each host sends and receives once, and what is left over.

    Hosts that have nothing to do in a round get one of the ``others``, which all together are one round.
    """

    def ends(pair: Pair) -> tuple[Hashable, Hashable]:
        """What sends and what receives: a host, within one a rank."""
        src, dst = pair
        if hosts[src] == hosts[dst]:
            return ("sends", src), ("receives", dst)
        return ("sends", hosts[src]), ("receives", hosts[dst])

    rounds, left = first_fit(first, ends), list(others)
    for ring in rounds:
        busy = {end for pair in ring for end in ends(pair)}
        kept = []
        for pair in left:
            if busy.isdisjoint(ends(pair)):
                busy.update(ends(pair))
                ring.append(pair)
            else:
                kept.append(pair)
        left = kept
    return rounds, left


def _names(hosts: Iterable[str]) -> list[tuple[str, int]]:
    """(host, n-th rank there) of each rank."""
    seen: Counter[str] = Counter()
    found = []
    for host in hosts:
        found.append((host, seen[host]))
        seen[host] += 1
    return found
