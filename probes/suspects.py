"""Which part is slow: a sender, a receiver, or the one link between them.

The logarithms of the bandwidths of a matrix are taken apart by median polish (Tukey 1977): a row
effect is what a sender loses towards everybody, a column effect what a receiver loses from
everybody, and what is left belongs to the link. A part is suspect when it is far from its like by the
robust z (median absolute deviation) and slower by an amount that matters: among many equal parts the
first alone flags noise, among few unequal ones the second alone flags nature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from probes.columns import Floats, Mask
from probes.rounds import Pair

__all__ = ["Polished", "Suspects", "find", "matrix_of", "polish"]

Z = 4.5
END_EFFECT, LINK_EFFECT = 0.08, 0.10
# Nothing is steadier than this, so that equal values do not make every other value an outlier.
_LEAST_SIGMA = 0.01
_MAD_TO_SIGMA = 1.4826
_FEWEST = 3
_MOST_SWEEPS, _SETTLED = 20, 1e-4


@dataclass(frozen=True, eq=False)
class Polished:
    """log bandwidth = ``overall`` + ``rows`` + ``columns`` + ``residual``; NaN where nothing was measured."""

    overall: float
    rows: Floats
    columns: Floats
    residual: Floats


@dataclass(frozen=True)
class Suspects:
    """Slow senders, receivers and links, each with its bandwidth relative to what was to be expected."""

    senders: Mapping[int, float] = field(default_factory=dict)
    receivers: Mapping[int, float] = field(default_factory=dict)
    links: Mapping[Pair, float] = field(default_factory=dict)

    def pairs(self, measured: Mask) -> list[Pair]:
        """Every measured (row, column) that a suspect part takes part in."""
        found = dict.fromkeys(self.links)
        for row in self.senders:
            found |= dict.fromkeys((row, int(column)) for column in np.flatnonzero(measured[row]))
        for column in self.receivers:
            found |= dict.fromkeys((int(row), column) for row in np.flatnonzero(measured[:, column]))
        return list(found)


def find(log_bandwidth: Floats, noise: float = 0.0) -> Suspects:
    """The slow parts of a matrix [sender, receiver]; none where fewer than 3 can be compared.

    ``noise`` is how uncertain one value is, as a standard deviation of its logarithm.
    """
    measured = np.isfinite(log_bandwidth)
    if min(log_bandwidth.shape) < _FEWEST or not measured.any():
        return Suspects()
    parts = polish(log_bandwidth)
    senders = _low(parts.rows, measured.sum(axis=1) > 1, END_EFFECT, noise)
    receivers = _low(parts.columns, measured.sum(axis=0) > 1, END_EFFECT, noise)
    left = parts.residual[measured]
    links = _low(left, np.ones(len(left), dtype=np.bool_), LINK_EFFECT, noise)
    where = np.argwhere(measured)
    return Suspects(
        senders, receivers, {(int(where[at][0]), int(where[at][1])): ratio for at, ratio in links.items()}
    )


def polish(log_bandwidth: Floats) -> Polished:
    """Median polish in O(sweeps · n² log n), each sweep the rows, then the columns.

    Of an even number of values the larger middle one is taken: a disturbance only ever lowers them,
    and of two links the slow one must not pull its sender down.
    """
    residual = np.array(log_bandwidth)
    rows, columns = np.zeros(residual.shape[0]), np.zeros(residual.shape[1])
    for _ in range(_MOST_SWEEPS):
        by_row = _high_medians(residual)
        residual -= by_row[:, None]
        by_column = _high_medians(residual.T)
        residual -= by_column[None, :]
        rows += by_row
        columns += by_column
        if max(np.abs(by_row).max(), np.abs(by_column).max()) < _SETTLED:
            break
    overall = float(np.median(rows) + np.median(columns))
    return Polished(overall, rows - np.median(rows), columns - np.median(columns), residual)


def matrix_of(pairs: Mapping[Pair, float], size: int) -> Floats:
    """A ``size`` × ``size`` matrix of logarithms; NaN where ``pairs`` has no value."""
    values = np.full((size, size), np.nan)
    for (row, column), value in pairs.items():
        values[row, column] = np.log(value)
    return values


def _high_medians(values: Floats) -> Floats:
    """The (upper) median of each row, 0 where a row has no value."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(values).sum(axis=1)
    middle = np.minimum(count // 2, values.shape[1] - 1)
    found = ordered[np.arange(len(values)), middle]
    return np.where(count > 0, found, 0.0)


def _low(values: Floats, comparable: Mask, effect: float, noise: float) -> dict[int, float]:
    """Which ``values`` are far below their median, and the ratio that this is."""
    chosen = values[comparable]
    if len(chosen) < _FEWEST:
        return {}
    below = values - np.median(chosen)
    sigma = max(_MAD_TO_SIGMA * float(np.median(np.abs(below[comparable]))), noise, _LEAST_SIGMA)
    found = comparable & (below < -Z * sigma) & (below < np.log1p(-effect))
    return {int(at): float(np.exp(below[at])) for at in np.flatnonzero(found)}
