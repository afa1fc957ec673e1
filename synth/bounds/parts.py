"""Parts of a network that an all_reduce crosses between: what crosses too early or too late counts less.

Every byte crosses between k parts 2(k−1) times. What leaves a part before its ranks can have summed holds the
contributions of few of them, and what comes in when there is hardly time to hand it out serves few. Let
m(t) be how many of the s ranks of a part are at most t away from one of them, and o(t) how many it reaches in
t. A crossing that starts at t < α, the flight of all crossings, is worth m(t)/s, one that arrives at T − t
with t < α is worth o(t)/s, others 1; and each byte needs 2(k−1) crossings by worth:

Let t₀ be when a part, h₀, first has all contributions. (1) What is of use to it left each other part h by
crossings that start at t₀ − α at the latest; each holds at most m of h's contributions, so by worth they are
k − 1. (2) Every other part lacks something just before t₀, which must come in at t₀ or later and reach all of
its ranks: another k − 1 by worth, with none in common. That is the claim where t₀ − α is neither in the first
nor in the last interval. Where it is in the first, all of (1) is early, k − 1 by worth. What crosses into a
part must serve each of its s ranks with each of N − s contributions: by worth 1 if it does not start early,
and k − 1 if it does, since then it serves at most m · s of them. So if of all k parts together F of this
starts early, all crossings are worth max(k − 1, (k − 1)F) + k − F ≥ 2(k − 1). The last interval is the same
backwards in time, with what leaves each part.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices
from synth.network import Network

__all__ = ["idle_while_apart_s"]

_ALIKE = 1 + 1e-9


def idle_while_apart_s(network: Network, labels: Indices, way_s: Floats, bytes_s: float) -> float:
    """What the first and the last interval are worth less than as much time in between.

    ``labels`` is each rank's part, ``way_s`` how long from rank to rank, ``bytes_s`` what 2(k−1) crossings of
    all bytes take. 0 where parts differ in size, crossings in their flight, or the intervals overlap.
    """
    sizes = np.unique(labels, return_counts=True)[1]
    crossing = labels[network.src] != labels[network.dst]
    flight_s = network.alpha_s[crossing]
    if sizes.min() < sizes.max() or flight_s.max() > flight_s.min() * _ALIKE or network.hold_alpha:
        return 0.0
    flight = float(flight_s.min())
    within = labels[:, None] == labels[None, :]
    idle_s, worth_s = 0.0, 0.0
    for ways in (way_s.T, way_s):
        # Of each rank the ways from, or to, those of its part, rising; and the least of all ranks.
        near_s = np.sort(ways[within].reshape(len(labels), -1), axis=1).min(axis=0)
        lost_s = float(np.minimum(near_s, flight).mean())
        idle_s += lost_s
        worth_s += min(flight, float(near_s.max())) - lost_s
    return idle_s if bytes_s >= worth_s else 0.0
