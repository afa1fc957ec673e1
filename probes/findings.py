"""What stands out among measured links: slow ones, lopsided pairs, unsteady ones.

A link is an outlier when it is both far from its like by the robust z (median and median absolute
deviation) and slower by more than a tenth: among many equal links the first alone flags noise, among
few unequal ones the second alone flags nature.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.columns import Floats

__all__ = ["EFFECT", "asymmetric", "describe", "noisy", "outliers"]

EFFECT = 0.10
_Z = 4.0
_NOISY = 1.0
_FEWEST = 6
_MOST_NAMED = 6
_MAD_TO_SIGMA = 1.4826

Pair = tuple[int, int]


def outliers(beta: Floats, kinds: Sequence[str]) -> list[int]:
    """Rows whose log beta is a robust z of 4 and a tenth above the median of their kind."""
    found: list[int] = []
    logs = np.log(beta)
    for kind in sorted(set(kinds)):
        rows = np.array([row for row, other in enumerate(kinds) if other == kind])
        if len(rows) < _FEWEST:
            continue
        above = logs[rows] - np.median(logs[rows])
        spread = max(_MAD_TO_SIGMA * float(np.median(np.abs(above))), 1e-12)
        found += [int(row) for row in rows[(above / spread > _Z) & (above > np.log1p(EFFECT))]]
    return sorted(found)


def asymmetric(pairs: Sequence[Pair], beta: Floats, median: Floats, low: Floats, high: Floats) -> list[int]:
    """Rows that are a tenth slower than the way back, at best and in the middle, beyond their intervals."""
    row_of = {pair: row for row, pair in enumerate(pairs)}
    found = []
    for row, (src, dst) in enumerate(pairs):
        back = row_of.get((dst, src))
        if back is None or low[row] <= high[back]:
            continue
        if min(beta[row] / beta[back], median[row] / median[back]) > 1 + EFFECT:
            found.append(row)
    return found


def noisy(beta: Floats, median: Floats, high: Floats) -> list[int]:
    """Rows whose middle, or whose interval, is at twice what the link takes at its best."""
    return [int(row) for row in np.flatnonzero(np.maximum(median, high) > (1 + _NOISY) * beta)]


def describe(what: str, rows: Sequence[int], pairs: Sequence[Pair], times: Floats) -> str:
    """One sentence that names the links of ``rows``, worst first, and how many ``times`` slower each is."""
    order = sorted(rows, key=lambda row: -times[row])
    named = [f"{pairs[row][0]} → {pairs[row][1]} ({times[row]:.2f} times)" for row in order[:_MOST_NAMED]]
    more = f" and {len(order) - _MOST_NAMED} more" if len(order) > _MOST_NAMED else ""
    return f"{len(order)} {'link' if len(order) == 1 else 'links'} {what}: {', '.join(named)}{more}"
