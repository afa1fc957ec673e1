"""The arrival bound: a lower bound on the time of a collective, from path latencies and cut rates together.

Take a set of ranks, some ranks S in it and some ranks W outside. Data enters the set through gates: shared
ports, and links without one. A byte that starts through gate g at time t can hold data of rank w in W only if
the shortest path from w to g takes at most t. It serves rank v in S by time T only if the shortest path from
g to v, with the latency of g, takes at most T − t. Let a_k be the k-th shortest path time from W to g, and
b_j the j-th shortest from g into S. Count the triples (byte, w, v) that S needs; the bound is the least T by
which the gates can serve that number. The gates can serve:

- for sums, whose bytes may hold data of all of W: Σ_g rate_g · Σ_k Σ_j max(0, T − a_k − b_j);
- for copies, whose bytes each come from one rank: Σ_g rate_g · Σ_j max(0, T − a_1 − b_j);
- for data with one source and one target: Σ_g rate_g · max(0, T − a_1 − b_1).

Data that several ranks hold starts at the nearest of them.

For sums between groups of ranks, the pairs (w, v) that are far apart give a second bound: a byte that starts
at t serves only pairs where both w and v are near enough to the gate.

The bound can exceed all others where neither latency nor bandwidth dominates. With one port per rank and
equal links the bound is near the time of one-shot and two-step all_reduces. Between hosts it is near the time
of an exchange of shares. O(gates · |W| · |S|) for a set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from probes.base import Floats, Indices, Mask, floats, plural
from synth.bounds.cuts import Cut, gates
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import Bound

__all__ = ["Carried", "arrivals"]

Carried = Literal["sums", "copies", "points"]
"""The ranks that one byte serves: many sources and targets (sums), many targets (copies), or one pair."""

# The most ranks of a network. With these limits the search takes less time than other bounds.
_MOST_RANKS = 1024
# The most ranks times links of all cuts together.
_MOST_WORK = 30_000_000
# At most this many distances from a cut are tried: each leaves only the ranks that are at least so far.
_MOST_LEVELS = 8
# The most (path to a gate, path from it) pairs that are sorted for one cut.
_MOST_TERMS = 250_000
# The bound of pairs that are far apart has limits of its own: cuts, ranks, distances, path times at a gate.
_MOST_SETS, _MOST_PAIRED, _MOST_DISTANCES, _MOST_WAYS = 4, 256, 4, 10
# Steps of bisection, which find the bound by far pairs with a relative error of 2^-24.
_HALVINGS = 24
# The bound by far pairs is tried only if the plain one is at least this fraction of the best known bound.
_WORTH_PAIRING = 0.8
# An arrival bound exceeds the cut bound by at most the longest path, and is skipped if the longest path is
# below this fraction of the best known bound.
_NOTICEABLE = 0.002


def arrivals(
    network: Network,
    cuts: Iterable[Cut],
    need_bytes: Floats,
    carried: Carried,
    chunk_bytes: int | None,
    known_s: float = 0.0,
    holders: Mask | None = None,
) -> Bound:
    """Return the largest arrival bound over the sets of ``cuts``; its time is 0 if none is found.

    ``need_bytes[source, target]`` is the data that target needs from source: for sums the same bytes from all
    sources, for copies the same bytes to all targets. A source is a rank, or with ``holders`` a block of
    copies, which the ranks ``holders[source]`` all hold. ``chunk_bytes`` is the size of chunks that are
    forwarded only when complete; None if bytes are forwarded one by one. ``known_s`` is the best other bound.
    The search is skipped if all paths are short compared with ``known_s``. A cut is skipped if its gates are
    so fast that its bound cannot exceed the best bound so far.
    """
    best = Bound("arrival", 0.0)
    cost_s = network.alpha_s if chunk_bytes is None else network.travel_s(chunk_bytes)
    if network.ranks > _MOST_RANKS or _across_s(network, cost_s) < _NOTICEABLE * known_s:
        return best
    distance_s = distances_s(network, cost_s, np.arange(network.ranks))
    reach_s = distance_s if holders is None else _nearest_s(distance_s, holders)
    holders = np.eye(network.ranks, dtype=bool) if holders is None else holders
    paired = carried == "sums" and network.ranks <= _MOST_PAIRED
    # Once the longest path time has passed, every gate can carry sums of all ranks to every rank.
    longest_s = 2 * float(distance_s.max()) + float(network.alpha_s.max(initial=0.0))
    most_bytes = float(need_bytes.max(initial=0.0)) if carried == "sums" and not paired else math.inf
    groups: dict[tuple[int, float], tuple[Cut, _Crossing]] = {}
    work = 0
    for cut in cuts:
        work += len(cut.links) * len(reach_s)
        if work > _MOST_WORK:
            break
        if not len(cut.links):
            continue
        crossing = _crossing(network, cut, reach_s, distance_s, chunk_bytes)
        if longest_s + most_bytes / crossing.rate.sum() <= max(known_s, best.time_s):
            continue
        alone_s = 0.0
        for outside, inside in _parts(cut, reach_s, holders, need_bytes):
            time_s = crossing.time_s(outside, inside, need_bytes, carried)
            alone_s = max(alone_s, time_s)
            if time_s > best.time_s:
                ranks = int(holders[outside].any(axis=0).sum())
                detail = f"data of {plural(ranks, 'rank')} for {plural(len(inside), 'rank')}"
                best = Bound(f"latency and {cut.name}", time_s, detail)
        if cut.kind == "cut":
            groups.setdefault((int(cut.inside.sum()), alone_s), (cut, crossing))
    if not paired or best.time_s < _WORTH_PAIRING * known_s:
        return best
    for _, (cut, crossing) in sorted(groups.items(), key=lambda one: -one[0][1])[:_MOST_SETS]:
        for pairs, far_s in _far_pairs(cut, distance_s):
            time_s = crossing.paired_s(cut, pairs, need_bytes, best.time_s)
            if time_s > best.time_s:
                detail = f"data of {int(pairs.sum())} pairs of ranks at least {far_s * 1e6:.3g} us apart"
                best = Bound(f"latency and {cut.name}", time_s, detail)
    return best


@dataclass(frozen=True, eq=False)
class _Crossing:
    """The links into a set, grouped by gate; the links of gate g begin at ``start[g]``.

    ``to_s[source, link]`` is the shortest path time from a source of data to the link's source.
    ``from_s[link, rank]`` is the time from the start of the link, with its latency, to a rank. ``rate[gate]``
    is in bytes per second.
    """

    start: Indices
    to_s: Floats
    from_s: Floats
    rate: Floats

    def time_s(self, outside: Indices, inside: Indices, need_bytes: Floats, carried: Carried) -> float:
        """Return the least T by which ``inside`` can have its data from ``outside``; 0 if slow to compute."""
        to_s, from_s = self.to_s[outside].T, self.from_s[:, inside]
        needed = float(need_bytes[np.ix_(outside, inside)].sum())
        to_s = np.sort(to_s, axis=1) if carried == "sums" else to_s.min(axis=1, keepdims=True)
        from_s = from_s.min(axis=1, keepdims=True) if carried == "points" else np.sort(from_s, axis=1)
        if not needed or to_s.shape[1] * from_s.shape[1] * len(self.start) > _MOST_TERMS:
            return 0.0
        # Replace each gate's links by one link with the shortest paths on both sides, which serves no less.
        first_s = np.minimum.reduceat(to_s, self.start, axis=0)[:, :, None]
        first_s = first_s + np.minimum.reduceat(from_s, self.start, axis=0)[:, None, :]
        rate = np.broadcast_to(self.rate[:, None, None], first_s.shape)
        return _filled_s(first_s.ravel(), rate.ravel(), needed)

    def paired_s(self, cut: Cut, pairs: Mask, need_bytes: Floats, at_least_s: float) -> float:
        """Return the least T that serves all ``pairs[outside, inside]``; 0 if at most ``at_least_s``."""
        outside, inside = np.flatnonzero(~cut.inside), np.flatnonzero(cut.inside)
        needed = float(need_bytes[np.ix_(outside, inside)][pairs].sum())
        to_s, ahead = _distinct_times(self.to_s[outside].T)
        from_s, behind = _distinct_times(self.from_s[:, inside])
        if len(ahead) * pairs.size * len(from_s) > _MOST_WORK:
            return 0.0
        near = (ahead[:, :, None] <= np.arange(len(to_s))).astype(np.float32)
        of_use = (behind[:, :, None] <= np.arange(len(from_s))).astype(np.float32)
        served = np.swapaxes(near, 1, 2) @ (pairs.astype(np.float32) @ of_use)
        # best[gate, time to it, time from it]: how many pairs a byte over the gate's best link serves.
        best = np.maximum.reduceat(served, self.start, axis=0)
        distinct, counts = np.unique(
            np.concatenate((best.reshape(len(best), -1), self.rate[:, None]), axis=1),
            axis=0,
            return_counts=True,
        )
        rate = distinct[:, -1] * counts
        table = np.tensordot(rate, distinct[:, :-1], axes=1).reshape(best.shape[1:])

        def served_by(time_s: float) -> float:
            turns_s = np.unique(np.clip(np.concatenate(([0.0, time_s], to_s, time_s - from_s)), 0.0, time_s))
            middle_s = (turns_s[1:] + turns_s[:-1]) / 2
            a = np.searchsorted(to_s, middle_s, side="right") - 1
            b = np.searchsorted(from_s, time_s - middle_s, side="right") - 1
            valid = (a >= 0) & (b >= 0)
            return float((np.where(valid, table[a, b], 0.0) * np.diff(turns_s)).sum())

        return _least_s(served_by, needed, at_least_s)


def _nearest_s(distance_s: Floats, holders: Mask) -> Floats:
    """Return the shortest path time from the nearest of each row of ``holders`` to each rank."""
    return np.stack([distance_s[held].min(axis=0) for held in holders])


def _crossing(
    network: Network, cut: Cut, reach_s: Floats, distance_s: Floats, chunk_bytes: int | None
) -> _Crossing:
    passed = gates(network, cut)
    by_gate = np.argsort(passed.gate_of_link, kind="stable")
    links = cut.links[by_gate]
    held_s_per_byte, flight_s = passed.beta_s_per_byte, network.alpha_s[links]
    if network.hold_alpha and chunk_bytes is not None:
        # With ``hold_alpha`` the hold includes the latency: the chunk has arrived when the link is released.
        held_s_per_byte, flight_s = held_s_per_byte + passed.alpha_s / chunk_bytes, np.zeros(len(links))
    return _Crossing(
        np.flatnonzero(np.diff(passed.gate_of_link[by_gate], prepend=-1)),
        reach_s[:, network.src[links]],
        flight_s[:, None] + distance_s[network.dst[links]],
        1.0 / held_s_per_byte,
    )


def _parts(cut: Cut, reach_s: Floats, holders: Mask, need_bytes: Floats) -> Iterator[tuple[Indices, Indices]]:
    """Yield (sources outside, ranks inside): all of one side with data to move, the farthest of the other."""
    outside, inside = np.flatnonzero(~holders[:, cut.inside].any(axis=1)), np.flatnonzero(cut.inside)
    needed = need_bytes[np.ix_(outside, inside)] > 0
    outside, inside = outside[needed.any(axis=1)], inside[needed.any(axis=0)]
    if not len(outside) or not len(inside):
        return
    between_s = reach_s[np.ix_(outside, inside)]
    for farthest in _farthest(between_s.min(axis=1)):
        yield outside[farthest], inside
    for farthest in _farthest(between_s.min(axis=0)):
        yield outside, inside[farthest]


def _farthest(away_s: Floats) -> Iterator[Indices]:
    """Yield the ranks at or beyond each of up to ``_MOST_LEVELS`` distances; the last set is all ranks."""
    order = np.argsort(-away_s, kind="stable")
    ends = np.flatnonzero(np.diff(away_s[order], append=-1.0) < -1e-9 * away_s[order])
    if len(ends) > _MOST_LEVELS:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, _MOST_LEVELS).astype(int))]
    for end in ends.tolist():
        yield order[: end + 1]


def _filled_s(first_s: Floats, rate: Floats, total_bytes: float) -> float:
    """Return the least T with Σ rate · max(0, T − first_s) ≥ total_bytes."""
    order = np.argsort(first_s, kind="stable")
    rates = np.cumsum(rate[order])
    ahead = np.cumsum(rate[order] * first_s[order])
    # The T from the first n terms alone is never below the answer, and equals the answer if exactly these
    # terms are positive at T.
    return float(((total_bytes + ahead) / rates).min())


def _across_s(network: Network, cost_s: Floats) -> float:
    """Return an upper bound on the shortest path time between any two ranks, via rank 0."""
    first = np.zeros(1, np.int64)
    ways = [distances_s(one, cost_s, first) for one in (network, network.transposed())]
    return float(ways[0].max() + ways[1].max())


def _far_pairs(cut: Cut, distance_s: Floats) -> Iterator[tuple[Mask, float]]:
    """Yield (mask [outside, inside] of pairs that are at least a distance apart, that distance)."""
    between_s = distance_s[np.ix_(~cut.inside, cut.inside)]
    apart_s, counts = np.unique(np.round(between_s, 12), return_counts=True)
    if len(apart_s) > _MOST_DISTANCES:
        share = np.cumsum(counts) / counts.sum()
        at = np.searchsorted(share, np.linspace(0, 1, _MOST_DISTANCES, endpoint=False), side="right")
        apart_s = apart_s[np.unique(np.minimum(at, len(apart_s) - 1))]
    for far_s in apart_s.tolist():
        yield between_s >= far_s - 1e-12, far_s


def _distinct_times(distance_s: Floats) -> tuple[Floats, Indices]:
    """Return (rising path times, index of each value in them).

    If there are more than ``_MOST_WAYS`` times, values are rounded down to some of them.
    """
    levels_s = np.unique(distance_s)
    if len(levels_s) > _MOST_WAYS:
        levels_s = levels_s[np.linspace(0, len(levels_s) - 1, _MOST_WAYS).astype(int)]
    return floats(levels_s), np.asarray(np.searchsorted(levels_s, distance_s, side="right") - 1)


def _least_s(served_by: Callable[[float], float], needed: float, at_least_s: float) -> float:
    """Return the least T with served_by(T) ≥ needed, rounded down; 0 if ``at_least_s`` is enough."""
    if served_by(at_least_s) >= needed:
        return 0.0
    low_s, high_s = at_least_s, 2 * at_least_s
    while served_by(high_s) < needed:
        low_s, high_s = high_s, 2 * high_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        if served_by(middle_s) < needed:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s
