"""One run of a watch: what it finds, what that costs the collective, and which schedule is used then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ccctl.artifacts import codec
from ccctl.errors import TimeoutExpired
from ccctl.watch.state import Given, StateFolder
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
    from probes.base import Mask
    from probes.link_costs import Profile
    from probes.profiling import Change, History
    from synth.network import Network

__all__ = ["Asked", "Deadline", "Found", "LinkTurns", "Measure", "WatchOutcome", "looked", "replan"]


@dataclass(frozen=True, eq=False)
class LinkTurns:
    """Links to measure in turn, within so many seconds; ``again``: they seemed to be worse a moment ago."""

    turns: Turns
    budget_s: float
    again: bool = False


Measure = Callable[[LinkTurns], "Profile"]

# A change of latency stands only where it costs the collective as much as the least loss of bandwidth that
# is told costs a link: below that nobody drains a node.
_MATTERS = 1 / (1 - EFFECT)
# So many changes, the largest first, have their cost told.
_MOST_COSTS = 8
_LEAST_BUDGET_S = 1.0
# Share of the budget for the first look. It tells what drifts; the links beside that come next.
_FIRST_LOOK = 0.5
# A budget that is advised has so much room: the time that a round takes varies.
_ROOM = 1.25
_MOST_SEARCH_S = 60.0
_GONE = "{} is not there"
# Share of the time left for the search; the rest is for the proof and for writing.
_FOR_SEARCH = 0.75
# A network on which no link differs by more was searched already.
_ALIKE = 0.10


@dataclass(frozen=True)
class Deadline:
    """The time that the user gave for everything, from now on."""

    limit_s: float | None
    began_s: float = field(default_factory=time.monotonic)

    def left_s(self) -> float | None:
        """Return seconds that are left, None without a limit; raises TimeoutExpired where there are none."""
        if self.limit_s is None:
            return None
        left_s = self.began_s + self.limit_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutExpired(f"not done within {self.limit_s:g} s")
        return left_s


@dataclass(frozen=True, eq=False)
class Asked:
    """The links to watch and when to act: ``share`` of its bandwidth that a link may lose (None: by noise).

    ``least_gain`` is how many times as fast another schedule must be predicted to be.
    """

    baseline: Artifact
    given: Given
    share: float | None
    least_gain: float
    budget_s: float

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"baseline": self.baseline.sha256, "schedule": self.given.sha256}

    @property
    def tolerated(self) -> float:
        """The share of its bandwidth that a link may lose at least before it is reported."""
        return EFFECT if self.share is None else self.share

    @cached_property
    def network(self) -> Network:
        """The network of the baseline."""
        return self.network_of(self.baseline.body)

    @cached_property
    def forecast(self) -> SchedulePrediction:
        return SchedulePrediction(self.given.schedule)

    @cached_property
    def baseline_s(self) -> float:
        """The predicted time of the given schedule on the baseline's network."""
        return self.forecast.time_s(self.network)

    def network_of(self, profile: Profile) -> Network:
        return from_profile(profile, Path(self.baseline.source).name)


@dataclass(frozen=True, eq=False)
class Found:
    """The findings of a run: ``costs`` are how many times as long the schedule takes with one change alone.

    ``now`` is what was measured, ``seen`` also what was worse before and could not be measured in this run.
    ``budget_for_all_s`` would do to measure every link in one run; None where this run did.
    """

    verdict: WatchVerdict
    current: Given
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
        """Return what a change costs; None for all but the largest."""
        at = self.standing.index(standing)
        return self.costs[at] if at < len(self.costs) else None


@dataclass(frozen=True, eq=False)
class WatchOutcome:
    """The decision of a run: the ``plan``, None if there was none to make, and the file of another schedule.

    ``returned`` says that this is the given one again. Nothing is decided while links are ``unknown``: those
    rows were not measured lately, or not since the network changed.
    """

    history: History
    plan: Replan | None = None
    adopted: Path | None = None
    returned: bool = False
    events: tuple[Event, ...] = ()
    unknown: tuple[int, ...] = ()


def looked(asked: Asked, state: StateFolder, measure: Measure, at_s: float) -> Found:
    """Measure, and judge; what seems to be worse is measured once more before it counts.

    Links of hosts that drift come first, then those measured longest ago. Nothing is written, but where there
    is no current schedule yet the given one becomes it.
    """
    baseline = asked.baseline.body
    history = state.history(baseline, asked.baseline.source)
    current = state.current(asked.given)
    every = np.ones(history.links, dtype=np.bool_)
    worse = np.flatnonzero((history.bandwidth_since_s > 0) | (history.latency_since_s > 0)).tolist()
    beside = links_at(history, [rows for _, rows in together(baseline, worse)]) & ~history.known()
    now = measure(LinkTurns(in_turn(history, every, beside), _FIRST_LOOK * asked.budget_s))
    found = _judged(asked, history, current, now, at_s)
    left = _unmeasured(found)
    left_s = asked.budget_s - now.seconds
    if left.any() and left_s > 0 and not found.verdict.drift.gone:
        after = found.verdict.history
        beside = links_at(after, [one.change.rows for one in found.standing]) & ~after.known()
        now = joined(now, measure(LinkTurns(in_turn(after, left, beside), left_s)))
        found = _judged(asked, history, current, now, at_s)
        left = _unmeasured(found)
    needed_s = _budget_for_all_s(now, left) if left.any() else None
    verdict = found.verdict
    suspects = [*(one.change for one in found.standing), *verdict.drift.doubtful, *verdict.harmless]
    if suspects and not verdict.drift.gone:
        again = np.zeros(history.links, dtype=np.bool_)
        again[[row for change in suspects for row in change.rows]] = True
        left_s = max(_LEAST_BUDGET_S, asked.budget_s - now.seconds)
        now = joined(now, measure(LinkTurns(in_turn(verdict.history, again, again), left_s, again=True)))
        found = _judged(asked, history, current, now, at_s)
    costs = [_cost(asked, found.seen, one.change) for one in found.standing[:_MOST_COSTS]]
    order = sorted(range(len(costs)), key=lambda at: -costs[at])
    standing = (*(found.standing[at] for at in order), *found.standing[_MOST_COSTS:])
    found = replace(found, standing=standing, costs=tuple(costs[at] for at in order))
    return replace(found, events=_events(found, history, at_s), budget_for_all_s=needed_s)


def replan(
    asked: Asked,
    state: StateFolder,
    found: Found,
    deadline: Deadline,
    at_s: float,
    *,
    jobs: int = 1,
    progress: Progress = SILENT,
) -> WatchOutcome:
    """Keep what was found, then decide about the schedule; all that is decided is written.

    Where ranks are gone no schedule for the others is made: the job itself has to change then.
    """
    history = with_events(found.verdict.history, found.events)
    as_given = found.current.content == asked.given.content
    # The search may take long, or be ended: what was measured is safe before it begins.
    state.keep(history, asked.inputs)
    if found.verdict.drift.gone or (as_given and not found.standing):
        return WatchOutcome(history)
    # Another schedule may be slower for what nobody has seen.
    if len(unknown := np.flatnonzero(~history.known())):
        return WatchOutcome(history, unknown=tuple(unknown.tolist()))
    left_s = deadline.left_s()
    plan = replanned(
        found.current.schedule,
        found.network,
        least_gain=asked.least_gain,
        size_bytes=asked.given.schedule.collective.total_bytes(asked.given.schedule.chunk_bytes),
        others=() if as_given else (asked.given.schedule,),
        search=bool(found.standing) and not _searched(history, found.network),
        time_limit_s=_MOST_SEARCH_S if left_s is None else min(_MOST_SEARCH_S, _FOR_SEARCH * left_s),
        jobs=jobs,
        progress=progress,
    )
    deadline.left_s()
    if plan.searched:
        history = replace(history, searched_s_per_byte=found.network.beta_s_per_byte)
    if plan.schedule is None:
        if plan.searched:
            state.keep(history, asked.inputs)
        return WatchOutcome(history, plan)
    back = plan.schedule is asked.given.schedule
    content = asked.given.content if back else codec.encode("schedule", plan.schedule, asked.inputs)
    adopted = state.adopt(content, datetime.fromtimestamp(at_s, UTC))
    which = "the given schedule" if back else f"a new schedule ({plan.schedule.method})"
    text = f"{which} is predicted to be {plan.gain:.2f} times as fast: {adopted.name}"
    events = (Event(at_s, "schedule", text),)
    history = with_events(history, events)
    state.keep(history, asked.inputs)
    return WatchOutcome(history, plan, adopted, back, events)


def _unmeasured(found: Found) -> Mask:
    history = found.verdict.history
    return np.asarray(history.measured_s < history.at_s[-1], dtype=np.bool_)


def _budget_for_all_s(now: Profile, left: Mask) -> float:
    """Return the budget, in two digits, in which every link can be measured at the pace of the looks
    of ``now``.
    """
    exact_s = _ROOM * now.seconds * len(left) / max(1, len(left) - int(left.sum()))
    digit_s = 10.0 ** (math.floor(math.log10(max(exact_s, _LEAST_BUDGET_S))) - 1)
    return round(math.ceil(exact_s / digit_s) * digit_s, 3)


def _judged(asked: Asked, history: History, current: Given, now: Profile, at_s: float) -> Found:
    baseline = asked.baseline.body
    seen = recalled(baseline, now, history)

    def matters(change: Change) -> bool:
        return change.quantity == "bandwidth" or _cost(asked, seen, change) > _MATTERS

    verdict = judged(history, baseline, now, at_s, asked.share, matters)
    network = asked.network_of(brought_up_to_date(baseline, seen, verdict.changes))
    standing = tuple(sorted(verdict.standing, key=lambda one: -one.change.times))
    now_s = asked.forecast.time_s(network) if verdict.changes else asked.baseline_s
    return Found(verdict, current, now, seen, network, standing, (), now_s, ())


def _cost(asked: Asked, now: Profile, change: Change) -> float:
    """Return how many times as long the given schedule takes when this alone has changed."""
    alone = brought_up_to_date(asked.baseline.body, now, [change])
    return asked.forecast.time_s(asked.network_of(alone)) / asked.baseline_s


def _events(found: Found, before: History, at_s: float) -> tuple[Event, ...]:
    """Return what is different from the last run."""
    verdict = found.verdict
    events = [Event(at_s, "drift", one.change.told) for one in found.standing if one.new]
    events += [Event(at_s, "recovered", str(one)) for one in verdict.recovered]
    events += [Event(at_s, "gone", _GONE.format(name)) for name in verdict.drift.gone if _left(before, name)]
    return tuple(events)


def _left(history: History, name: str) -> bool:
    """Return whether a host or rank that is gone was there before: no run has said so, or it was
    measured since.
    """
    gone_s = [event.at_s for event in history.events if event.text == _GONE.format(name)]
    host = name.rpartition(" ")[2]
    ends = [
        host in (history.hosts[src], history.hosts[dst])
        for src, dst in zip(history.src, history.dst, strict=True)
    ]
    return not gone_s or bool((history.measured_s[ends] > gone_s[-1]).any())


def _searched(history: History, network: Network) -> bool:
    """Return whether a schedule was last searched for a network like this one."""
    before = history.searched_s_per_byte
    if not len(before):
        return False
    return bool(np.abs(np.log(network.beta_s_per_byte / np.maximum(before, 1e-30))).max() < np.log1p(_ALIKE))
