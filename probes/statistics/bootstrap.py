"""Bootstrap decisions: which measured groups differ, and with what confidence.

Thresholds come from the trials where possible. Values are cut into the two most compact groups (2-means,
exact in one dimension). The cut counts only if the gap between the groups is wider than three times the
spread of the trials. Confidence is the share of bootstrap resamplings of the trials that give the same
decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from probes.base import Floats

__all__ = ["SideVerdict", "in_random_order", "least", "lowered"]

_Bools: TypeAlias = npt.NDArray[np.bool_]
_Decide: TypeAlias = Callable[[npt.NDArray[np.float64]], _Bools]
_Key = TypeVar("_Key", bound=Hashable)
# Least gap between two groups, in spreads of the trials.
_SPREADS = 3.0
# Least relative differences: _EFFECT between two groups, _NEARER between the lowest key and the next. A
# smaller difference between groups may be real, but is never due to a shared link.
_EFFECT = 0.1
_NEARER = 0.02
# A single group shares a link if its median ratio is below this: a shared link leaves half of the rate or
# less, contention for memory alone leaves more.
_SHARED_LEVEL = 0.75
# The standard error of a confidence is then at most 0.035 (a share of 200 independent draws).
_RESAMPLINGS = 200


@dataclass(frozen=True)
class SideVerdict(Generic[_Key]):
    """The chosen keys, and the confidence in each key's decision (0.5 or less: undecided)."""

    chosen: frozenset[_Key]
    confidence: dict[_Key, float]
    median: dict[_Key, float]


def in_random_order(keys: Sequence[_Key], repetitions: int, seed: int) -> list[_Key]:
    """Return every key once per repetition, in a new order each time: drift then affects all keys equally."""
    random = np.random.default_rng(seed)
    return [keys[at] for _ in range(repetitions) for at in random.permutation(len(keys))]


def lowered(trials: Mapping[_Key, Floats], seed: int) -> SideVerdict[_Key]:
    """Choose the keys whose ratios (1 is undisturbed) are lowered by sharing; trials have equal length.

    If the ratios form two groups, the lower one is chosen; otherwise all or none, by their level.
    """
    return _sure(trials, seed, _lowered)


def least(trials: Mapping[_Key, Floats], seed: int) -> SideVerdict[_Key]:
    """Choose the one key that is below all others by a gap; none if that gap is too narrow."""
    return _sure(trials, seed, _least)


def _sure(trials: Mapping[_Key, Floats], seed: int, decide: _Decide) -> SideVerdict[_Key]:
    keys = list(trials)
    table = np.array([trials[key] for key in keys])
    chosen = decide(table)
    random = np.random.default_rng(seed)
    agreed = np.zeros(len(keys))
    for _ in range(_RESAMPLINGS):
        drawn = random.integers(0, table.shape[1], table.shape)
        agreed += decide(np.take_along_axis(table, drawn, 1)) == chosen
    return SideVerdict(
        frozenset(key for key, one in zip(keys, chosen, strict=True) if one),
        {key: float(share) for key, share in zip(keys, agreed / _RESAMPLINGS, strict=True)},
        {key: float(value) for key, value in zip(keys, np.median(table, axis=1), strict=True)},
    )


def _least(table: npt.NDArray[np.float64]) -> _Bools:
    medians = np.median(table, axis=1)
    chosen = np.zeros(len(medians), dtype=bool)
    first, second = np.sort(medians)[:2] if len(medians) > 1 else (medians[0], np.inf)
    if second - first > max(_SPREADS * _spread(table), _NEARER * first):
        chosen[int(np.argmin(medians))] = True
    return chosen


def _spread(table: npt.NDArray[np.float64]) -> float:
    """Return the median distance of a trial from the median of its row."""
    return float(np.median(np.abs(table - np.median(table, axis=1)[:, None])))


def _lowered(table: npt.NDArray[np.float64]) -> _Bools:
    lower = _lower_group(table)
    if lower.any():
        return lower
    medians = np.median(table, axis=1)
    return np.full(len(medians), bool(np.median(medians) < _SHARED_LEVEL))


def _lower_group(table: npt.NDArray[np.float64]) -> _Bools:
    """Return the rows of the lower of two groups; no row if the rows form one group."""
    medians = np.median(table, axis=1)
    cut = _best_cut(np.sort(medians))
    if cut is None:
        return np.zeros(len(medians), dtype=bool)
    lower = medians <= cut
    low, high = medians[lower], medians[~lower]
    gap = float(high.min() - low.max())
    wide = gap > _SPREADS * _spread(table) and np.median(high) - np.median(low) > _EFFECT * np.median(high)
    return lower if wide else np.zeros(len(medians), dtype=bool)


def _best_cut(ordered: npt.NDArray[np.float64]) -> float | None:
    """Return the largest value of the lower group of 2-means; None for fewer than two values."""
    if len(ordered) < 2:
        return None
    cuts = range(1, len(ordered))
    loss = [ordered[:at].var() * at + ordered[at:].var() * (len(ordered) - at) for at in cuts]
    return float(ordered[int(np.argmin(loss))])
