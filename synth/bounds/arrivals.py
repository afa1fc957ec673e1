"""Arrivals: what is far away comes late, and a byte that crosses late, or early, serves only what is near.

Take the ranks W outside a set and S inside it. A byte that starts through gate g of the set at t can hold
something of rank w only if w is so near that it could come to the gate by t, and be of use to rank v by T
only if v is so near behind the gate. So of what S needs of W no more can be there by T than, with a_k the
k-th least way from W to g and b_j the j-th least from g into S, the flight through g included:

- of sums, in which all of W may be: Σ_g rate_g · Σ_k Σ_j max(0, T − a_k − b_j), for |W|·|S| times the bytes;
- of copies, each of which comes from one rank: Σ_g rate_g · Σ_j max(0, T − a_1 − b_j);
- of what has one source and one target: Σ_g rate_g · max(0, T − a_1 − b_1).

Of sums that cross between groups of ranks also only the pairs (w, v) that are far from each other are looked
at: a byte that starts at t serves as many of them as are near enough on both sides at once.

This binds between latency and bandwidth: with one port a rank and equal links N ranks do not reduce sooner
than one-shot or two steps do, hosts not sooner than by exchange of shares. O(gates · |W| · |S|) for a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from probes.columns import Floats, Indices, Mask, floats
from synth.bounds.cuts import Cut, gates
from synth.network import Network
from synth.networks.shortest_paths import distances_s
from synth.schedule import Bound

__all__ = ["Carried", "arrivals"]

Carried = Literal["sums", "copies", "points"]
"""What a byte can hold and serve: several sources and targets, several targets, or one of each."""

_MOST_RANKS = 1024
_MOST_WORK = 30_000_000
_MOST_LEVELS = 8
_MOST_TERMS = 250_000
# Of far pairs: how many sets are looked at, of how few ranks, at how many distances; and how many different
# ways to a gate are told apart.
_MOST_SETS, _MOST_PAIRED, _MOST_DISTANCES, _MOST_WAYS = 4, 256, 4, 10
_HALVINGS = 24
_WORTH_PAIRING = 0.8
# Beyond the bytes alone no bound here has more than the longest way.
_NOTICEABLE = 0.002


def arrivals(
    network: Network,
    cuts: Iterable[Cut],
    need_bytes: Floats,
    carried: Carried,
    chunk_bytes: int | None,
    known_s: float = 0.0,
) -> Bound:
    """The largest over the sets of ``cuts``.

    [source, target] ``need_bytes`` is what must come from one to the other: of sums the same bytes from all,
    of copies the same to all. ``chunk_bytes`` is the size of the chunks, each of which is sent on when all of
    it is there; None where that is free. Where no way is long beside ``known_s``, what another bound proves,
    nothing is looked for.
    """
    best = Bound("arrival", 0.0)
    cost_s = network.alpha_s if chunk_bytes is None else network.travel_s(chunk_bytes)
    if network.ranks > _MOST_RANKS or _across_s(network, cost_s) < _NOTICEABLE * known_s:
        return best
    way_s = distances_s(network, cost_s, np.arange(network.ranks))
    groups: dict[tuple[int, float], tuple[Cut, _Crossing]] = {}
    work = 0
    for cut in cuts:
        work += len(cut.links) * network.ranks
        if work > _MOST_WORK:
            break
        if not len(cut.links):
            continue
        crossing = _crossing(network, cut, way_s, chunk_bytes)
        alone_s = 0.0
        for outside, inside in _parts(cut, way_s, need_bytes):
            time_s = crossing.time_s(outside, inside, need_bytes, carried)
            alone_s = max(alone_s, time_s)
            if time_s > best.time_s:
                detail = f"from {len(outside)} ranks to {len(inside)}"
                best = Bound(f"arrival by {cut.name}", time_s, detail)
        if cut.kind == "cut":
            groups.setdefault((int(cut.inside.sum()), alone_s), (cut, crossing))
    if carried != "sums" or network.ranks > _MOST_PAIRED or best.time_s < _WORTH_PAIRING * known_s:
        return best
    for _, (cut, crossing) in sorted(groups.items(), key=lambda one: -one[0][1])[:_MOST_SETS]:
        for pairs, far_s in _far_pairs(cut, way_s):
            time_s = crossing.paired_s(cut, pairs, need_bytes, best.time_s)
            if time_s > best.time_s:
                detail = f"{int(pairs.sum())} pairs at least {far_s * 1e6:.3g} us apart"
                best = Bound(f"arrival by {cut.name}", time_s, detail)
    return best


@dataclass(frozen=True, eq=False)
class _Crossing:
    """The links into a set, gate by gate from ``start`` on: [rank, link] how long it takes to their start and
    [link, rank] from there on, with the flight; bytes per second of each gate.
    """

    start: Indices
    to_s: Floats
    from_s: Floats
    rate: Floats

    def time_s(self, outside: Indices, inside: Indices, need_bytes: Floats, carried: Carried) -> float:
        """The least T by which ``inside`` can have what it needs of ``outside``."""
        to_s, from_s = self.to_s[outside].T, self.from_s[:, inside]
        if carried == "sums":
            needed = float(need_bytes[np.ix_(outside, inside)].sum())
            to_s, from_s = np.sort(to_s, axis=1), np.sort(from_s, axis=1)
        else:
            needed = float(need_bytes[np.ix_(outside, inside)].sum())
            to_s = to_s.min(axis=1, keepdims=True)
            from_s = np.sort(from_s, axis=1) if carried == "copies" else from_s.min(axis=1, keepdims=True)
        if not needed or to_s.shape[1] * from_s.shape[1] * len(self.start) > _MOST_TERMS:
            return 0.0
        # A gate serves at any time what the best of its links does, on either side.
        first_s = np.minimum.reduceat(to_s, self.start, axis=0)[:, :, None]
        first_s = first_s + np.minimum.reduceat(from_s, self.start, axis=0)[:, None, :]
        rate = np.broadcast_to(self.rate[:, None, None], first_s.shape)
        return _filled_s(first_s.ravel(), rate.ravel(), needed)

    def paired_s(self, cut: Cut, pairs: Mask, need_bytes: Floats, at_least_s: float) -> float:
        """The least T, if more than ``at_least_s``, by which [outside, inside] ``pairs`` can be served."""
        outside, inside = np.flatnonzero(~cut.inside), np.flatnonzero(cut.inside)
        needed = float(need_bytes[np.ix_(outside, inside)][pairs].sum())
        to_s, ahead = _told_apart(self.to_s[outside].T)
        from_s, behind = _told_apart(self.from_s[:, inside])
        if len(ahead) * pairs.size * len(from_s) > _MOST_WORK:
            return 0.0
        near = (ahead[:, :, None] <= np.arange(len(to_s))).astype(np.float32)
        of_use = (behind[:, :, None] <= np.arange(len(from_s))).astype(np.float32)
        served = np.swapaxes(near, 1, 2) @ (pairs.astype(np.float32) @ of_use)
        # [way to it, way from it]: how many pairs a byte serves that a gate's best link takes.
        best = np.maximum.reduceat(served, self.start, axis=0)
        alike, counts = np.unique(
            np.concatenate((best.reshape(len(best), -1), self.rate[:, None]), axis=1),
            axis=0,
            return_counts=True,
        )
        rate = alike[:, -1] * counts
        table = np.tensordot(rate, alike[:, :-1], axes=1).reshape(best.shape[1:])

        def served_by(time_s: float) -> float:
            turns_s = np.unique(np.clip(np.concatenate(([0.0, time_s], to_s, time_s - from_s)), 0.0, time_s))
            middle_s = (turns_s[1:] + turns_s[:-1]) / 2
            a = np.searchsorted(to_s, middle_s, side="right") - 1
            b = np.searchsorted(from_s, time_s - middle_s, side="right") - 1
            there = (a >= 0) & (b >= 0)
            return float((np.where(there, table[a, b], 0.0) * np.diff(turns_s)).sum())

        return _least_s(served_by, needed, at_least_s)


def _crossing(network: Network, cut: Cut, way_s: Floats, chunk_bytes: int | None) -> _Crossing:
    passed = gates(network, cut)
    by_gate = np.argsort(passed.of, kind="stable")
    links = cut.links[by_gate]
    held_s_per_byte, flight_s = passed.beta_s_per_byte, network.alpha_s[links]
    if network.hold_alpha and chunk_bytes is not None:
        # A link that is held for its alpha, too, has delivered when it is released.
        held_s_per_byte, flight_s = held_s_per_byte + passed.alpha_s / chunk_bytes, np.zeros(len(links))
    return _Crossing(
        np.flatnonzero(np.diff(passed.of[by_gate], prepend=-1)),
        way_s[:, network.src[links]],
        flight_s[:, None] + way_s[network.dst[links]],
        1.0 / held_s_per_byte,
    )


def _parts(cut: Cut, way_s: Floats, need_bytes: Floats) -> Iterator[tuple[Indices, Indices]]:
    """(outside, inside): all that need each other, and on either side those that are the farthest."""
    outside, inside = np.flatnonzero(~cut.inside), np.flatnonzero(cut.inside)
    needed = need_bytes[np.ix_(outside, inside)] > 0
    outside, inside = outside[needed.any(axis=1)], inside[needed.any(axis=0)]
    if not len(outside) or not len(inside):
        return
    between_s = way_s[np.ix_(outside, inside)]
    for far in _farthest(between_s.min(axis=1)):
        yield outside[far], inside
    for far in _farthest(between_s.min(axis=0)):
        yield outside, inside[far]


def _farthest(away_s: Floats) -> Iterator[Indices]:
    """All, and those that are at least so far away, for some of the distances that there are."""
    order = np.argsort(-away_s, kind="stable")
    ends = np.flatnonzero(np.diff(away_s[order], append=-1.0) < -1e-9 * away_s[order])
    if len(ends) > _MOST_LEVELS:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, _MOST_LEVELS).astype(int))]
    for end in ends.tolist():
        yield order[: end + 1]


def _filled_s(first_s: Floats, rate: Floats, total_bytes: float) -> float:
    """The least T with Σ rate · max(0, T − first) ≥ total."""
    order = np.argsort(first_s, kind="stable")
    rates = np.cumsum(rate[order])
    ahead = np.cumsum(rate[order] * first_s[order])
    # Some of the terms alone are filled later than all of them: the first ones are all that help.
    return float(((total_bytes + ahead) / rates).min())


def _across_s(network: Network, cost_s: Floats) -> float:
    """At least the longest way between two ranks: to rank 0 and on."""
    first = np.zeros(1, np.int64)
    ways = [distances_s(one, cost_s, first) for one in (network, network.transposed())]
    return float(ways[0].max() + ways[1].max())


def _far_pairs(cut: Cut, way_s: Floats) -> Iterator[tuple[Mask, float]]:
    """[outside, inside]: the pairs that are at least so far apart, and how far, for some distances."""
    between_s = way_s[np.ix_(~cut.inside, cut.inside)]
    apart_s, counts = np.unique(np.round(between_s, 12), return_counts=True)
    if len(apart_s) > _MOST_DISTANCES:
        share = np.cumsum(counts) / counts.sum()
        at = np.searchsorted(share, np.linspace(0, 1, _MOST_DISTANCES, endpoint=False), side="right")
        apart_s = apart_s[np.unique(np.minimum(at, len(apart_s) - 1))]
    for far_s in apart_s.tolist():
        yield between_s >= far_s - 1e-12, far_s


def _told_apart(way_s: Floats) -> tuple[Floats, Indices]:
    """(rising ways, which of them each value is), few of them: those in between count as shorter."""
    levels_s = np.unique(way_s)
    if len(levels_s) > _MOST_WAYS:
        levels_s = levels_s[np.linspace(0, len(levels_s) - 1, _MOST_WAYS).astype(int)]
    return floats(levels_s), np.asarray(np.searchsorted(levels_s, way_s, side="right") - 1)


def _least_s(served_by: Callable[[float], float], needed: float, at_least_s: float) -> float:
    """The least T with ``served_by`` (T) ≥ needed, from below; 0 where ``at_least_s`` is enough."""
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
