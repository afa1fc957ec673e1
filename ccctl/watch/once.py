"""One run of a watch: changes of links, their cost for the collective, and the schedule to use then."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ccctl.artifacts import codec
from ccctl.watch.state import ScheduleFile, StateFolder
from exec.replan import Replan, SchedulePrediction, replanned
from probes.base import SILENT, Progress
from probes.profiling import (
    EFFECT,
    Event,
    Standing,
    Turns,
    WatchVerdict,
    brought_up_to_date,
    in_turn,
    joined,
    judged,
    links_at,
    recalled,
    together,
    with_events,
)
from synth.networks import from_profile

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from ccctl.launching import Deadline
    from probes.base import Mask
    from probes.link_costs import Profile
    from probes.profiling import Change, History
    from synth.network import Network

__all__ = [
    "LinkTurns",
    "Measure",
    "WatchFindings",
    "WatchOutcome",
    "WatchRequest",
    "measure_and_judge",
    "replan",
]


@dataclass(frozen=True, eq=False)
class LinkTurns:
    """Links to measure in order within ``budget_s``; ``again``: they seemed worse in this run."""

    turns: Turns
    budget_s: float
    again: bool = False


Measure = Callable[[LinkTurns], "Profile"]

# A higher latency is reported only if it slows the collective down by more than this factor, the slowdown of
# a link by the smallest reported loss of bandwidth. Nobody drains a node for less.
_MATTERS = 1 / (1 - EFFECT)
# Most changes, the largest first, whose cost is predicted.
_MOST_COSTS = 8
_LEAST_BUDGET_S = 1.0
# Share of the budget for the first measurement, which shows the hosts that drift; their links come next.
_FIRST_LOOK = 0.5
# An advised budget is larger by this factor, because the time of a round varies.
_ROOM = 1.25
_MOST_SEARCH_S = 60.0
_GONE = "{} is not there"
# Share of the remaining time for the search; the rest is for the proof and for writing.
_FOR_SEARCH = 0.75
# A new search is made only if a link differs by at least this share from the network of the last search.
_ALIKE = 0.10


@dataclass(frozen=True, eq=False)
class WatchRequest:
    """The request of a watch: the baseline, the schedule, and the thresholds.

    ``share`` is the share of its bandwidth that a link may lose; None judges by noise. Another schedule is
    used only if it is predicted to be at least ``least_gain`` times as fast.
    """

    baseline: Artifact
    schedule_file: ScheduleFile
    share: float | None
    least_gain: float
    budget_s: float

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"baseline": self.baseline.sha256, "schedule": self.schedule_file.sha256}

    @property
    def tolerated(self) -> float:
        """The share of its bandwidth that a link may lose without being reported."""
        return EFFECT if self.share is None else self.share

    @cached_property
    def network(self) -> Network:
        """The network of the baseline."""
        return self.network_of(self.baseline.body)

    @cached_property
    def forecast(self) -> SchedulePrediction:
        return SchedulePrediction(self.schedule_file.schedule)

    @cached_property
    def baseline_s(self) -> float:
        """The predicted time of the given schedule on the baseline's network."""
        return self.forecast.time_s(self.network)

    def network_of(self, profile: Profile) -> Network:
        return from_profile(profile, Path(self.baseline.source).name)


@dataclass(frozen=True, eq=False)
class WatchFindings:
    """The findings of a run.

    ``costs`` are the factors by which each of the largest changes alone slows down the schedule. ``now`` is
    the measured profile; ``seen`` adds links that were worse before and were not measured in this run.
    ``budget_for_all_s`` would be enough to measure every link in one run; None if this run measured all.
    """

    verdict: WatchVerdict
    current: ScheduleFile
    now: Profile
    seen: Profile
    network: Network
    standing: tuple[Standing, ...]
    costs: tuple[float, ...]
    now_s: float
    events: tuple[Event, ...]
    budget_for_all_s: float | None = None

    @property
    def drifted(self) -> bool:
        return bool(self.standing or self.verdict.drift.gone)

    def cost_of(self, standing: Standing) -> float | None:
        """Return the factor by which a change slows down the schedule; None for all but the largest."""
        at = self.standing.index(standing)
        return self.costs[at] if at < len(self.costs) else None


@dataclass(frozen=True, eq=False)
class WatchOutcome:
    """The decision of a run.

    ``plan`` is None if there was nothing to decide. ``adopted`` is the file of another schedule, if it is to
    be used; ``returned`` says that this is the given schedule again. ``unknown`` are links that were not
    measured lately, or not since the network changed; with any, nothing is decided.
    """

    history: History
    plan: Replan | None = None
    adopted: Path | None = None
    returned: bool = False
    events: tuple[Event, ...] = ()
    unknown: tuple[int, ...] = ()


def measure_and_judge(
    request: WatchRequest, state: StateFolder, measure: Measure, at_s: float
) -> WatchFindings:
    """Measure links and judge them; links that seem worse are measured once more before they count.

    Links of hosts that drift come first, then those measured longest ago. Nothing is written, except that the
    given schedule becomes the current one if there is none yet.
    """
    baseline = request.baseline.body
    history = state.history(baseline, request.baseline.source)
    current = state.current(request.schedule_file)
    every = np.ones(history.links, dtype=np.bool_)
    worse = np.flatnonzero((history.bandwidth_since_s > 0) | (history.latency_since_s > 0)).tolist()
    beside = links_at(history, [rows for _, rows in together(baseline, worse)]) & ~history.known()
    now = measure(LinkTurns(in_turn(history, every, beside), _FIRST_LOOK * request.budget_s))
    found = _judged(request, history, current, now, at_s)
    left = _unmeasured(found)
    left_s = request.budget_s - now.seconds
    if left.any() and left_s > 0 and not found.verdict.drift.gone:
        after = found.verdict.history
        beside = links_at(after, [one.change.rows for one in found.standing]) & ~after.known()
        now = joined(now, measure(LinkTurns(in_turn(after, left, beside), left_s)))
        found = _judged(request, history, current, now, at_s)
        left = _unmeasured(found)
    needed_s = _budget_for_all_s(now, left) if left.any() else None
    verdict = found.verdict
    suspects = [*(one.change for one in found.standing), *verdict.drift.doubtful, *verdict.harmless]
    if suspects and not verdict.drift.gone:
        again = np.zeros(history.links, dtype=np.bool_)
        again[[row for change in suspects for row in change.rows]] = True
        left_s = max(_LEAST_BUDGET_S, request.budget_s - now.seconds)
        now = joined(now, measure(LinkTurns(in_turn(verdict.history, again, again), left_s, again=True)))
        found = _judged(request, history, current, now, at_s)
    costs = [_cost(request, found.seen, one.change) for one in found.standing[:_MOST_COSTS]]
    order = sorted(range(len(costs)), key=lambda at: -costs[at])
    standing = (*(found.standing[at] for at in order), *found.standing[_MOST_COSTS:])
    found = replace(found, standing=standing, costs=tuple(costs[at] for at in order))
    return replace(found, events=_events(found, history, at_s), budget_for_all_s=needed_s)


def replan(
    request: WatchRequest,
    state: StateFolder,
    found: WatchFindings,
    deadline: Deadline,
    at_s: float,
    *,
    jobs: int = 1,
    progress: Progress = SILENT,
) -> WatchOutcome:
    """Write the findings, then decide about the schedule and write the decision.

    If ranks are gone, no schedule is made for the others, because the job itself must change first.
    """
    history = with_events(found.verdict.history, found.events)
    as_given = found.current.content == request.schedule_file.content
    # Write before the search, which may take long or be interrupted.
    state.keep(history, request.inputs)
    if found.verdict.drift.gone or (as_given and not found.standing):
        return WatchOutcome(history)
    # Another schedule might be slower because of a link that was not measured.
    if len(unknown := np.flatnonzero(~history.known())):
        return WatchOutcome(history, unknown=tuple(unknown.tolist()))
    left_s = deadline.left_s()
    plan = replanned(
        found.current.schedule,
        found.network,
        least_gain=request.least_gain,
        size_bytes=request.schedule_file.schedule.collective.total_bytes(
            request.schedule_file.schedule.chunk_bytes
        ),
        others=() if as_given else (request.schedule_file.schedule,),
        search=bool(found.standing) and not _already_searched(history, found.network),
        time_limit_s=_MOST_SEARCH_S if left_s is None else min(_MOST_SEARCH_S, _FOR_SEARCH * left_s),
        jobs=jobs,
        progress=progress,
    )
    deadline.left_s()
    if plan.searched:
        history = replace(history, searched_s_per_byte=found.network.beta_s_per_byte)
    if plan.schedule is None:
        if plan.searched:
            state.keep(history, request.inputs)
        return WatchOutcome(history, plan)
    back = plan.schedule is request.schedule_file.schedule
    content = (
        request.schedule_file.content if back else codec.encode("schedule", plan.schedule, request.inputs)
    )
    adopted = state.adopt(content, datetime.fromtimestamp(at_s, UTC))
    which = "the given schedule" if back else f"a new schedule ({plan.schedule.method})"
    text = f"{which} is predicted to be {plan.gain:.2f} times as fast: {adopted.name}"
    events = (Event(at_s, "schedule", text),)
    history = with_events(history, events)
    state.keep(history, request.inputs)
    return WatchOutcome(history, plan, adopted, back, events)


def _unmeasured(found: WatchFindings) -> Mask:
    history = found.verdict.history
    return np.asarray(history.measured_s < history.at_s[-1], dtype=np.bool_)


def _budget_for_all_s(now: Profile, left: Mask) -> float:
    """Return the budget, rounded up to two digits, for measuring all links at the pace of ``now``."""
    exact_s = _ROOM * now.seconds * len(left) / max(1, len(left) - int(left.sum()))
    digit_s = 10.0 ** (math.floor(math.log10(max(exact_s, _LEAST_BUDGET_S))) - 1)
    return round(math.ceil(exact_s / digit_s) * digit_s, 3)


def _judged(
    request: WatchRequest, history: History, current: ScheduleFile, now: Profile, at_s: float
) -> WatchFindings:
    baseline = request.baseline.body
    seen = recalled(baseline, now, history)

    def matters(change: Change) -> bool:
        return change.quantity == "bandwidth" or _cost(request, seen, change) > _MATTERS

    verdict = judged(history, baseline, now, at_s, request.share, matters)
    network = request.network_of(brought_up_to_date(baseline, seen, verdict.changes))
    standing = tuple(sorted(verdict.standing, key=lambda one: -one.change.times))
    now_s = request.forecast.time_s(network) if verdict.changes else request.baseline_s
    return WatchFindings(verdict, current, now, seen, network, standing, (), now_s, ())


def _cost(request: WatchRequest, now: Profile, change: Change) -> float:
    """Return the factor by which ``change`` alone slows down the given schedule."""
    alone = brought_up_to_date(request.baseline.body, now, [change])
    return request.forecast.time_s(request.network_of(alone)) / request.baseline_s


def _events(found: WatchFindings, before: History, at_s: float) -> tuple[Event, ...]:
    """Return the differences from the last run."""
    verdict = found.verdict
    events = [Event(at_s, "drift", one.change.summary) for one in found.standing if one.new]
    events += [Event(at_s, "recovered", str(one)) for one in verdict.recovered]
    events += [
        Event(at_s, "gone", _GONE.format(name)) for name in verdict.drift.gone if _is_newly_gone(before, name)
    ]
    return tuple(events)


def _is_newly_gone(history: History, name: str) -> bool:
    """Return whether a missing host or rank is newly gone: no run reported it since it was last measured."""
    gone_s = [event.at_s for event in history.events if event.text == _GONE.format(name)]
    host = name.rpartition(" ")[2]
    ends = [
        host in (history.hosts[src], history.hosts[dst])
        for src, dst in zip(history.src, history.dst, strict=True)
    ]
    return not gone_s or bool((history.measured_s[ends] > gone_s[-1]).any())


def _already_searched(history: History, network: Network) -> bool:
    """Return whether a schedule was last searched for a network like this one."""
    before = history.searched_s_per_byte
    if not len(before):
        return False
    return bool(np.abs(np.log(network.beta_s_per_byte / np.maximum(before, 1e-30))).max() < np.log1p(_ALIKE))
