"""Rules from size to algorithm, chosen from measured times and their noise.

An algorithm replaces the library's own choice, or the choice for the next smaller size, only if it is faster
by 2 % and by twice the standard error of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from exec.benchmark import Report
from exec.program import Array
from probes.base import UsageError
from probes.statistics import MEDIAN_TO_MEAN, robust_level
from synth.collective import Kind

__all__ = [
    "AlgorithmTimes",
    "MeasuredSetting",
    "MedianTime",
    "Rule",
    "disturbed",
    "next_size",
    "notably_less",
    "points_of",
    "rules_of",
    "timing_of",
]

# About 95 % of normal noise lies within two standard errors; a gain below 2 % needs no rule.
_ERRORS, _LEAST_GAIN = 2.0, 0.02
# Two sizes with this ratio locate a crossover well enough: no size between them is measured.
_CLOSE = 2.0
# A size that takes this many times as long as a larger one was measured during a disturbance.
_DISTURBED = 2.0


@dataclass(frozen=True)
class MedianTime:
    """A median time and its standard error."""

    time_s: float
    error_s: float = 0.0


@dataclass(frozen=True)
class AlgorithmTimes:
    """The time of each algorithm at one size."""

    size_bytes: int
    timings: Mapping[str, MedianTime]

    @property
    def fastest(self) -> str:
        return min(self.timings, key=lambda name: self.timings[name].time_s)


@dataclass(frozen=True)
class MeasuredSetting:
    """The report that a benchmark wrote about one setting of the library, and the file it was read from."""

    setting: str
    report: Report
    source: str


@dataclass(frozen=True)
class Rule:
    """The algorithm for sizes from ``from_bytes`` up to the start of the next rule."""

    from_bytes: int
    algorithm: str


def timing_of(times_s: Array) -> MedianTime:
    """Return the median of several times, and its standard error."""
    median_s, deviation_s = robust_level(times_s)
    return MedianTime(median_s, MEDIAN_TO_MEAN * deviation_s / math.sqrt(len(times_s)))


def points_of(tried: Sequence[MeasuredSetting], known: Container[Kind]) -> dict[Kind, list[AlgorithmTimes]]:
    """Return the times of all settings by collective and size.

    Sizes that some of a collective's reports lack are left out. Raises UsageError if no report has one of the
    ``known`` collectives, or if no size of a collective is in all of its reports.
    """
    times: dict[Kind, dict[int, dict[str, MedianTime]]] = {}
    for measured in tried:
        for row in measured.report.rows:
            found = row.out_of_place or row.in_place
            if row.collective in known and found is not None and row.size_bytes > 0:
                sizes = times.setdefault(row.collective, {})
                sizes.setdefault(row.size_bytes, {})[measured.setting] = MedianTime(found.time_s)
    if not times:
        raise UsageError("none of the tables has a collective whose algorithm the library lets choose")
    points: dict[Kind, list[AlgorithmTimes]] = {}
    for kind, sizes in times.items():
        settings = set().union(*sizes.values())
        points[kind] = [
            AlgorithmTimes(size, timings)
            for size, timings in sorted(sizes.items())
            if timings.keys() == settings
        ]
        if not points[kind]:
            raise UsageError(f"no size of {kind} is in the tables of all of {', '.join(sorted(settings))}")
    return points


def choices(points: Sequence[AlgorithmTimes], own: str = "") -> list[str]:
    """Return the algorithm for each point, in order of size; ``own`` is the library's choice, if any."""
    found: list[str] = []
    for point in points:
        best = point.fastest
        candidates = (own, found[-1]) if found else (own,)
        found.append(next((name for name in candidates if not _faster(point, best, name)), best))
    return found


def _faster(point: AlgorithmTimes, name: str, other: str) -> bool:
    if other not in point.timings:
        return True
    return notably_less(point.timings[name], point.timings[other])


def notably_less(a: MedianTime, b: MedianTime) -> bool:
    """Return whether ``a`` is less than ``b`` by 2 % and by twice the standard error of the difference."""
    gain = b.time_s - a.time_s
    return gain > max(_LEAST_GAIN * b.time_s, _ERRORS * math.hypot(a.error_s, b.error_s))


def disturbed(points: Sequence[AlgorithmTimes]) -> list[int]:
    """Return the positions of points whose fastest time is far above that of the next larger size.

    ``points`` are in order of size. More bytes never take half the time, so something else ran meanwhile.
    """
    least_s = [min(timing.time_s for timing in point.timings.values()) for point in points]
    return [at for at in range(len(points) - 1) if least_s[at] > _DISTURBED * min(least_s[at + 1 :])]


def next_size(points: Sequence[AlgorithmTimes], own: str = "") -> int | None:
    """Return the size to measure next: the middle of the widest gap over which the choice changes.

    Returns None if all such gaps are narrow.
    """
    taken = choices(points, own)
    gaps = [
        (b.size_bytes / a.size_bytes, a.size_bytes, b.size_bytes)
        for a, b, first, second in zip(points, points[1:], taken, taken[1:], strict=False)
        if first != second
    ]
    ratio, low, high = max(gaps, default=(1.0, 0, 0))
    return round(math.sqrt(low * high)) if ratio > _CLOSE else None


def rules_of(points: Sequence[AlgorithmTimes], own: str = "") -> tuple[Rule, ...]:
    """Return rules for all sizes; a rule begins at the geometric mean of the sizes around a change.

    Below the smallest size the library's ``own`` choice stays, if it has one.
    """
    taken = choices(points, own)
    found = [Rule(0, taken[0])]
    if own and taken[0] != own and points[0].size_bytes > 0:
        # Nothing is known below the smallest size.
        found = [Rule(0, own), Rule(points[0].size_bytes, taken[0])]
    for before, point, algorithm in zip(points, points[1:], taken[1:], strict=False):
        if algorithm != found[-1].algorithm:
            found.append(Rule(round(math.sqrt(before.size_bytes * point.size_bytes)), algorithm))
    return tuple(found)
