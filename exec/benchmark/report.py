"""The report artifact: the measurements of ``run`` and ``bench``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Literal

from exec.benchmark.breakdown import Breakdown
from exec.program import Corruption
from probes.base import plural
from synth.collective import Kind

__all__ = ["Average", "Doubt", "Integrity", "Measurement", "Report", "Row", "Spread"]

Doubt = Literal["", "cores", "spread"]
# In the order of nccl-tests' -a 0 to 3.
Average = Literal["rank 0", "average", "fastest", "slowest"]

# Largest number that a row may hold: far beyond any time in seconds, rate in GB/s or size in bytes, yet small
# enough that products of such numbers do not overflow a float.
_MOST = 2.0**60
# Fields that hold the number of a rank, or -1 if it is unknown.
_RANKS = {"slowest_rank", "root"}
# Beyond this ratio of 99th percentile to median, something other than the collective takes the time.
_FAR = 3.0


@dataclass(frozen=True)
class Spread:
    """The spread of the repetitions of one measurement; ``samples_s`` holds them all if requested."""

    min_s: float
    p25_s: float
    p75_s: float
    max_s: float
    stdev_s: float
    samples: int
    samples_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """Times of one size in one placement, in seconds of the slowest rank per iteration.

    ``time_s`` is the median of the iterations, from which the bandwidths follow; ``mean_s`` their mean.
    ``wrong`` is None if results were not checked. ``spread`` is None if only an average is known; then all
    times are this average.
    ``rank_s`` is each rank's own median.
    """

    time_s: float
    p50_s: float
    p99_s: float
    slowest_rank: int
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None
    spread: Spread | None = None
    rank_s: tuple[float, ...] = ()
    mean_s: float | None = None

    @property
    def is_steady(self) -> bool:
        """Whether the 99th percentile is near the median."""
        return self.p99_s <= _FAR * self.time_s


@dataclass(frozen=True)
class Row:
    """One size: our times in both placements, the prediction, and peers' times in the same run.

    ``breakdown`` divides the time of ``shown`` into parts, if requested. ``crowded`` says why ranks waited
    for cores, if they did; else it is empty.
    """

    collective: Kind
    size_bytes: int
    count: int
    dtype: str
    redop: str
    root: int
    program: str
    predicted_s: float | None
    out_of_place: Measurement | None
    in_place: Measurement | None
    peers: dict[str, Measurement]
    breakdown: Breakdown | None = None
    crowded: str = ""

    def doubt(self, peer: str | None = None) -> Doubt:
        """Return why the prediction's or a peer's ratio to ours is meaningless; "" if it is not.

        *cores*: ranks waited for cores. *spread*: the iterations of our measurement, or of the peer's, differ
        too much.
        """
        if self.crowded:
            return "cores"
        compared = [self.shown, *([self.peers[peer]] if peer in self.peers else [])]
        return "" if all(one is None or one.is_steady for one in compared) else "spread"

    @property
    def predicted_over_ours(self) -> float | None:
        """The predicted time as a multiple of ours; None if unknown or meaningless."""
        return None if self.predicted_s is None or self.doubt() else self._over_ours(self.predicted_s)

    def peer_over_ours(self, name: str) -> float | None:
        """Return a peer's time as a multiple of ours: above 1 ours is faster. None if meaningless."""
        return None if self.doubt(name) else self._over_ours(self.peers[name].time_s)

    def _over_ours(self, other_s: float) -> float | None:
        return other_s / self.shown.time_s if self.shown is not None and self.shown.time_s else None

    @property
    def shown(self) -> Measurement | None:
        """The measurement that stands for the row: out of place if that was measured."""
        return self.out_of_place or self.in_place

    @property
    def wrong_results(self) -> str:
        """The number of wrong elements in each placement; empty if there are none."""
        placements = {"out of place": self.out_of_place, "in place": self.in_place}
        found = {name: one.wrong for name, one in placements.items() if one is not None and one.wrong}
        return ", ".join(f"{plural(count, 'wrong element')} {name}" for name, count in found.items())


@dataclass(frozen=True)
class Integrity:
    """Whether a collective gives the same bits twice, and which ranks and links corrupt data.

    ``seed`` makes the inputs. ``runs`` are all that were compared: "ccctl" and libraries. ``unlike`` maps the
    name of each whose second run gave different bits to the ranks on which it did. ``steps`` is the number of
    steps that were compared with the reference, in both runs; if it is 0, ``why_not`` says why.
    """

    collective: Kind
    size_bytes: int
    seed: int
    runs: tuple[str, ...] = ()
    unlike: dict[str, tuple[int, ...]] = field(default_factory=dict)
    steps: int = 0
    why_not: str = ""
    corruptions: tuple[Corruption, ...] = ()


@dataclass(frozen=True)
class Report:
    """A table of rows and how it was measured; ``machine`` has values of the environment by name.

    ``average`` says whose times the rows hold, as nccl-tests' ``-a`` does. ``interrupted`` says why rows are
    missing, if the run did not end normally. ``label`` names an uneven or custom collective.
    ``corrupt`` lists signs of wrong results beyond the rows; ``notes`` list guesses made in reading a file of
    another tool.
    """

    ranks: int
    hosts: tuple[str, ...]
    executor: Literal[
        "mpi", "sockets", "cuda", "reference", "nccl-tests", "nccl-inspector", "flight-recorder", "osu"
    ]
    library: str
    warmup: int
    iterations: int
    rows: tuple[Row, ...]
    average: Average = "slowest"
    machine: dict[str, str] = field(default_factory=dict)
    interrupted: str = ""
    corrupt: str = ""
    notes: tuple[str, ...] = ()
    integrity: Integrity | None = None
    label: str = ""

    @property
    def wrong_results(self) -> list[str]:
        """Every row with wrong results, and ``corrupt``; empty where all results are right or unchecked."""
        found = [
            f"{row.collective} of {row.size_bytes} bytes ({row.dtype}): {wrong}"
            for row in self.rows
            if (wrong := row.wrong_results)
        ]
        return found + ([self.corrupt] if self.corrupt else [])

    def problems(self) -> list[str]:
        """Return every number that no measurement can have, as ``path: what is wrong``."""
        found = []
        for at, row in enumerate(self.rows):
            for path, value in _numbers(replace(row, breakdown=None), f"rows[{at}]"):
                if not 0 <= value <= _MOST:
                    found.append(f"{path}: expected a number from 0 to {_MOST:g}, found {value}")
            # Parts of a time may be negative.
            for path, value in _numbers(row.breakdown, f"rows[{at}].breakdown"):
                if not abs(value) < math.inf:
                    found.append(f"{path}: expected seconds, found {value}")
        return found


def _numbers(value: object, path: str) -> Iterator[tuple[str, float]]:
    """Yield (path, number) of all numbers within ``value``, except in fields that name a rank."""
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{path}.{name}")
    elif isinstance(value, tuple):
        for at, inner in enumerate(value):
            yield from _numbers(inner, f"{path}[{at}]")
    elif is_dataclass(value):
        for name in (one.name for one in fields(value) if one.name not in _RANKS):
            yield from _numbers(getattr(value, name), f"{path}.{name}")
