"""Statistics of values by group, without a loop over the groups."""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices

__all__ = ["quantiles", "upper_median"]


def quantiles(labels: Indices, values: Floats, count: int, share: float) -> Floats:
    """Return the quantile ``share`` of the values of each group; NaN for an empty group.

    The result is the smallest value at or above the exact quantile, and so always one of the values. Takes
    O(n log n).
    """
    found = np.full(count, np.nan)
    order = np.lexsort((values, labels))
    sizes = np.bincount(labels, minlength=count)
    first = np.cumsum(sizes) - sizes
    has = sizes > 0
    at = first[has] + np.ceil(share * (sizes[has] - 1)).astype(np.int64)
    found[has] = values[order][at]
    return found


def upper_median(values: Floats) -> float:
    """Return the median of the finite values; the larger middle one if their number is even."""
    ordered = np.sort(values[np.isfinite(values)])
    return float(ordered[len(ordered) // 2])
