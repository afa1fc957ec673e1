"""The time to cross a cut and then to reach every rank inside it.

Chunks are whole: a gate that is free at 0 has delivered floor((T − travel) / hold) + 1 of them by T.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probes.base import Floats, Indices
from synth.bounds.cuts import Cut, Gates, gates
from synth.network import Network
from synth.networks import distances_s

__all__ = ["crossing_s", "drained_s", "spread_s"]

# An entry is a rank of a set to which a link leads from outside. With more entries, shortest paths from them
# would take long, and the time to spread counts as 0.
_MOST_ENTRIES = 256
# The most ranks inside that are examined. Each gives a valid bound, so a few with different gates are enough.
_MOST_EXAMINED = 4


def crossing_s(network: Network, cut: Cut, needed: int, chunk_bytes: int, supply: Indices | None) -> float:
    """Return the earliest time at which the gates of a cut can have delivered ``needed`` whole chunks.

    ``supply`` is the number of chunks that each rank holds at first; None if that does not limit its sends.
    """
    passed = gates(network, cut)
    hold_s, travel_s = _costs_s(network, passed, chunk_bytes)
    first, restock_s = _stock(network, passed.tail, chunk_bytes, supply)
    stall_s = np.maximum(0.0, restock_s - first * hold_s)
    return _earliest_s(needed, hold_s, travel_s, first, stall_s)


def spread_s(network: Network, cut: Cut, chunk_bytes: int) -> float:
    """Return the least time from an entry of the set to its farthest rank, over links inside the set."""
    inner = np.flatnonzero(cut.inside[network.src] & cut.inside[network.dst])
    entries = np.unique(network.dst[cut.links])
    if not len(inner):
        return float("inf") if cut.inside.sum() > 1 else 0.0
    if len(entries) > _MOST_ENTRIES:
        return 0.0
    reach_s = distances_s(network, network.travel_s(chunk_bytes), entries, inner)
    return float(reach_s[:, cut.inside].max(axis=1).min())


def drained_s(
    network: Network, cut: Cut, needed: int, chunk_bytes: int, supply: Indices, at_least_s: float
) -> float:
    """Return a lower bound on the time until every rank inside has all chunks, if each wants all.

    No rank inside has any of the last j of the ``needed`` chunks before ``needed`` − j + 1 chunks can have
    crossed. From then on each rank must receive all j, from outside or over an inner link. The result is at
    least ``at_least_s``.
    """
    worst_s = at_least_s
    doors = len(gates(network, cut).alpha_s)
    examined = list(_inner_gates(network, cut, chunk_bytes))
    for last in sorted({min(needed, number) for number in (doors, 2 * doors, 4 * doors)}):
        from_s = crossing_s(network, cut, needed - last + 1, chunk_bytes, supply)
        for hold_s, travel_s in examined:
            endless, never = np.full(len(hold_s), np.inf), np.zeros(len(hold_s))
            worst_s = max(worst_s, from_s + _earliest_s(last, hold_s, travel_s, endless, never))
    return worst_s


def _inner_gates(network: Network, cut: Cut, chunk_bytes: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield (hold times, travel times) of the gates into a rank inside, for up to four ranks.

    Gates from outside count with a travel time of 0.
    """
    in_start, in_links = network.in_links
    seen: set[bytes] = set()
    for rank in np.flatnonzero(cut.inside).tolist():
        entering = in_links[in_start[rank] : in_start[rank + 1]]
        inner = cut.inside[network.src[entering]]
        sides = [gates(network, Cut("", "", cut.inside, entering[side])) for side in (inner, ~inner)]
        near, far = (_costs_s(network, side, chunk_bytes) for side in sides)
        hold_s = np.concatenate((near[0], far[0]))
        travel_s = np.concatenate((near[1], np.zeros(len(far[1]))))
        order = np.lexsort((travel_s, hold_s))
        key = hold_s[order].tobytes() + travel_s[order].tobytes()
        if key not in seen and len(seen) < _MOST_EXAMINED:
            seen.add(key)
            yield hold_s, travel_s


def _costs_s(network: Network, passed: Gates, chunk_bytes: int) -> tuple[Floats, Floats]:
    """Return (hold time, travel time) of a chunk at each gate."""
    hold_s = passed.beta_s_per_byte * chunk_bytes + passed.alpha_s * network.hold_alpha
    return hold_s, passed.beta_s_per_byte * chunk_bytes + passed.alpha_s


def _stock(
    network: Network, tails: Indices, chunk_bytes: int, supply: Indices | None
) -> tuple[Floats, Floats]:
    """Return, for each gate, its tail's number of chunks at time 0, and the earliest arrival of another."""
    restock_s = np.zeros(len(tails))
    if supply is None:
        return np.full(len(tails), np.inf), restock_s
    known = tails >= 0
    first = np.where(known, supply[np.maximum(tails, 0)], np.inf).astype(float)
    in_start, in_links = network.in_links
    travel_s = network.travel_s(chunk_bytes)
    for at in np.flatnonzero(known):
        entering = in_links[in_start[tails[at]] : in_start[tails[at] + 1]]
        restock_s[at] = travel_s[entering].min(initial=np.inf)
    return first, restock_s


def _earliest_s(needed: int, hold_s: Floats, travel_s: Floats, first: Floats, stall_s: Floats) -> float:
    """Return the least T by which the gates together deliver ``needed`` chunks.

    Bisection finds T; the result is the time of the last delivery up to T.
    """

    def arrival_s(number: Floats) -> Floats:
        late = np.where(number > first, stall_s, 0.0)
        return np.asarray(travel_s + (number - 1) * hold_s + late)

    def delivered(time_s: float) -> Floats:
        slack = 1e-9
        early = np.minimum(np.floor((time_s - travel_s) / hold_s + slack) + 1, first)
        late = np.floor((time_s - travel_s - stall_s) / hold_s + slack) + 1
        return np.asarray(np.maximum(np.maximum(early, np.where(late > first, late, 0)), 0))

    low_s, high_s = 0.0, float(arrival_s(np.full(len(hold_s), float(needed))).min())
    if not np.isfinite(high_s):
        return high_s
    for _ in range(100):
        if high_s - low_s <= 1e-14 * high_s:
            break
        middle_s = (low_s + high_s) / 2
        if delivered(middle_s).sum() >= needed:
            high_s = middle_s
        else:
            low_s = middle_s
    counts = delivered(high_s * (1 + 1e-12))
    return float(arrival_s(counts)[counts > 0].max())
