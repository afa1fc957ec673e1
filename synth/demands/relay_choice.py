"""Relays for a demand matrix: data leaves busy ports for idle ones through other ranks of the same group.

Ranks of a group relay for each other. A group is the ranks of a host, or below a leaf switch. Data from s to
d takes a path s → a → b → d, where a is in the group of s and b in the group of d; a = s and b = d is the
direct path. Each hop loads its link and the link's ports for its time per byte. Data moves until no resource
carries more than a target, or nothing is left that can move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints
from synth.kernels import compiled

__all__ = ["DemandPaths", "Ways", "add_load", "relieve"]

# A path is split among at most this many others: twice the number of NICs of a host with eight.
_MOST_SPLITS = 16
# A smaller share of the data that should move is not worth a message.
_LEAST_SHARE = 1e-3
# In groups of at most this many ranks, all pairs of relays are tried where simpler paths do not suffice.
_MOST_FOR_PAIRS = 8


class Ways(NamedTuple):
    """The network as tables for compiled loops.

    ``table[s, d]`` is the link from s to d, or -1. Link e has latency ``alpha_s[e]`` and loads
    ``resource[start[e]:start[e + 1]]``, each for ``s_per_byte`` of the same row. The members of group g are
    ``member[first[g]:first[g + 1]]``; rank r is number ``place[r]`` of ``group[r]``.
    """

    table: Ints
    alpha_s: Floats
    start: Indices
    resource: Indices
    s_per_byte: Floats
    group: Indices
    place: Indices
    first: Indices
    member: Indices


class DemandPaths(NamedTuple):
    """Columns: ``size_bytes`` go from ``source`` over the relays ``leaves`` and ``enters`` to ``target``."""

    source: Indices
    leaves: Indices
    enters: Indices
    target: Indices
    size_bytes: Floats


@compiled
def add_load(ways: Ways, paths: DemandPaths, load_s: Floats) -> tuple[float, int]:
    """Add the seconds for which all paths hold each resource to ``load_s``.

    Return the largest latency and the largest number of hops of any path.
    """
    slowest_s, longest = 0.0, 0
    for row in range(len(paths.source)):
        s, a, b, d = paths.source[row], paths.leaves[row], paths.enters[row], paths.target[row]
        latency_s, hops = 0.0, 0
        for hop in range(3):
            src, dst = (s, a) if hop == 0 else (a, b) if hop == 1 else (b, d)
            if src != dst:
                link = ways.table[src, dst]
                hops += 1
                latency_s += ways.alpha_s[link]
                for at in range(ways.start[link], ways.start[link + 1]):
                    load_s[ways.resource[at]] += paths.size_bytes[row] * ways.s_per_byte[at]
        slowest_s, longest = max(slowest_s, latency_s), max(longest, hops)
    return slowest_s, longest


@compiled
def relieve(
    ways: Ways, paths: DemandPaths, rows: Indices, load_s: Floats, target_s: float, moved: DemandPaths
) -> int:
    """Move data of ``rows`` off resources loaded above ``target_s``; return the number of new paths.

    The data that moves is taken from ``paths``. New paths are written to ``moved`` while it has room.
    """
    count = 0
    for row in rows:
        s, a, b, d = paths.source[row], paths.leaves[row], paths.enters[row], paths.target[row]
        if ways.group[s] == ways.group[d]:
            continue
        for _ in range(_MOST_SPLITS):
            if count == len(moved.source):
                return count
            left = paths.size_bytes[row]
            excess = min(left, -_room(ways, s, a, b, d, load_s, target_s))
            if excess <= _LEAST_SHARE * left or excess < 1.0:
                break
            _add(ways, s, a, b, d, -excess, load_s)
            leaves, enters, room = _best(ways, s, d, load_s, target_s, excess)
            size = min(excess, room)
            if size < 1.0 or size < _LEAST_SHARE * excess:
                _add(ways, s, a, b, d, excess, load_s)
                break
            _add(ways, s, a, b, d, excess - size, load_s)
            _add(ways, s, leaves, enters, d, size, load_s)
            paths.size_bytes[row] -= size
            moved.source[count], moved.target[count] = s, d
            moved.leaves[count], moved.enters[count] = leaves, enters
            moved.size_bytes[count] = size
            count += 1
    return count


@compiled
def _best(
    ways: Ways, s: int, d: int, load_s: Floats, target_s: float, wanted: float
) -> tuple[int, int, float]:
    """Return (relay in the group of s, relay in the group of d, room in bytes) of a path from s to d.

    The path is the first with room for ``wanted`` bytes, or else the one with most room. Each pair of ranks
    begins its search at another relay, so that pairs do not crowd on one relay.
    """
    source_group, target_group = ways.group[s], ways.group[d]
    first, last = ways.first[source_group], ways.first[source_group + 1]
    begin, end = ways.first[target_group], ways.first[target_group + 1]
    leaves, enters = s, d
    room = _room(ways, s, s, d, d, load_s, target_s)
    for step in range(end - begin):
        if room >= wanted:
            return leaves, enters, room
        b = ways.member[begin + (s + step) % (end - begin)]
        found = _room(ways, s, s, b, d, load_s, target_s)
        if found > room:
            leaves, enters, room = s, b, found
    for step in range(last - first):
        if room >= wanted:
            return leaves, enters, room
        a = ways.member[first + (d + step) % (last - first)]
        found = _room(ways, s, a, d, d, load_s, target_s)
        if found > room:
            leaves, enters, room = a, d, found
    if room >= wanted:
        return leaves, enters, room
    for at in range(min(last - first, end - begin)):
        a, b = ways.member[first + at], ways.member[begin + at]
        found = _room(ways, s, a, b, d, load_s, target_s)
        if found > room:
            leaves, enters, room = a, b, found
    if room >= wanted or max(last - first, end - begin) > _MOST_FOR_PAIRS:
        return leaves, enters, room
    for at in range(first, last):
        for to in range(begin, end):
            found = _room(ways, s, ways.member[at], ways.member[to], d, load_s, target_s)
            if found > room:
                leaves, enters, room = ways.member[at], ways.member[to], found
    return leaves, enters, room


@compiled
def _room(ways: Ways, s: int, a: int, b: int, d: int, load_s: Floats, target_s: float) -> float:
    """Return the bytes that still fit on a path, below 0 if it is overloaded."""
    room = np.inf
    for hop in range(3):
        src, dst = (s, a) if hop == 0 else (a, b) if hop == 1 else (b, d)
        if src == dst:
            continue
        link = ways.table[src, dst]
        if link < 0:
            return 0.0
        for at in range(ways.start[link], ways.start[link + 1]):
            room = min(room, (target_s - load_s[ways.resource[at]]) / ways.s_per_byte[at])
    return room


@compiled
def _add(ways: Ways, s: int, a: int, b: int, d: int, size: float, load_s: Floats) -> None:
    for hop in range(3):
        src, dst = (s, a) if hop == 0 else (a, b) if hop == 1 else (b, d)
        if src != dst:
            link = ways.table[src, dst]
            for at in range(ways.start[link], ways.start[link + 1]):
                load_s[ways.resource[at]] += size * ways.s_per_byte[at]
