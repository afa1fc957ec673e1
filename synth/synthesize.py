"""The portfolio: every method's schedules, of which the best by simulated time is kept.

Every schedule is judged by ``synth.check`` before it leaves here, and comes with its bounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from probes.errors import UsageError
from probes.progress import SILENT, Progress
from synth.bounds import bounds
from synth.check import check
from synth.collective import KINDS, collective
from synth.methods import forest, greedy
from synth.milp import require
from synth.plans import METHODS, Request, cut, plans
from synth.schedule import Bound, Outcome, Schedule
from synth.simulate import replay
from synth.trials import Trials

__all__ = ["KINDS", "METHODS", "Attempt", "Request", "Synthesis", "bounds_of", "synthesize", "warm"]

# Every send costs its ranks some time that no alpha holds, so each doubling of them must gain.
_FINER_MUST_GAIN = 0.008


@dataclass(frozen=True)
class Attempt:
    """One schedule that was tried, or why it could not be."""

    method: str
    chunks: int
    time_s: float | None
    reason: str = ""
    sends: int = 0


@dataclass(frozen=True)
class Synthesis:
    """The best schedule, proven and bounded, and everything that was tried.

    ``synthesis_s`` is what the search took, ``proof_s`` what the bounds and the judge took.
    """

    schedule: Schedule
    attempts: tuple[Attempt, ...]
    synthesis_s: float
    proof_s: float


def synthesize(
    request: Request, progress: Progress = SILENT, keep: Callable[[Schedule], object] | None = None
) -> Synthesis:
    """The best schedule that the requested method, or every method, finds; ``keep`` is given all of them.

    Raises UsageError where nothing applies, and RuntimeError if the judge refuses the winner, which
    would be a bug.
    """
    if request.solver != "cbc" or (request.method in METHODS and METHODS[request.method].solves):
        require(request.solver)
    begun_s = time.perf_counter()
    proven = bounds_of(request)
    bounded_s = time.perf_counter()
    target_s = max(bound.time_s for bound in proven)
    tried = list(plans(request))
    best: Schedule | None = None
    best_s = float("inf")
    attempts: list[Attempt] = []
    with Trials(request, tried, begun_s) as trials:
        for done, plan in enumerate(tried):
            progress.update(done, len(tried), plan.name)
            if best_s <= target_s * (1 + 1e-9):
                break
            if plan.pointless(request, best, best_s / target_s if target_s else 1.0):
                continue
            trial = trials.result(done)
            if trial is None:  # its time is up
                continue
            if trial.schedule is None:
                attempts.append(Attempt(plan.name, plan.shape.chunks, None, trial.reason))
                continue
            schedule, time_s = trial.schedule, trial.time_s
            if keep is not None:
                keep(schedule)
            if request.chunk_bytes is not None and schedule.outcome is not None:
                proven = (*proven, *schedule.outcome.bounds)
                target_s = max(bound.time_s for bound in proven)
            attempts.append(Attempt(plan.name, plan.shape.chunks, time_s, sends=schedule.sends))
            finer = best is not None and schedule.sends > best.sends
            gain = _FINER_MUST_GAIN * math.log2(schedule.sends / best.sends) if best and finer else 1e-12
            if time_s < best_s * (1 - gain):
                best, best_s = replace(schedule, seed=request.seed), time_s
    progress.update(len(tried), len(tried))
    if best is None:
        raise UsageError("\n".join(dict.fromkeys(attempt.reason for attempt in attempts)))
    found_s = time.perf_counter()
    schedule = _proven(best, proven)
    proof_s = bounded_s - begun_s + time.perf_counter() - found_s
    return Synthesis(schedule, tuple(attempts), found_s - bounded_s, proof_s)


def warm() -> None:
    """Compile the hot loops, or load them from the cache, on the smallest problem there is."""
    from synth.families import family

    pair = family("ring:2", [1e-6], [1e9])
    for kind in ("all_gather", "all_reduce"):
        check(greedy.synthesize(pair, collective(kind, 2), 1))
        check(forest.synthesize(pair, collective(kind, 2), 1))


def _proven(schedule: Schedule, proven: tuple[Bound, ...]) -> Schedule:
    timing = replay(schedule)
    findings = check(schedule, timing)
    if findings:
        raise RuntimeError(f"{schedule.method} made a wrong schedule: {findings[0]}")
    outcome = Outcome(timing.time_s, proven, gap=schedule.outcome.gap if schedule.outcome else None)
    status = "optimal" if outcome.percent_of_optimal > 100 * (1 - 1e-9) else "feasible"
    return replace(schedule, outcome=replace(outcome, status=status))


def bounds_of(request: Request) -> tuple[Bound, ...]:
    """Every proven lower bound on what is asked."""
    if request.chunk_bytes is not None:
        return tuple(bounds(request.network, request.shape(), request.chunk_bytes))
    whole, chunk_bytes = cut(request, 1)
    return tuple(bounds(request.network, whole, chunk_bytes, fluid=True))
