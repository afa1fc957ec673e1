"""A periodic schedule: the sends of one period, repeated at a fixed interval.

Each period carries its own chunks along the same paths. A send starts at the same offset in every period.
Sends of several periods overlap in time, as iterations of a software pipeline do: the pipeline fills, reaches
a steady state, and drains. One table describes any number of periods, and ``synth.check.schedule`` proves it
for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, bytes_of, floats, ints
from synth.collective import KINDS, Collective
from synth.network import Network
from synth.schedules.protocol import RIGHT, Obligation, Workload
from synth.schedules.schedule import Outcome, Race, Schedule, Timing

__all__ = ["PeriodicSchedule"]

# With at most this many periods, a float resolves every time to a thousandth of a period: 53 bits, less 40.
_MOST_PERIODS = 1 << 40
# The most sends of a replay.
_MOST_SENDS = 6_000_000
# Times closer than this share of the total are equal, because sums of floats round.
_SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class PeriodicSchedule:
    """The sends of one period. They occur ``periods`` times, every ``period_s`` s, on new chunks.

    ``collective`` has the chunks of one period. Send i starts ``start_s[i]`` seconds after its period begins;
    rows are sorted by start. ``op`` is COPY or REDUCE, as in a schedule.
    """

    network: Network
    collective: Collective
    chunk_bytes: int
    method: str
    seed: int
    periods: int
    period_s: float
    chunk: Ints
    link: Ints
    op: Bytes
    start_s: Floats
    outcome: Outcome | None = None

    kind: ClassVar[str] = "periodic"
    noun: ClassVar[str] = "periodic schedule"
    is_listed: ClassVar[bool] = False
    is_sized: ClassVar[bool] = True

    def listed_network(self) -> Network:
        return self.network

    @property
    def whole(self) -> Collective:
        """The collective with the chunks of all periods."""
        return replace(self.collective, chunks=self.chunks)

    @property
    def race(self) -> Race | None:
        """None: periodic schedules are not raced."""
        return None

    @property
    def facts(self) -> Mapping[str, float]:
        """The number of periods, the seconds between their starts, and the latency of a period."""
        return {"periods": self.periods, "period_s": self.period_s, "latency_s": self.latency_s}

    @property
    def busy_s(self) -> Floats:
        """Seconds for which each link is held in all periods."""
        return np.asarray(self.body.busy_s * self.periods)

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return how often its sends are repeated, in words."""
        each = len(self.chunk)
        return f"periodic: {each} sends, repeated {self.periods} times, every {seconds(self.period_s)}"

    @property
    def proof(self) -> str:
        does = f"{self.collective.label} on {self.collective.ranks_in_words}"
        times = f"repeated {self.periods} times or any other number"
        return f"{len(self.chunk)} sends a period do {does}, {times}: {RIGHT}"

    def obligations(self, timing: Timing | None = None) -> Sequence[Obligation]:
        """Return one obligation: the sends of a period, repeated every ``period_s``."""
        return [Obligation(self.body, self._timing(self.latency_s), self.period_s)]

    @property
    def workload(self) -> Workload:
        """The collective with one chunk for each owner; chunks may be divided arbitrarily."""
        once = replace(self.collective, chunks=self.collective.chunks // self.collective.share)
        return Workload(once, self.chunk_bytes * (self.chunks // once.chunks), fluid=True)

    @property
    def sends(self) -> int:
        """Sends of all periods."""
        return len(self.chunk) * self.periods

    @property
    def chunks(self) -> int:
        """Chunks of all periods."""
        return self.collective.chunks * self.periods

    @property
    def size_bytes(self) -> int:
        """The buffer of all periods, as nccl-tests counts it."""
        return self.collective.total_bytes(self.chunk_bytes) * self.periods

    @property
    def arrival_s(self) -> Floats:
        """Seconds at which each send of the first period arrives."""
        return np.asarray(self.start_s + self.network.travel_s(self.chunk_bytes)[self.link])

    @property
    def latency_s(self) -> float:
        """Seconds from the start of a period to the last arrival of its chunks."""
        return float(self.arrival_s.max(initial=0.0))

    @property
    def time_s(self) -> float:
        """Seconds until the last chunk of the last period arrives: (periods - 1) · period + latency.

        A replay, in which sends do not wait for their start times, takes no longer.
        """
        return (self.periods - 1) * self.period_s + self.latency_s

    @property
    def body(self) -> Schedule:
        """The sends of one period as a schedule of its own."""
        return Schedule(
            self.network,
            self.collective,
            self.chunk_bytes,
            self.method,
            self.seed,
            self.chunk,
            self.link,
            self.op,
        )

    def chunk_in(self, period: Indices | int, chunk: Indices | Ints) -> Indices:
        """Return the number of chunk ``chunk`` of period ``period`` among the chunks of all periods.

        Chunks are numbered by owner, then period, then place in the period.
        """
        owner, lap = np.divmod(np.asarray(chunk, dtype=np.int64), self.collective.share)
        return np.asarray((owner * self.periods + period) * self.collective.share + lap)

    def in_order(self, periods: int) -> tuple[Indices, Indices]:
        """Return (period, row) of each send of ``periods`` periods, in the order of their starts."""
        period = np.repeat(np.arange(periods), len(self.chunk))
        row = np.tile(np.arange(len(self.chunk)), periods)
        order = np.argsort(period * self.period_s + self.start_s[row], kind="stable")
        return period[order], row[order]

    def expanded(self, periods: int | None = None) -> Schedule:
        """Return the plain schedule of ``periods`` periods (default: all), in the order of starts."""
        whole = replace(self, periods=periods or self.periods)
        period, row = self.in_order(whole.periods)
        return replace(
            self.body,
            collective=replace(self.collective, chunks=whole.chunks),
            chunk=ints(whole.chunk_in(period, self.chunk[row])),
            link=ints(self.link[row]),
            op=bytes_of(self.op[row]),
        )

    @property
    def excerpt(self) -> Schedule | None:
        """The plain schedule of the first periods (all if few); None if it has too many sends."""
        periods = min(self._watched_periods, self.periods)
        return None if periods * len(self.chunk) > _MOST_SENDS else self.expanded(periods)

    def timing(self, excerpt: Timing | None) -> Timing:
        """Return the times of the first period, and when the last chunk of all arrives.

        Only the first periods are replayed. A period is steady if every send starts exactly ``period_s``
        after the same send of the period before. A send waits only for sends of its own period or of periods
        shortly before. So once as many periods in a row are steady as the longest wait spans, all later
        periods are steady, and each adds ``period_s`` (max-plus linear systems; Baccelli, Cohen, Olsder and
        Quadrat 1992). If too many sends overlap to be replayed, the result is ``time_s``. O(sends of a period
        · periods that overlap).
        """
        return self._timing(self.time_s if excerpt is None else min(self.time_s, self._end_s(excerpt)))

    def _timing(self, time_s: float) -> Timing:
        return Timing(self.start_s, floats(self.arrival_s), time_s)

    @property
    def _watched_periods(self) -> int:
        """The number of first periods that are replayed.

        The first third fills the pipeline, the second lets waits settle, and the last is compared in
        `_end_s`. If the waits do not settle, ``time_s`` is used.
        """
        return 3 * math.ceil(self.latency_s / self.period_s) + 4

    def _end_s(self, timing: Timing) -> float:
        """Return the extrapolated end of all periods; infinite if the replayed periods are not steady."""
        periods, each = self._watched_periods, len(self.chunk)
        if self.periods <= periods:
            return timing.time_s
        period, row = self.in_order(periods)
        start_s = np.empty((periods, each))
        start_s[period, row] = timing.start_s
        # No send waits for a send planned more than ``period_s + latency_s`` earlier, so only the sends of
        # the last such span are compared. The span ends at the start of the first period that is not
        # replayed. Sends of later periods come later in the order, so they delay none of the compared sends.
        planned_s = np.arange(periods - 1)[:, None] * self.period_s + self.start_s
        last_s = (periods - 1) * self.period_s
        watched = (planned_s < last_s) & (planned_s >= last_s - self.period_s - self.latency_s)
        late_s = np.abs(np.diff(start_s, axis=0) - self.period_s)[watched]
        if (late_s > _SLACK * timing.time_s).any():
            return math.inf
        return timing.time_s + (self.periods - periods) * self.period_s

    def of_size(self, size_bytes: int) -> PeriodicSchedule:
        """Return the same schedule, without an outcome, with enough periods for ``size_bytes``."""
        period_bytes = self.collective.total_bytes(self.chunk_bytes)
        return replace(self, periods=max(1, -(-size_bytes // period_bytes)), outcome=None)

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``; ``synth.check`` judges feasibility."""
        found = self.body.problems()
        if self.collective.kind not in KINDS:
            found.append(f"collective.kind: expected one of {', '.join(KINDS)}, found {self.collective.kind}")
        if not 1 <= self.periods <= _MOST_PERIODS:
            found.append(f"periods: expected 1 to {_MOST_PERIODS}, found {self.periods}")
        if not 0.0 < self.period_s < float("inf"):
            found.append(f"period_s: expected a number > 0, found {self.period_s}")
        if len(self.start_s) != len(self.chunk):
            found.append(f"start_s: expected {len(self.chunk)} values, as many as chunk")
        bad = np.flatnonzero(~((self.start_s >= 0) & (self.start_s < np.inf)))[:5]
        found += [f"start_s[{row}]: expected a number ≥ 0, found {self.start_s[row]}" for row in bad]
        falls = np.flatnonzero(np.diff(self.start_s) < 0)[:5] + 1
        found += [f"start_s[{row}]: expected no less than the row before" for row in falls]
        found += [f"outcome.{problem}" for problem in (self.outcome.problems() if self.outcome else ())]
        return found
