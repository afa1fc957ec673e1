"""What ``synth`` tells of the schedule that it kept, as an object and in lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import race_lines, race_summary
from ccctl.render.text import selection

if TYPE_CHECKING:
    from synth import Synthesis
    from synth.collective import Collective
    from synth.schedules import PeriodicSchedule, Schedule, SymmetricSchedule

__all__ = ["describe", "summary_of"]


def summary_of(found: Synthesis, seed: int) -> dict[str, Any]:
    """What ``synth --json`` prints of a schedule: plain values with units in their names."""
    from synth.schedules import Selection

    if isinstance(found.schedule, Selection):
        told = {
            "candidates": found.candidates,
            "synthesis_s": found.synthesis_s + found.proof_s,
            "peak_bytes": found.peak_bytes + found.workers_bytes,
            "seed": seed,
        }
        return selection.summary(found.schedule) | told
    from synth.schedules import PeriodicSchedule, Schedule, SymmetricSchedule

    schedule = found.schedule
    outcome = schedule.outcome
    assert outcome is not None
    whole = _whole(schedule)
    periodic = schedule if isinstance(schedule, PeriodicSchedule) else None
    symmetric = schedule if isinstance(schedule, SymmetricSchedule) else None
    race = schedule.race if isinstance(schedule, Schedule) else None
    return {
        "method": schedule.method,
        "ranks": schedule.network.ranks,
        "ranks_taking_part": _whole(schedule).size,
        "links": schedule.network.links,
        "collective": schedule.collective.label,
        "size_bytes": whole.total_bytes(schedule.chunk_bytes),
        "chunk_bytes": schedule.chunk_bytes,
        "chunks": whole.chunks,
        "periods": None if periodic is None else periodic.periods,
        "period_s": None if periodic is None else periodic.period_s,
        "translations": None if symmetric is None else symmetric.network.translations,
        "sends": schedule.sends,
        "checked": True,
        "time_s": outcome.time_s,
        "bound_s": outcome.binding.time_s,
        "percent_of_optimal": outcome.percent_of_optimal,
        "predicted_run_s": _predicted_s(schedule),
        "binding_bound": outcome.binding.name,
        "bounds_s": {bound.name: bound.time_s for bound in outcome.bounds},
        "status": outcome.status,
        "gap_percent": None if outcome.gap is None else 100 * outcome.gap,
        "synthesis_s": found.synthesis_s,
        "proof_s": found.proof_s,
        "peak_bytes": found.peak_bytes + found.workers_bytes,
        "why": found.why,
        "race": None if race is None else race_summary(race),
        "attempts": [
            {"method": tried.method, "chunks": tried.chunks, "time_s": tried.time_s, "reason": tried.reason}
            for tried in found.attempts
        ],
        "seed": schedule.seed,
    }


def describe(found: Synthesis, say: Callable[[str], None]) -> None:
    """The same in lines for people: every method's best time, why the winner won, how near its bound."""
    from synth.schedules import Selection

    if isinstance(found.schedule, Selection):
        selection.draw(found.schedule, say)
        took_s = found.synthesis_s + found.proof_s
        say(
            f"{found.candidates} candidates timed at every size in {took_s:.1f} s, memory at most "
            f"{(found.peak_bytes + found.workers_bytes) / 1e6:.0f} MB"
        )
        return
    from ccctl.render import about, seconds
    from probes.base import plural
    from synth.schedules import PeriodicSchedule, Schedule, SymmetricSchedule

    schedule = found.schedule
    outcome = schedule.outcome
    assert outcome is not None
    shape = _whole(schedule)
    say(
        f"{shape.label} of {about(shape.total_bytes(schedule.chunk_bytes))} on {schedule.network.name}: "
        f"{shape.ranks_in_words}, {plural(shape.chunks, 'chunk')} of "
        f"{about(schedule.chunk_bytes)}"
    )
    best: dict[str, float] = {}
    for tried in found.attempts:
        if tried.time_s is not None:
            best[tried.maker] = min(tried.time_s, best.get(tried.maker, float("inf")))
        else:
            console.detail(f"{tried.method}: {tried.reason}")
    widest = max([8, *map(len, best)])
    for name, time_s in sorted(best.items(), key=lambda pair: pair[1]):
        mark = "*" if name == schedule.method else " "
        say(f"{mark} {name:{widest}s} {seconds(time_s)}")
    say(f"{schedule.method} with {plural(shape.chunks, 'chunk')}: {found.why}")
    predicted_s = _predicted_s(schedule)
    model = "" if predicted_s is None else " by links alone"
    say(
        f"{outcome.percent_of_optimal:.1f} % of optimal{model}, bound: {seconds(outcome.binding.time_s)} by "
        f"{outcome.binding.name}"
    )
    if predicted_s is not None:
        say(f"predicted run: {seconds(predicted_s)}, with what ranks need for steps, copies and shared ports")
    if isinstance(schedule, Schedule) and schedule.race is not None:
        for line in race_lines(schedule.race):
            say(line)
    if outcome.gap is not None:
        whose = f"{schedule.method}'s" if schedule.method in ("ilp", "adapcc", "forest") else "the"
        say(f"{outcome.status}: {whose} integer programs leave a gap of {100 * outcome.gap:.2g} %")
    if isinstance(schedule, SymmetricSchedule):
        say(
            f"symmetric: {len(schedule.chunk)} sends, one of each orbit, with "
            f"{schedule.network.translations} translates each"
        )
    if isinstance(schedule, PeriodicSchedule):
        say(
            f"periodic: {len(schedule.chunk)} sends, repeated {schedule.periods} times, every "
            f"{seconds(schedule.period_s)}"
        )
    say(
        f"checked: {schedule.sends} sends proven; synthesis took {found.synthesis_s:.2f} s, "
        f"the proof {found.proof_s:.2f} s, memory at most "
        f"{(found.peak_bytes + found.workers_bytes) / 1e6:.0f} MB"
    )


def _predicted_s(schedule: Schedule | PeriodicSchedule | SymmetricSchedule) -> float | None:
    """The prediction of a run that ``bench`` and ``watch`` give; None where no ranks were measured."""
    from synth.prediction import schedule_run_s
    from synth.schedules import Schedule

    if not isinstance(schedule, Schedule) or not schedule.network.measured:
        return None
    return schedule_run_s(schedule)


def _whole(schedule: Schedule | PeriodicSchedule | SymmetricSchedule) -> Collective:
    """The collective with the chunks of all periods."""
    from synth.schedules import PeriodicSchedule

    if not isinstance(schedule, PeriodicSchedule):
        return schedule.collective
    return replace(schedule.collective, chunks=schedule.chunks)
