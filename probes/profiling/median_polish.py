"""Outliers in a matrix of links by median polish (Tukey 1977): slow senders, slow receivers, slow links.

A transfer is as fast as the slowest of its sender, its receiver and its link. So the capacity of a sender is
its rate to its best receiver, and that of a receiver its rate from its best sender. A link is slow if it
stays below the capacities of both its ends. This holds even with half of the hosts slow, each by another
factor. It does not describe networks of unequal parts (racks, NUMA nodes, NVLink between some GPUs), where
many links stay below their ends by design. Such a matrix is decomposed by median polish of logarithms: a row
effect is what a sender loses to everybody, a column effect what a receiver loses from everybody, and the
residual belongs to the link.

A part is suspect if it is far from its peers relative to their spread, and slower by an amount that matters.
The first test alone flags noise among many equal parts; the second alone flags natural differences among few
unequal ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from probes.base import Floats, Mask
from probes.sampling import Pair

__all__ = ["HostCapacities", "Polished", "Suspects", "capacities", "find", "matrix_of", "polish"]

# Least distance from the peers that counts, in standard deviations. Of normal values, one in 300,000 is so
# far below by chance.
Z = 4.5
# Least slowdowns that matter, of an end and of a link.
END_EFFECT, LINK_EFFECT = 0.08, 0.10
# A lower bound on the spread, so that equal values do not make every other value an outlier.
_LEAST_SIGMA = 0.01
# Standard deviation over median absolute deviation of normal values: 1 / 0.6745.
_MAD_TO_SIGMA = 1.4826
_FEWEST = 3
_MOST_SWEEPS, _SETTLED = 20, 1e-4
# If more than this share of links is below both ends, the structure of the network is the cause, not a fault.
_MOST_BELOW = 0.2
# If at least this share of links is at one level, that level is the usual one, and faster links are
# exceptions.
_USUAL = 0.7
# A sender (or receiver) below this share of the median capacity is slow, however unequal the others are.
_SLOW_ANYWAY = 2 / 3


@dataclass(frozen=True, eq=False)
class HostCapacities:
    """Terms of log bandwidth = min(``senders``, ``receivers``) + ``residual``; NaN if not measured."""

    senders: Floats
    receivers: Floats
    residual: Floats


@dataclass(frozen=True, eq=False)
class Polished:
    """Terms of log bandwidth = ``overall`` + ``rows`` + ``columns`` + ``residual``; NaN if not measured."""

    overall: float
    rows: Floats
    columns: Floats
    residual: Floats


@dataclass(frozen=True)
class Suspects:
    """Slow senders, receivers and links, each with its bandwidth relative to the expected one."""

    senders: Mapping[int, float] = field(default_factory=dict)
    receivers: Mapping[int, float] = field(default_factory=dict)
    links: Mapping[Pair, float] = field(default_factory=dict)

    def level(self, row: int, column: int) -> float:
        """Return the bandwidth of a slow link relative to that of a link between normal ends."""
        ends = min(self.senders.get(row, 1.0), self.receivers.get(column, 1.0))
        return self.links[row, column] * ends

    def pairs(self, measured: Mask) -> list[Pair]:
        """Return every measured (row, column) of a suspect sender, receiver or link."""
        found = dict.fromkeys(self.links)
        for row in self.senders:
            found |= dict.fromkeys((row, int(column)) for column in np.flatnonzero(measured[row]))
        for column in self.receivers:
            found |= dict.fromkeys((int(row), column) for row in np.flatnonzero(measured[:, column]))
        return list(found)


def find(log_bandwidth: Floats, noise: float = 0.0, *, bridged: bool = False) -> Suspects:
    """Find the slow parts of a matrix [sender, receiver]; none if fewer than 3 can be compared.

    ``noise`` is the standard deviation of the logarithm of one value. ``bridged`` says that some links may be
    faster than most by design. Then the others are not compared with them.
    """
    measured = np.isfinite(log_bandwidth)
    if min(log_bandwidth.shape) < _FEWEST or not measured.any():
        return Suspects()
    parts = capacities(log_bandwidth, noise)
    sigma = max(_spread(parts.residual[measured]) * _freedom(measured), noise)
    below = parts.residual < -_far(sigma, LINK_EFFECT)
    if below.sum() > max(1.0, _MOST_BELOW * measured.sum()):
        return _polished(log_bandwidth, measured, noise)
    usual = _usual(log_bandwidth[measured], _far(sigma, LINK_EFFECT)) if bridged else np.inf
    links = {
        (int(row), int(column)): float(np.exp(parts.residual[row, column]))
        for row, column in np.argwhere(below)
    }
    return Suspects(
        _short(parts.senders, _shown(measured, parts.senders, parts.receivers), sigma, usual),
        _short(parts.receivers, _shown(measured.T, parts.receivers, parts.senders), sigma, usual),
        links,
    )


def capacities(log_bandwidth: Floats, noise: float = 0.0) -> HostCapacities:
    """Return the capacity of each sender and receiver, in O(sweeps · n² log n).

    The first estimate is the best rate, which noise exaggerates. Each sweep replaces it by the median rate of
    the links that this end limits: those near the last estimate.
    """
    reached = np.where(np.isfinite(log_bandwidth), log_bandwidth, -np.inf)
    senders, receivers = reached.max(axis=1), reached.max(axis=0)
    near = _far(noise, LINK_EFFECT)
    for _ in range(_MOST_SWEEPS):
        before = senders, receivers
        senders = _held_back(log_bandwidth, senders, receivers, near)
        receivers = _held_back(log_bandwidth.T, receivers, senders, near)
        if all(map(_settled, before, (senders, receivers))):
            break
    return HostCapacities(
        senders, receivers, log_bandwidth - np.minimum(senders[:, None], receivers[None, :])
    )


def polish(log_bandwidth: Floats) -> Polished:
    """Decompose a matrix by median polish in O(sweeps · n² log n); each sweep does rows, then columns.

    The median of an even number of values is the larger middle one here. A disturbance only lowers values, so
    the slower of two links must not pull its sender down.
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
    """Return a ``size`` × ``size`` matrix of logarithms; NaN where ``pairs`` has no value."""
    values = np.full((size, size), np.nan)
    for (row, column), value in pairs.items():
        values[row, column] = np.log(value)
    return values


def _high_medians(values: Floats) -> Floats:
    """Return the (upper) median of each row, 0 if a row has no value."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(values).sum(axis=1)
    middle = np.minimum(count // 2, values.shape[1] - 1)
    found = ordered[np.arange(len(values)), middle]
    return np.where(count > 0, found, 0.0)


def _held_back(values: Floats, own: Floats, others: Floats, near: float) -> Floats:
    """Return the median of the ``values`` of each row near its ``own`` capacity, which limits them."""
    with np.errstate(invalid="ignore"):
        mine = (own[:, None] <= others[None, :] + near) & (np.abs(values - own[:, None]) < near)
    chosen = np.where(mine, values, np.nan)
    found = own.copy()
    rows = mine.any(axis=1)
    found[rows] = np.nanmedian(chosen[rows], axis=1)
    return found


def _settled(before: Floats, now: Floats) -> bool:
    return bool(np.allclose(before, now, rtol=0.0, atol=_SETTLED))


def _shown(measured: Mask, own: Floats, others: Floats) -> tuple[Mask, Mask]:
    """Return which ``own`` capacities are comparable, and which of them a faster peer confirms."""
    best_other = np.where(measured, others[None, :], -np.inf).max(axis=1)
    comparable = measured.sum(axis=1) > 1
    return comparable, comparable & (best_other > own - np.log1p(-END_EFFECT))


def _short(capacity: Floats, shown: tuple[Mask, Mask], sigma: float, usual: float) -> dict[int, float]:
    """Return which capacities are far below the median (or ``usual``), with ratios to it."""
    comparable, known = shown
    chosen = np.sort(capacity[comparable])
    if len(chosen) < _FEWEST:
        return {}
    middle = min(float(chosen[len(chosen) // 2]), usual)
    above = chosen[len(chosen) // 2 + 1 :] - chosen[len(chosen) // 2]
    # Slow ones are below the median, so the spread above it shows how unequal the others are.
    unequal = float(np.sqrt(np.mean(above**2))) if len(above) else 0.0
    least = max(_far(sigma, END_EFFECT), min(Z * unequal, -float(np.log(_SLOW_ANYWAY))))
    found = known & (capacity < middle - least)
    return {int(at): float(np.exp(capacity[at] - middle)) for at in np.flatnonzero(found)}


def _usual(values: Floats, near: float) -> float:
    """Return the level of most ``values``; infinite if they have no common level."""
    ordered = np.sort(values)
    span = int(np.ceil(_USUAL * len(ordered)))
    starts = np.flatnonzero(ordered[span - 1 :] - ordered[: len(ordered) - span + 1] < near)
    return float(np.median(ordered[starts[0] : starts[-1] + span])) if len(starts) else np.inf


def _far(sigma: float, effect: float) -> float:
    """Return how far (in logarithms) a part must be below its peers to be suspect."""
    return max(Z * max(sigma, _LEAST_SIGMA), -float(np.log1p(-effect)))


def _freedom(measured: Mask) -> float:
    """Return the ratio of the values' spread to the residuals', which have fewer degrees of freedom."""
    values = int(measured.sum())
    return float(np.sqrt(values / max(1, values - sum(measured.shape) + 1)))


def _spread(values: Floats) -> float:
    return _MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def _polished(log_bandwidth: Floats, measured: Mask, noise: float) -> Suspects:
    parts = polish(log_bandwidth)
    senders = _low(parts.rows, measured.sum(axis=1) > 1, END_EFFECT, noise)
    receivers = _low(parts.columns, measured.sum(axis=0) > 1, END_EFFECT, noise)
    left = parts.residual[measured]
    links = _low(left, np.ones(len(left), dtype=np.bool_), LINK_EFFECT, noise)
    where = np.argwhere(measured)
    return Suspects(
        senders, receivers, {(int(where[at][0]), int(where[at][1])): ratio for at, ratio in links.items()}
    )


def _low(values: Floats, comparable: Mask, effect: float, noise: float) -> dict[int, float]:
    """Return which ``values`` are far below their median, with their ratios."""
    chosen = values[comparable]
    if len(chosen) < _FEWEST:
        return {}
    below = values - np.median(chosen)
    found = comparable & (below < -_far(max(_spread(chosen), noise), effect))
    return {int(at): float(np.exp(below[at])) for at in np.flatnonzero(found)}
