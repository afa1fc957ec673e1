"""The findings and the decision of a watch run, as lines and as an object."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import about, figures, percent, seconds
from ccctl.render.text.history import moment
from probes.base import plural
from probes.profiling import EFFECT, RECENT_RUNS, Names

if TYPE_CHECKING:
    from pathlib import Path

    from ccctl.watch import WatchFindings, WatchOutcome, WatchRequest
    from probes.link_costs import SentSegments
    from probes.profiling import Standing

__all__ = ["findings", "say_decision", "say_found", "summary"]

_MOST_NAMED = 3
# A lower factor of time would be printed as 1.00.
_COSTS = 1.005


def findings(request: WatchRequest, found: WatchFindings) -> list[str]:
    """Return the findings for the operator, the most expensive first."""
    gone = [f"{name} of the baseline is not there" for name in found.verdict.drift.gone]
    return gone + [_sentence(request, found, one) for one in found.standing]


def say_found(request: WatchRequest, found: WatchFindings) -> None:
    """Print changes for the worse and recoveries; with drift, ``-q`` does not silence them."""
    with console.spoken(found.drifted):
        for text in findings(request, found):
            console.data(f"drift: {text}")
        for one in found.verdict.recovered:
            console.data(f"recovered: {one} (worse since {moment(one.since_s)})")
    drift, source = found.verdict.drift, request.baseline.source
    if found.budget_for_all_s is not None:
        every = drift.compared + drift.unmeasured
        console.note(
            f"{drift.unmeasured} of {plural(every, 'link')} of {source} did not fit into --budget "
            f"{request.budget_s:g}s: the next runs begin with them; {_budget(found)} measures all in one run"
        )
    for change in drift.doubtful:
        console.note(f"{change.summary}: does not count: one end waited for a core in every measurement")
    for change in found.verdict.harmless:
        console.note(f"does not count: {change.summary}, but {_harmless_cost(request)}")
    if found.standing and found.now.links.flagged("preempted").any():
        console.note(
            "ranks waited for cores in this run, which may also lower bandwidths: a drift that the next run "
            "no longer names was the hosts' load"
        )
    for segments in _lossy(found):
        console.note(segments.finding)
    if not found.drifted:
        links = plural(drift.compared, "link")
        console.data(f"no drift: {links} as fast as in {source}, within {_tolerance(request)}")
    elif found.standing:
        console.data(
            f"{_collective(request)} with {request.schedule_file.source}: predicted "
            f"{seconds(request.baseline_s)} on the baseline, {seconds(found.now_s)} now "
            f"({_times(found.now_s / request.baseline_s)})"
        )


def _lossy(found: WatchFindings) -> list[SentSegments]:
    """Return the hosts that lose packets."""
    return [segment for segment in found.now.segments if segment.lossy]


def say_decision(request: WatchRequest, found: WatchFindings, outcome: WatchOutcome, current: Path) -> None:
    """Print the chosen schedule, and why; with drift, ``-q`` does not silence a change."""
    plan = outcome.plan
    if outcome.unknown:
        with console.spoken(found.drifted):
            console.data(f"{current} stays: {_unknown(found, outcome)}")
    if plan is None:
        return
    if outcome.adopted is not None:
        with console.spoken(found.drifted):
            console.data(
                f"{outcome.events[-1].text} ({seconds(plan.before_s)} → {seconds(plan.after_s)}); "
                f"it is {current} now"
            )
    elif plan.searched:
        console.data(
            f"{current} stays, predicted {seconds(plan.before_s)}: no schedule found is "
            f"{request.least_gain:.2f} times as fast"
        )
    else:
        console.data(
            f"{current} stays: predicted {seconds(plan.before_s)}, {_of_optimal(plan.bound_s, plan.before_s)}"
        )


def summary(
    request: WatchRequest, found: WatchFindings, outcome: WatchOutcome, current: Path, seconds: float
) -> dict[str, Any]:
    """Return the object of ``--json``."""
    drift, plan = found.verdict.drift, outcome.plan
    known = request.schedule_file.schedule.outcome
    optimal = known.percent_of_optimal if known is not None else None
    if plan is not None and plan.after_s:
        optimal = 100 * min(1.0, plan.bound_s / plan.after_s)
    return {
        **figures(drift, "compared unmeasured"),
        **figures(found, "budget_for_all_s predicted_now_s=now_s"),
        **figures(outcome, "runs=history.runs returned"),
        "ranks": len(found.now.ranks),
        "links": len(found.now.links.src),
        "lossy": [figures(one, "host sent retransmitted") for one in _lossy(found)],
        "unknown": _links(found, outcome.unknown),
        "events": [
            *({"kind": "gone", "what": name} for name in drift.gone),
            *(_standing(found, one) for one in found.standing),
            *(_recovered(found, one) for one in found.verdict.recovered),
            *({"kind": "schedule", "what": event.text} for event in outcome.events),
        ],
        "findings": findings(request, found),
        "predicted_baseline_s": request.baseline_s,
        "predicted_s": plan.after_s if plan is not None else found.now_s,
        "resynthesized": outcome.adopted is not None and not outcome.returned,
        "searched": plan is not None and plan.searched,
        "predicted_gain": plan.gain if plan is not None else 1.0,
        "predicted_gain_percent": 100 * (plan.gain - 1) if plan is not None else 0.0,
        "percent_of_optimal": optimal,
        "schedule": str(current),
        "kept_as": str(outcome.adopted) if outcome.adopted is not None else None,
        "seconds": seconds,
    }


def _sentence(request: WatchRequest, found: WatchFindings, one: Standing) -> str:
    cost = found.cost_of(one)
    label = request.schedule_file.schedule.collective.label
    costs = f"; {label} takes {_times(cost)}" if cost is not None else ""
    if one.lasting:
        since = f"lasting since {moment(one.since_s)}"
    else:
        since = "new in this run" if one.new else f"since {moment(one.since_s)}"
    if one.recalled:
        which = "" if one.recalled == len(one.change.links) else f"{one.recalled} of its links "
        since += f", {which}not measured in this run"
    return f"{one.change.summary}; {since}{costs}"


def _times(cost: float) -> str:
    """Return a factor of time in words: a change of less than a hundredth costs nothing."""
    return f"{cost:.2f} times as long" if cost >= _COSTS else "no longer than before"


def _budget(found: WatchFindings) -> str:
    return f"--budget {found.budget_for_all_s:g}s"


def _unknown(found: WatchFindings, outcome: WatchOutcome) -> str:
    """Return why no schedule was chosen, and what to do."""
    history, names = outcome.history, Names(outcome.history.hosts)
    named = [names.link(*pair) for pair in _links(found, outcome.unknown[:_MOST_NAMED])]
    named += ["…"] if len(outcome.unknown) > _MOST_NAMED else []
    in_a_run = max(1, found.verdict.drift.compared)
    runs = plural(math.ceil(len(outcome.unknown) / in_a_run), "more run")
    when = [f"in about {runs}"] if in_a_run * RECENT_RUNS >= history.links else []
    when += [f"with {_budget(found)}"] if found.budget_for_all_s is not None else []
    return (
        f"{len(outcome.unknown)} of {plural(history.links, 'link')} ({', '.join(named)}) were not measured "
        f"since the network changed; a schedule is chosen once all are, {' or '.join(when)}"
    )


def _standing(found: WatchFindings, one: Standing) -> dict[str, Any]:
    change = one.change
    return {
        "kind": "drift",
        **figures(change, "what quantity before now ratio tolerated=allowed"),
        **figures(one, "new lasting recalled"),
        "since": moment(one.since_s),
        "collective_times": found.cost_of(one),
        "links": _links(found, change.rows),
    }


def _recovered(found: WatchFindings, one: Any) -> dict[str, Any]:
    result = {"kind": "recovered", **figures(one, "what quantity before now")}
    return result | {"since": moment(one.since_s), "links": _links(found, one.rows)}


def _links(found: WatchFindings, rows: tuple[int, ...]) -> list[list[int]]:
    history = found.verdict.history
    return [[int(history.src[row]), int(history.dst[row])] for row in rows]


def _harmless_cost(request: WatchRequest) -> str:
    """Return the limit below which the cost of a change counts as harmless, as text."""
    return f"{_collective(request)} takes at most {percent(1 / (1 - EFFECT) - 1)} longer"


def _collective(request: WatchRequest) -> str:
    schedule = request.schedule_file.schedule
    size = about(schedule.collective.total_bytes(schedule.chunk_bytes))
    return f"{schedule.collective.label} of {size}"


def _tolerance(request: WatchRequest) -> str:
    if request.share is None:
        return f"their noise, or {percent(request.tolerated)} where that is more"
    return percent(request.tolerated)


def _of_optimal(bound_s: float, time_s: float) -> str:
    return f"{percent(min(1.0, bound_s / time_s))} of what is possible" if time_s else "nothing to gain"
