"""The entry point of planning: takes a request and returns the best proven schedule of any kind.

Only this module decides the kind. On thousands of equal ranks it is a symmetric schedule, or with failures a
periodic one along trees between hosts. It is a periodic one, too, if no table of sends fills the pipelines,
a selection for several sizes, and otherwise a table of sends.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from probes.base import SILENT, Progress, UsageError
from synth.networks import NamedNetwork, SymmetricNetwork, symmetry_of
from synth.portfolio.plain import fastest_plain, library_schedules
from synth.portfolio.plain_or_periodic import plain_or_periodic
from synth.portfolio.proof import proven_with
from synth.portfolio.request import Request
from synth.portfolio.size_sweep import sweep
from synth.portfolio.symmetry import around_failures, fastest_symmetric, is_large, serves_failures
from synth.portfolio.synthesis import RaceRunner, Synthesis
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.prediction import soonest
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = ["makes_attempts", "planned"]

_SIZE_BYTES = 16 << 20
# The methods when time is short. Forests suit links of different costs, the others links of equal cost.
_QUICK = ("forest", "ring", "direct", "greedy")


def planned(
    request: Request,
    progress: Progress = SILENT,
    *,
    race: RaceRunner | None = None,
    pools: WorkerPools = ProcessPool,
) -> Synthesis:
    """Return the best schedule for a request, proven and bounded.

    ``race`` runs the candidates that a prediction cannot tell apart, and the fastest run is kept. ``pools``
    makes the workers that run attempts; the schedule does not depend on them.

    Raises UsageError if the request contradicts itself or no method serves it, UnavailableError if memory or
    the solver is missing, and RuntimeError if the checker refuses the winner, which would be a bug.
    """
    _refuse_contradictions(request, race)
    if request.size_bytes is None and request.chunk_bytes is None and not request.sizes:
        request = replace(request, size_bytes=_SIZE_BYTES)
    symmetry = None if race else _folded(request)
    if symmetry is not None:
        if request.without:
            return around_failures(request, symmetry, progress)
        return fastest_symmetric(request, symmetry, progress)
    request = request.surviving()
    if request.sizes:
        return sweep(request, progress, race, pools)
    if race is not None:
        return _raced(request, progress, race, pools)
    if request.quick:
        return _quickly(request, progress)
    return plain_or_periodic(request, progress, pools)


def makes_attempts(request: Request) -> bool:
    """Return whether planning a request takes many attempts, which processes can make in parallel."""
    return _folded(request) is None


def _refuse_contradictions(request: Request, race: RaceRunner | None) -> None:
    given = {"race": race is not None, "sizes": bool(request.sizes)}
    if request.method == "symmetric":
        given |= {"without": bool(request.without), "ranks": any(one.members for one in request.asked)}
        told = ": symmetric schedules are for all ranks and one size, and not raced; leave it out"
    elif request.method == "periodic":
        told = ": periodic schedules are made for one size, and not raced; leave it out"
    for argument, is_given in given.items():
        if is_given and request.method in ("symmetric", "periodic"):
            raise UsageError(told, argument=argument)
    if request.sizes and (request.size_bytes is not None or request.chunk_bytes is not None):
        told = " sweeps over sizes and chooses chunks; leave out the size and the chunk"
        raise UsageError(told, argument="sizes")
    if request.size_bytes is not None and request.chunk_bytes is not None:
        told = " and chunk exclude each other: the size chooses the chunks, the chunk fixes them"
        raise UsageError(told, argument="size")
    if request.chunks is not None and request.chunk_bytes is None:
        told = " says how many chunks each rank starts with, and needs the size of a chunk"
        raise UsageError(told, argument="chunks")


def _folded(request: Request) -> SymmetricNetwork | None:
    """Return the symmetric network on which to plan a request; None to plan on all its links.

    Raises UsageError if a symmetric schedule is requested and cannot be made.
    """
    needs_all = request.listed or request.trees or request.quick or request.sizes
    if request.method == "symmetric" and not needs_all:
        return _asked_for(request)
    network, whole = request.network, request.whole
    known = network.symmetry if isinstance(network, NamedNetwork) else None
    if request.method != "auto" or needs_all or known is None or whole is None:
        return None
    if not request.without:
        return known if is_large(known, whole.kind) else None
    whole_size = request.chunk_bytes is None and request.chunks is None
    return known if whole_size and serves_failures(known, whole.kind) else None


def _asked_for(request: Request) -> SymmetricNetwork:
    symmetry = symmetry_of(request.network)
    if symmetry is None:
        raise UsageError(
            f" symmetric: no translation carries {request.network.name} into itself",
            hint="Tori, switches, fat trees, dragonflies and machines such as dgx-a100:4 have some, and "
            "link lists whose ranks are numbered regularly.",
            argument="method",
        )
    if request.whole is None:
        raise UsageError(" symmetric: expected one collective, of all ranks", argument="method")
    return symmetry


def _raced(request: Request, progress: Progress, race: RaceRunner, pools: WorkerPools) -> Synthesis:
    """Race the best schedule by simulation, all others found and those of libraries; return the fastest."""
    kept: list[Schedule] = []
    found = fastest_plain(request, progress, kept.append, pools=pools)
    best = found.listed
    assert best.outcome is not None
    candidates = [best, *kept, *library_schedules(request)]
    [won] = race([(best.collective.total_bytes(best.chunk_bytes), candidates)], progress)
    schedule = replace(candidates[won.number], seed=request.seed, outcome=None, race=won.race)
    ran = sum(entry.sends is not None for entry in won.race.entries)
    why = f"the fastest of {ran} schedules that ran here in turn"
    return replace(found, schedule=proven_with(schedule, best.outcome.bounds), why=why)


def _quickly(request: Request, progress: Progress) -> Synthesis:
    """Return the best schedule of a few methods, as many after the first as the time limit allows."""
    started_s, found = time.monotonic(), list[Synthesis]()
    for method in _QUICK:
        left_s = None
        if request.time_limit_s is not None and found:
            left_s = request.time_limit_s - (time.monotonic() - started_s)
            if left_s <= 0:
                break
        with suppress(UsageError):
            asked = replace(request, method=method, time_limit_s=left_s, predicted=False)
            found.append(fastest_plain(asked, progress))
    if not found:
        return fastest_plain(request, progress)
    by_schedule = {id(one.schedule): one for one in found}
    every = sorted((one.listed for one in found), key=lambda one: replay(one).time_s)
    return by_schedule[id(soonest(every))]
