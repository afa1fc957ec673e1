"""The result of ``synth``, as an object and as lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import figures, race_lines, race_summary
from ccctl.render.text import selection

if TYPE_CHECKING:
    from synth import Synthesis
    from synth.schedules import AnySchedule

__all__ = ["describe", "summary_of"]


def summary_of(found: Synthesis, seed: int) -> dict[str, Any]:
    """Return the object of ``synth --json``: plain values with units in their names."""
    schedule: Any = found.schedule
    if found.candidates:
        told = {
            "candidates": found.candidates,
            "synthesis_s": found.synthesis_s + found.proof_s,
            "peak_bytes": found.peak_bytes + found.workers_bytes,
            "seed": seed,
        }
        return selection.summary(schedule) | told
    outcome, whole = schedule.outcome, schedule.whole
    return {
        "method": schedule.method,
        "ranks": schedule.network.ranks,
        "ranks_taking_part": whole.size,
        "links": schedule.network.links,
        "collective": schedule.collective.label,
        "size_bytes": whole.total_bytes(schedule.chunk_bytes),
        "chunk_bytes": schedule.chunk_bytes,
        "chunks": whole.chunks,
        **{name: schedule.facts.get(name) for name in ("periods", "period_s", "translations")},
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
        "race": None if schedule.race is None else race_summary(schedule.race),
        "attempts": [figures(tried, "method chunks time_s reason") for tried in found.attempts],
        "seed": schedule.seed,
    }


def describe(found: Synthesis, say: Callable[[str], None]) -> None:
    """Print every method's best time, why the winner won, and its distance to the bound."""
    from ccctl.render import about, seconds
    from probes.base import plural

    schedule: Any = found.schedule
    if found.candidates:
        selection.draw(schedule, say)
        took_s = found.synthesis_s + found.proof_s
        say(
            f"{found.candidates} candidates timed at every size in {took_s:.1f} s, memory at most "
            f"{(found.peak_bytes + found.workers_bytes) / 1e6:.0f} MB"
        )
        return
    outcome, shape = schedule.outcome, schedule.whole
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
    say(f"{schedule.method}, {plural(shape.chunks, 'chunk')} ({found.why})")
    predicted_s = _predicted_s(schedule)
    model = "" if predicted_s is None else " in the model of links"
    say(
        f"{outcome.percent_of_optimal:.1f} % of optimal{model}, bound: {seconds(outcome.binding.time_s)} by "
        f"{outcome.binding.name}"
    )
    if predicted_s is not None:
        say(f"predicted run: {seconds(predicted_s)}, which counts steps, copies and shared ports, too")
    if schedule.race is not None:
        for line in race_lines(schedule.race):
            say(line)
    if outcome.gap is not None:
        whose = f"{schedule.method}'s" if schedule.method in ("ilp", "adapcc", "forest") else "the"
        ended = f"stopped within {100 * outcome.gap:.2g} % of" if outcome.gap else "solved to"
        say(f"{whose} integer programs were {ended} their optimum")
    if remark := schedule.remark(seconds):
        say(remark)
    say(
        f"checked: {schedule.sends} sends proven; synthesis took {found.synthesis_s:.2f} s, "
        f"the proof {found.proof_s:.2f} s, memory at most "
        f"{(found.peak_bytes + found.workers_bytes) / 1e6:.0f} MB"
    )


def _predicted_s(schedule: AnySchedule) -> float | None:
    """Return the predicted time of a run, as in ``bench`` and ``watch``; None without measured ranks."""
    from synth.prediction import schedule_run_s

    if not schedule.is_listed or not schedule.expanded().network.measured:
        return None
    return schedule_run_s(schedule.expanded())
