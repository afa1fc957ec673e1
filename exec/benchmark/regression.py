"""Regressions between two reports: rows that became slower beyond tolerance and noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from exec.benchmark.report import Measurement, Report, Row

__all__ = ["RowChange", "compare", "label_of"]

# (label of a row, placement, program); the program is "" unless both reports have several.
Key = tuple[str, str, str]
# A change is believed if it exceeds this number of standard errors of the difference of two medians.
_BELIEVED = 3.0
# The standard error of the median of n samples is this factor · (p75 - p25) / √n. For a normal distribution
# the error is 1.2533 σ / √n, and σ is (p75 - p25) / 1.349.
_MEDIAN_ERROR = 1.2533 / 1.349


@dataclass(frozen=True)
class RowChange:
    """Seconds of a row and placement in two reports; ``noise_s`` is the error of new - old.

    With ``crowded``, ranks waited for cores in one of the two.
    """

    label: str
    old_s: float
    new_s: float
    noise_s: float
    tolerance: float
    crowded: bool = False

    @property
    def ratio(self) -> float:
        """New over old: above 1 it became slower."""
        return self.new_s / self.old_s

    @property
    def least_s(self) -> float:
        """The least difference that counts: beyond the tolerance, and beyond what noise explains."""
        return max(self.tolerance * self.old_s, _BELIEVED * self.noise_s)

    @property
    def told(self) -> str:
        """The change in words, without a full stop: the time now, and before."""
        return (
            f"{self.label}: {self.new_s * 1e6:.1f} us, was {self.old_s * 1e6:.1f} us "
            f"({self.ratio:.2f} times as long)"
        )

    @property
    def slower(self) -> bool:
        """Whether it is slower by more than the tolerance, and by more than noise explains."""
        return self.ratio > 1 + self.tolerance and self.new_s - self.old_s > _BELIEVED * self.noise_s

    @property
    def faster(self) -> bool:
        """Whether it is faster by more than the tolerance, and by more than noise explains."""
        return self.ratio < 1 / (1 + self.tolerance) and self.old_s - self.new_s > _BELIEVED * self.noise_s


def compare(old: Report, new: Report, tolerance: float = 0.1) -> list[RowChange]:
    """Return a change for each row and placement that both reports have, in the order of ``new``.

    A row's medians are compared if both reports have the spread of its repetitions, else its means. Programs
    are distinguished by name if both reports have several of them.
    """
    by_program = _programs(old) > 1 and _programs(new) > 1
    before, after = _measured(old.rows, by_program), _measured(new.rows, by_program)
    crowded = {label_of(row) for row in (*old.rows, *new.rows) if row.crowded}
    return [
        _change(key, before[key], found, tolerance, crowded=key[0] in crowded)
        for key, found in after.items()
        if key in before
    ]


def label_of(row: Row) -> str:
    """Return the name of a row in messages: all_reduce of 1024 bytes, float32 sum."""
    what = f"{row.collective} of {row.size_bytes} bytes, {row.dtype}"
    return what if row.redop == "none" else f"{what} {row.redop}"


def _programs(report: Report) -> int:
    return len({row.program for row in report.rows})


def _measured(rows: Iterable[Row], by_program: bool) -> dict[Key, list[Measurement]]:
    """Return the measurements of each row and placement: several if the sizes were repeated."""
    found: defaultdict[Key, list[Measurement]] = defaultdict(list)
    for row in rows:
        program = row.program if by_program else ""
        for placement, one in (("out of place", row.out_of_place), ("in place", row.in_place)):
            if one is not None:
                found[label_of(row), placement, program].append(one)
    return found


def _change(
    key: Key, old: list[Measurement], new: list[Measurement], tolerance: float, *, crowded: bool
) -> RowChange:
    spread = all(one.spread is not None for one in [*old, *new])
    return RowChange(
        label=", ".join(filter(None, key)),
        old_s=_typical(old, spread),
        new_s=_typical(new, spread),
        noise_s=math.hypot(_error(old), _error(new)) if spread else 0.0,
        tolerance=tolerance,
        crowded=crowded,
    )


def _typical(found: list[Measurement], medians: bool) -> float:
    return median(one.p50_s if medians else one.mean_s or one.time_s for one in found)


def _error(found: list[Measurement]) -> float:
    """Return the standard error of the mean of these medians, used as the error of their median."""
    errors = [
        _MEDIAN_ERROR * (one.spread.p75_s - one.spread.p25_s) / math.sqrt(max(1, one.spread.samples))
        for one in found
        if one.spread is not None
    ]
    return math.hypot(*errors) / len(errors)
