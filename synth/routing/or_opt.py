"""Or-opt (Or 1976): improves a tour of all ranks by moving pieces of it."""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices
from synth.kernels import compiled

__all__ = ["shortened"]

# The most ranks of a piece, and the most moves. More may improve a tour further, but time grows with both.
_LONGEST_PIECE = 32
_MOST_ROUNDS = 200


@compiled
def shortened(tour: Indices, cost: Floats) -> Indices:
    """Return the tour after or-opt: the best move is made until none helps, at most 200 times.

    ``cost`` is (ranks, ranks), infinite without a link. Pieces keep their direction, so a link may cost
    differently in each direction. O(rounds · ranks² · 32).
    """
    ranks = len(tour)
    for _ in range(_MOST_ROUNDS):
        best_gain, best_start, best_length, best_gap = 0.0, -1, 0, 0
        for start in range(ranks):
            before = tour[start - 1]
            for length in range(1, min(_LONGEST_PIECE, ranks - 2) + 1):
                first, last = tour[start], tour[(start + length - 1) % ranks]
                after = tour[(start + length) % ranks]
                removed = cost[before, first] + cost[last, after] - cost[before, after]
                if not removed > best_gain:
                    continue
                for gap in range(length, ranks - 1):
                    left, right = tour[(start + gap) % ranks], tour[(start + gap + 1) % ranks]
                    added = cost[left, first] + cost[last, right] - cost[left, right]
                    if removed - added > best_gain * (1 + 1e-9) + 1e-30:
                        best_gain, best_start, best_length, best_gap = removed - added, start, length, gap
        if best_start < 0:
            return tour
        turned = np.concatenate((tour[best_start:], tour[:best_start]))
        piece, rest = turned[:best_length], turned[best_length:]
        at = best_gap - best_length + 1
        tour = np.concatenate((rest[:at], piece, rest[at:]))
    return tour
