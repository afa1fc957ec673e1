"""The fastest schedule that a runtime can load: MSCCL's or RCCL's interpreter, or MSCCL++'s executor.

The planner's schedules are compiled one after the other, the fastest first, until one is within all limits of
the runtime and proven by its rules.
"""

from __future__ import annotations

from dataclasses import replace

from probes.base import SILENT, Progress, UsageError, first_of, plural
from synth.check import judge
from synth.compiler import lower
from synth.msccl import beyond
from synth.mscclpp import ExecutionPlan, examine_plan, plan_of
from synth.portfolio.plain import fastest_plain
from synth.portfolio.proof import proven_with
from synth.portfolio.request import Request
from synth.portfolio.synthesis import Loaded, Synthesis
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.program import Program
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = ["MOST_PLAN_OPERATIONS", "RUNTIMES", "fastest_loadable"]

RUNTIMES = ("msccl", "rccl", "mscclpp")
# Proving a plan takes O(operations²): this many operations take ten seconds and 2.4 GB.
MOST_PLAN_OPERATIONS = 70_000
# Compiling more sends takes many seconds, and no runtime here has room for so many steps.
_MOST_SENDS = 40_000
# A send of a plan is at least a put, a signal and a wait.
_LEAST_OPERATIONS = 3


def fastest_loadable(
    request: Request, progress: Progress = SILENT, pools: WorkerPools = ProcessPool
) -> Synthesis:
    """Return the fastest schedule for one size that the request's runtime can load, proven and compiled.

    Raises UsageError for an unknown runtime, and if no schedule fits: the message then names the limits.
    """
    runtime = request.runtime
    if runtime not in RUNTIMES:
        raise UsageError(f": expected {', '.join(RUNTIMES)}, found {runtime!r}", argument="runtime")
    kept: list[Schedule] = []
    fastest = fastest_plain(request, progress, kept.append, pools=pools)
    best = fastest.listed
    candidates = [best, *sorted((one for one in kept if one is not best), key=_time_s)]
    limits: dict[str, str] = {}
    for tried, schedule in enumerate(candidates, start=1):
        progress.update(tried, len(candidates), f"compiling {schedule.method} for {runtime}")
        program, plan, limit = _loaded(schedule, runtime)
        if program is not None:
            return _synthesis(
                fastest, schedule, runtime, program, plan, next(iter(limits.values()), ""), tried
            )
        limits.setdefault(f"{schedule.method} with {plural(schedule.collective.chunks, 'chunk')}", limit)
    told = [f"{name}: {limit}" for name, limit in limits.items()]
    raise UsageError([f"{runtime} can load none of {len(candidates)} schedules", *first_of(told, 4, "limit")])


def _loaded(schedule: Schedule, runtime: str) -> tuple[Program | None, ExecutionPlan | None, str]:
    """Return (program, plan, ""), or (None, None, the limit of the runtime that forbids it)."""
    if schedule.sends > _MOST_SENDS:
        return None, None, f"{schedule.sends} sends are more than its tables hold"
    if runtime == "mscclpp" and _LEAST_OPERATIONS * schedule.sends > MOST_PLAN_OPERATIONS:
        return None, None, f"{schedule.sends} sends take more than {MOST_PLAN_OPERATIONS} operations"
    program = lower(schedule)
    if runtime != "mscclpp":
        findings = beyond(program, runtime) or judge(program)
        return (None, None, findings[0]) if findings else (program, None, "")
    plan = plan_of(program, schedule.network.host_of.tolist())
    if plan.operations > MOST_PLAN_OPERATIONS:
        return None, None, f"{plan.operations} operations, more than can be proven ({MOST_PLAN_OPERATIONS})"
    wrong = examine_plan(plan).findings
    return (None, None, wrong[0]) if wrong else (program, plan, "")


def _synthesis(
    fastest: Synthesis,
    schedule: Schedule,
    runtime: str,
    program: Program,
    plan: ExecutionPlan | None,
    limit: str,
    tried: int,
) -> Synthesis:
    """Return the search result; ``schedule``, proven, replaces a fastest that cannot be loaded."""
    outcome = fastest.listed.outcome
    assert outcome is not None
    loaded = Loaded(runtime, program, plan, outcome.percent_of_optimal, limit, tried)
    if not limit:
        return replace(fastest, loaded=loaded)
    proven = proven_with(replace(schedule, seed=fastest.listed.seed), outcome.bounds)
    why = f"the fastest that {runtime} can load"
    return replace(fastest, schedule=proven, why=why, loaded=loaded)


def _time_s(schedule: Schedule) -> float:
    return replay(schedule).time_s
