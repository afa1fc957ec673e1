"""Search for the plain schedule (a table of sends) with the least simulated or predicted time.

``synth.check`` checks the schedule before it is returned with its bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from probes.base import SILENT, Progress, UsageError, plural
from synth.bounds import bounds
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.kernels import all_compiled
from synth.methods import greedy
from synth.milp import require
from synth.networks import require_ways
from synth.portfolio.attempt_runner import Trials
from synth.portfolio.attempts import METHODS, Plan, deliveries, library_plans, plans
from synth.portfolio.incumbent import Incumbent
from synth.portfolio.memory_limits import peak_bytes, require_memory
from synth.portfolio.proof import proven_with
from synth.portfolio.refinement import Refinement
from synth.portfolio.request import Request, cut
from synth.portfolio.synthesis import Synthesis
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.prediction import MOST_SENDS, promising, schedule_run_s, soonest
from synth.schedules import Bound, Schedule
from synth.simulation import replay

__all__ = [
    "bounds_of",
    "fastest_plain",
    "library_schedules",
    "warm",
]


# Sharing of ports that the simulation does not foresee slows a run by up to this factor.
_NEAR = 1.4
# A schedule within this factor of the bound is not refined.
_AT_THE_BOUND = 1.005
# With at most this many ranks, loops run too briefly to be worth compiling.
_FEW_RANKS = 8


def fastest_plain(
    request: Request,
    progress: Progress = SILENT,
    keep: Callable[[Schedule], object] | None = None,
    proven: tuple[Bound, ...] | None = None,
    pools: WorkerPools = ProcessPool,
    tried: Sequence[Plan] | None = None,
) -> Synthesis:
    """Return the best schedule of the requested method, or of every method, and call ``keep`` with each.

    If a prediction of the run decides (``Request.decided_by_prediction``), it chooses among the most
    promising schedules, and reaching the bound does not end the search. ``proven`` are the bounds of the
    request and ``tried`` its plans, if known. ``pools`` makes the workers; the schedule does not depend on
    them.

    Raises UsageError if no method applies, UnavailableError if memory or the solver is missing, and
    RuntimeError if the checker refuses the winner, which would be a bug.
    """
    if request.solver != "cbc" or (request.method in METHODS and METHODS[request.method].solves):
        require(request.solver)
    begun_s = time.perf_counter()
    if tried is None:
        tried = list(plans(request))
    require_memory(min((deliveries(plan.shape) for plan in tried), default=0))
    if proven is None:
        proven = bounds_of(request)
    bounded_s = time.perf_counter()
    predicted = request.decided_by_prediction
    target_s = max(bound.time_s for bound in proven)
    choice = Incumbent(target_s, predicted=predicted, over_links=request.decided_over_links)
    found: list[Schedule] = []
    with Trials(request, tried, begun_s, pools) as trials:
        takers = [take for take in (keep, found.append if predicted else None) if take is not None]
        proven = _run_plans(request, trials, tried, choice, proven, progress, takers)
    progress.update(len(tried), len(tried))
    if choice.best is None:
        reasons = dict.fromkeys(attempt.reason for attempt in choice.attempts if attempt.reason)
        raise UsageError(reasons or f"no method has found a schedule for {request.network.name}")
    best, why = choice.best, choice.why()
    if predicted:
        best = soonest(_near(best, choice.best_s, found))
        why = why if best is choice.best else _why_predicted(best, choice.best)
    found_s = time.perf_counter()
    schedule = proven_with(replace(best, seed=request.seed), proven)
    proof_s = bounded_s - begun_s + time.perf_counter() - found_s
    return Synthesis(
        schedule,
        tuple(choice.attempts),
        found_s - bounded_s,
        proof_s,
        why,
        peak_bytes(),
        trials.peak_bytes,
    )


def _run_plans(
    request: Request,
    trials: Trials,
    tried: Sequence[Plan],
    choice: Incumbent,
    proven: tuple[Bound, ...],
    progress: Progress,
    takers: Sequence[Callable[[Schedule], object]],
) -> tuple[Bound, ...]:
    """Run all plans that can still win, and return the bounds, including those that solvers proved.

    ``choice`` and all ``takers`` get the schedules.
    """
    solving_s, refinement = 0.0, Refinement(request)
    for done, plan in enumerate(tried):
        progress.update(done, len(tried), plan.name)
        if choice.unbeatable:
            break
        spared = request.method == "auto" and choice.spares(plan)
        if spared or plan.pointless(request, choice.best, choice.ratio, solving_s):
            trials.skip(done)
            continue
        begun_s = time.perf_counter()
        trial = trials.result(done)
        solving_s += time.perf_counter() - begun_s if plan.method.solves else 0.0
        if trial is None:  # its time is up
            continue
        if trial.schedule is None:
            choice.refuse(plan, trial.reason)
            continue
        schedule, time_s = trial.schedule, trial.time_s
        for take in takers:
            take(schedule)
        # Integer programs hold a port for as long as the link, so their bounds are not valid if the network
        # queues (`Network.queues`).
        bounded = schedule.outcome is not None and not request.network.queues
        if request.chunk_bytes is not None and bounded:
            assert schedule.outcome is not None
            proven = (*proven, *schedule.outcome.bounds)
            choice.target_s = max(bound.time_s for bound in proven)
        choice.take(plan, schedule, time_s)
        refinement.take(plan, schedule, time_s)
    if request.method == "auto" and choice.ratio > _AT_THE_BOUND and trials.in_time:
        progress.update(len(tried), len(tried), "refinement")
        for time_s, plan, schedule in refinement.refined(choice.best_s, choice.target_s):
            for take in takers:
                take(schedule)
            choice.take(plan, schedule, time_s)
            if not trials.in_time:
                break
    return proven


def _why_predicted(best: Schedule, of_links: Schedule) -> str:
    """Return why ``best`` was kept over ``of_links``, the fastest in the simulation of links."""
    best_s, links_s = schedule_run_s(best), schedule_run_s(of_links)
    ratio = replay(best).time_s / replay(of_links).time_s
    other = of_links.method
    if other == best.method:
        same = of_links.collective.chunks == best.collective.chunks
        other = f"{'another ' if same else ''}{other} with {plural(of_links.collective.chunks, 'chunk')}"
    costs = "copies and sums in memory" if best.network.is_measured_host else "steps and shared ports"
    if ratio <= 1:
        return f"as fast as {other} over the links, and faster once {costs} count"
    kept = f"kept: {other} is {100 * (ratio - 1):.2g} % faster counting links only"
    if of_links.sends > MOST_SENDS:
        return f"{kept}, but its {of_links.sends} messages would cost ranks more than that"
    if best_s < links_s:
        return f"{kept}, but {100 * (links_s / best_s - 1):.2g} % slower when {costs} count, as in a run"
    if best.network.is_measured_host:
        return f"{kept}, but runs are predicted about as fast, and this one has fewer messages"
    return f"{kept}, but the model is not that exact on shared ports, and this order suffers least there"


def _near(best: Schedule, best_s: float, found: Sequence[Schedule]) -> list[Schedule]:
    """Return the best schedule, then all others that a prediction may still prefer.

    On a measured host, where ranks copy in memory, these are the most promising of each method, because the
    simulation of links says little there.
    """
    if best.network.is_measured_host:
        return [best, *(one for _, one in promising(found) if one is not best)]
    return [best, *(one for one in found if one is not best and replay(one).time_s < _NEAR * best_s)]


def warm(ranks: int | None = None) -> None:
    """Load or compile the loop that every search begins with, by a search on two ranks.

    For few ranks nothing is loaded ahead. Other loops are compiled only when they turn out to run long: a
    search for 16 ranks calls 57 loops, most of them briefly.
    """
    from synth.networks import family

    if ranks is not None and ranks <= _FEW_RANKS:
        return
    pair = family("ring:2", [1e-6], [1e9])
    with all_compiled():
        greedy.synthesize(pair, collective("all_gather", 2), 1)


def library_schedules(request: Request, *, merging: bool = False) -> list[Schedule]:
    """Return the schedules of the libraries' algorithms that apply, each with the fewest chunks.

    With ``merging``, also some of very many sends, whose messages can be merged.
    """
    found = []
    for plan in library_plans(request, merging=merging):
        try:
            found.append(plan.run(request, 0.0, 1))
        except NotApplicableError:
            continue
    return found


def bounds_of(request: Request) -> tuple[Bound, ...]:
    """Return every proven lower bound for the request.

    Raises UsageError if the network lacks a path that the collective needs.
    """
    if request.chunk_bytes is not None:
        shape = request.shape()
        require_ways(request.network, shape)
        return tuple(bounds(request.network, shape, request.chunk_bytes))
    whole, chunk_bytes = cut(request, 1)
    require_ways(request.network, whole)
    return tuple(bounds(request.network, whole, chunk_bytes, fluid=True))
