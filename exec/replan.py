"""Choice of another schedule for a collective whose network has changed, if it is predicted to be faster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from probes.base import SILENT, Progress, UsageError
from synth import Request, synthesize
from synth.collective import Collective
from synth.compiler import lower
from synth.network import Network
from synth.portfolio import CollectiveRequest, bounds_of
from synth.prediction import MOST_SENDS, predicted_s
from synth.program import Program
from synth.schedules import Schedule
from synth.simulation import moved_to, replay

__all__ = ["Replan", "SchedulePrediction", "replanned", "requests_of"]


@dataclass(frozen=True)
class SchedulePrediction:
    """Predictions of a schedule's time on networks that have its links."""

    schedule: Schedule

    @cached_property
    def _program(self) -> Program | None:
        return lower(self.schedule) if self.schedule.sends <= MOST_SENDS else None

    def time_s(self, network: Network) -> float:
        """Return the predicted seconds on ``network``.

        Schedules of up to MOST_SENDS sends are predicted by ``synth.prediction.run_time``, longer ones by
        simulating the links. Raises UsageError if the network lacks a link of the schedule.
        """
        chunk_bytes = self.schedule.chunk_bytes
        if self._program is None:
            return replay(moved_to(self.schedule, network, chunk_bytes)).time_s
        return predicted_s(self._program, network, chunk_bytes)


@dataclass(frozen=True, eq=False)
class Replan:
    """The decision about a schedule: ``schedule`` replaces the current one, None keeps it.

    All times are on the changed network: ``before_s`` of the current schedule, ``after_s`` of the schedule to
    use from now on, and ``bound_s``, the proven lower bound for any schedule. ``searched`` says whether a new
    schedule was synthesized.
    """

    before_s: float
    after_s: float
    bound_s: float
    schedule: Schedule | None
    searched: bool

    @property
    def gain(self) -> float:
        """The speed-up of the collective: 1.0 if the schedule stays."""
        return self.before_s / self.after_s if self.after_s else 1.0


def replanned(
    current: Schedule,
    network: Network,
    *,
    least_gain: float,
    size_bytes: int | None = None,
    others: Sequence[Schedule] = (),
    search: bool = True,
    time_limit_s: float | None = None,
    jobs: int = 1,
    quick: bool = False,
    progress: Progress = SILENT,
) -> Replan:
    """Choose the schedule to use on ``network``: ``current``, one of ``others``, or a new one.

    Another schedule replaces ``current`` if it is predicted to be at least ``least_gain`` times as fast. With
    ``search`` a new schedule is synthesized for ``size_bytes`` (by default that of ``current``), within
    ``time_limit_s`` and on ``jobs`` processes. The search is skipped if the best known schedule takes at most
    ``least_gain`` times the proven lower bound. ``quick`` tries only a few promising methods. Schedules of
    ``others`` with a link that the network lacks are ignored. Raises UsageError if the network lacks a link
    of ``current``.
    """
    before_s = SchedulePrediction(current).time_s(network)
    request = Request(
        network=network,
        kind=current.collective.kind,
        collectives=requests_of(current.collective),
        size_bytes=size_bytes or current.collective.total_bytes(current.chunk_bytes),
        seed=current.seed,
        time_limit_s=time_limit_s,
        jobs=jobs,
        predicted=True,
        listed=True,
        quick=quick,
    )
    bound_s = max(bound.time_s for bound in bounds_of(request))
    timed = list(_predict_each(others, network))
    best_s = min([before_s, *(time_s for time_s, _ in timed)])
    searched = search and best_s > least_gain * bound_s
    if searched:
        found = synthesize(request, progress=progress).listed
        timed.append((SchedulePrediction(found).time_s(network), found))
    after_s, chosen = min(timed, key=lambda pair: pair[0], default=(before_s, current))
    if before_s < least_gain * after_s:
        return Replan(before_s, before_s, bound_s, None, searched)
    return Replan(before_s, after_s, bound_s, chosen, searched)


def _predict_each(schedules: Sequence[Schedule], network: Network) -> Iterator[tuple[float, Schedule]]:
    """Yield (predicted seconds, schedule) for each schedule whose links the network has."""
    for schedule in schedules:
        with contextlib.suppress(UsageError):
            yield SchedulePrediction(schedule).time_s(network), schedule


def requests_of(collective: Collective) -> tuple[CollectiveRequest, ...]:
    """Return the planner's requests for ``collective``: one for each part if several run at once."""
    return tuple(
        CollectiveRequest(part.kind, part.root, part.members, part if part.kind == "custom" else None)
        for part in collective.parts or (collective,)
    )
