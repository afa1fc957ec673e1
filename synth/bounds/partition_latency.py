"""The latency inside parts that an all_reduce adds to the partition bound.

The partition bound says that each byte crosses between k parts of a network at least 2(k − 1) times. This
takes longer than the crossing links need for these bytes, because links cannot be used fully at the start and
at the end. A crossing that starts early holds contributions only of those ranks of its part that are near its
link. A crossing that arrives late serves only those ranks of its part that are near its link.

Let all parts have s ranks, and all crossing links the latency α. m(t) is the largest number of ranks of a
part that can reach a single one of its ranks within t, and o(t) the largest number that a single one can
reach within t. T is the time of the all_reduce. A crossing that starts at t < α has weight m(t)/s. A crossing
that arrives at T − t with t < α has weight o(t)/s. Every other crossing has weight 1. Claim: the crossings of
each byte have weights of at least 2(k − 1) in all. Hence an all_reduce takes longer than the partition bound
by two integrals from 0 to α, of 1 − m(t)/s and of 1 − o(t)/s.

Proof. Let h₀ be the part that first has all contributions, and t₀ the time at which it has them. (1) The s
contributions of each other part h reach h₀ over crossings out of h that start at t₀ − α or before. Each of
them holds at most m(t) of the s, so their weights sum to at least 1 for each h, and to k − 1 in all. (2) Each
other part lacks a contribution just before t₀. This contribution must enter at t₀ or later and reach all s
ranks, so these crossings have weights of k − 1 in all, too. None of them is one of (1). A crossing is early
if it starts before α, and late if it arrives after T − α. The claim is proven if no crossing of (1) is late
and none of (2) early, that is, if α ≤ t₀ − α and t₀ ≤ T − α. If t₀ − α < α, all of (1) is early, so early
crossings have weights of at least k − 1. Each of the s ranks of a part needs the N − s = s(k − 1)
contributions from outside. A crossing into the part serves some of these s · s(k − 1) pairs of a rank and a
contribution. A late crossing has weight o/s and serves at most the fraction o/s. An early crossing has weight
m/s and serves at most m · s pairs, the fraction m/(s(k − 1)), so its weight is k − 1 times this fraction. Any
other has weight 1 and serves at most all pairs. Let F be the fraction that early crossings serve, summed over
the k parts. Then the early weights are at least k − 1 and at least (k − 1)F. The other crossings serve the
fraction k − F that is left, so their weights are at least k − F. All weights are at least max(k − 1, (k −
1)F) + k − F ≥ 2(k − 1). If t₀ > T − α, the argument is the same backwards in time, with the data that leaves
each part.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices
from synth.network import Network

__all__ = ["partition_latency_s"]

# Latencies that differ only by rounding are equal.
_ALIKE = 1 + 1e-9


def partition_latency_s(network: Network, labels: Indices, distance_s: Floats, bytes_s: float) -> float:
    """Return the seconds by which the partition bound grows: both integrals of the module's claim.

    ``labels[rank]`` is the part of a rank, ``distance_s[a, b]`` the least time from a to b, and ``bytes_s``
    the time of 2(k − 1) crossings of all bytes. Return 0 where the claim does not hold: if parts differ in
    size, if crossing links differ in latency, if links are held during their latency, or if the first and the
    last interval overlap. O(ranks · size of a part).
    """
    sizes = np.unique(labels, return_counts=True)[1]
    crossing = labels[network.src] != labels[network.dst]
    flight_s = network.alpha_s[crossing]
    if sizes.min() < sizes.max() or flight_s.max() > flight_s.min() * _ALIKE or network.hold_alpha:
        return 0.0
    flight = float(flight_s.min())
    within = labels[:, None] == labels[None, :]
    added_s, used_s = 0.0, 0.0
    for ways in (distance_s.T, distance_s):
        # The n-th smallest time between a rank and the ranks of its part, least over all ranks.
        near_s = np.sort(ways[within].reshape(len(labels), -1), axis=1).min(axis=0)
        lost_s = float(np.minimum(near_s, flight).mean())
        added_s += lost_s
        used_s += min(flight, float(near_s.max())) - lost_s
    return added_s if bytes_s >= used_s else 0.0
