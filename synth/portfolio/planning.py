"""The entry point of planning: takes a request and returns the best proven schedule of any kind.

Only this module decides the kind. On thousands of equal ranks it is a symmetric schedule, or with failures a
periodic one along trees between hosts. For several sizes it is a selection, and otherwise plain or periodic.

A plain schedule lists every send, so a limit of sends limits its chunks. A periodic schedule is tried first
in two cases: more chunks are requested, or even the smallest chunk within that limit needs a notable share of
the whole time to cross the network. Plain schedules are then tried only if they could still be faster.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from probes.base import SILENT, Floats, Progress, UsageError
from synth.collective import REDUCING
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import NamedNetwork, SymmetricNetwork, distances_s, symmetry_of
from synth.portfolio.attempts import METHODS, SMALLEST_CHUNK_BYTES, deliveries, plans
from synth.portfolio.incumbent import Attempt
from synth.portfolio.loadable import fastest_loadable, loadable_sweep
from synth.portfolio.memory_limits import peak_bytes
from synth.portfolio.periodic import fastest_periodic, periodic_bounds, unserved
from synth.portfolio.plain import fastest_plain, library_schedules
from synth.portfolio.proof import proven_with
from synth.portfolio.request import Request
from synth.portfolio.size_sweep import sweep
from synth.portfolio.symmetry import around_failures, fastest_symmetric, is_large, serves_failures
from synth.portfolio.synthesis import RaceRunner, Synthesis
from synth.portfolio.variants import RequestVariant, in_regular_order, levelled, members_alone
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.prediction import soonest
from synth.schedules import Bound, Schedule
from synth.simulation import replay

__all__ = ["makes_attempts", "planned"]

# A request that names no size is planned for this size.
_SIZE_BYTES = 16 << 20
# If filling a plain schedule's pipeline takes at least this share of the bound, a periodic one is tried.
_FILLS_SOON = 0.03
# Above this percentage of the bound, no variant of the network is planned.
_NEARLY_OPTIMAL_PERCENT = 98.0
# The methods of a quick request. Forests suit links of different costs, the others links of equal cost.
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
    if request.runtime:
        made = loadable_sweep if request.sizes else fastest_loadable
        return made(request.surviving(), progress, pools)
    symmetry = None if race else _folded(request)
    if symmetry is not None:
        if request.without:
            return around_failures(request, symmetry, progress)
        return fastest_symmetric(request, symmetry, progress)
    request = request.surviving()
    if request.sizes:
        return sweep(request, progress, race, pools)
    if request.reproducible:
        return _in_order(request, progress, pools)
    if race is not None:
        return _raced(request, progress, race, pools)
    if request.quick:
        return _quickly(request, progress)
    return _with_variants(request, progress, pools)


def _with_variants(request: Request, progress: Progress, pools: WorkerPools) -> Synthesis:
    """Return the best schedule of any method, planned on the network or on a variant of it.

    One variant has the ranks in a regular order, one has the members of the collective alone, and one is
    without a few fast or further links.
    """
    if request.method != "auto" or request.decided_by_prediction:
        return _plain_or_periodic(request, progress, pools)
    found = _in_regular_order(request, progress, pools)
    if found is None:
        found = _plain_or_periodic(request, progress, pools)
    for variant_of in (members_alone, levelled):
        left_s = request.time_limit_s and request.time_limit_s - found.synthesis_s - found.proof_s
        if _is_near(found) or (left_s is not None and left_s <= 0):
            break
        if variant := variant_of(request):
            inner = replace(variant.request, time_limit_s=left_s)
            other = _with_variants(inner, progress, pools)
            found = _faster_of(found, variant, request, other)
    return found


def _in_regular_order(request: Request, progress: Progress, pools: WorkerPools) -> Synthesis | None:
    """Return the best schedule for the ranks in a regular order; None if there is none, or it is periodic."""
    variant = in_regular_order(request)
    if variant is None:
        return None
    found = _plain_or_periodic(variant.request, progress, pools)
    if not isinstance(found.schedule, Schedule):
        return None
    outcome = found.schedule.outcome
    assert outcome is not None
    proven = tuple(map(variant.named_back, outcome.bounds))
    return replace(found, schedule=proven_with(variant.restored(found.schedule, request.network), proven))


def _is_near(found: Synthesis) -> bool:
    """Return whether a schedule is so near to the bound that no variant is planned."""
    outcome = found.schedule.outcome
    assert outcome is not None
    return outcome.percent_of_optimal > _NEARLY_OPTIMAL_PERCENT


def _faster_of(found: Synthesis, variant: RequestVariant, request: Request, other: Synthesis) -> Synthesis:
    """Return ``found``, or the schedule of a variant if it is faster on the requested network."""
    if not isinstance(other.schedule, Schedule):
        return found
    outcome = found.schedule.outcome
    assert outcome is not None
    made = proven_with(variant.restored(other.schedule, request.network), outcome.bounds)
    assert made.outcome is not None
    attempt = Attempt(made.method, made.collective.chunks, made.outcome.time_s, "", made.sends)
    found = replace(
        found,
        attempts=(*found.attempts, attempt),
        synthesis_s=found.synthesis_s + other.synthesis_s,
        proof_s=found.proof_s + other.proof_s,
    )
    if made.outcome.time_s >= outcome.time_s:
        return found
    return replace(found, schedule=made, why=variant.why)


def _in_order(request: Request, progress: Progress, pools: WorkerPools) -> Synthesis:
    """Return the best schedule whose sums have a fixed order, with the time of the best in any order."""
    free = replace(request, reproducible=False, method="auto", listed=True)
    any_order = _plain_or_periodic(free, progress, pools)
    found = fastest_plain(request, progress, pools=pools)
    return replace(found, any_order_s=_time_s(any_order))


def makes_attempts(request: Request) -> bool:
    """Return whether planning a request takes many attempts, which processes can make in parallel."""
    return bool(request.runtime) or request.reproducible or _folded(request) is None


def _refuse_contradictions(request: Request, race: RaceRunner | None) -> None:
    given = {"race": race is not None, "sizes": bool(request.sizes)}
    if request.method == "symmetric":
        given |= {"without": bool(request.without), "ranks": any(one.members for one in request.asked)}
        problem = ": symmetric schedules are for all ranks and one size, and not raced; leave it out"
    elif request.method == "periodic":
        problem = ": periodic schedules are made for one size, and not raced; leave it out"
    for argument, is_given in given.items():
        if is_given and request.method in ("symmetric", "periodic"):
            raise UsageError(problem, argument=argument)
    if request.runtime and (race is not None or request.method in ("symmetric", "periodic")):
        problem = ": a schedule for a runtime lists all its sends, and is not raced"
        raise UsageError(problem, argument="runtime")
    if request.reproducible:
        _refuse_free_order(request, race)
    if request.sizes and (request.size_bytes is not None or request.chunk_bytes is not None):
        problem = " sweeps over sizes and chooses chunks; leave out the size and the chunk"
        raise UsageError(problem, argument="sizes")
    if request.size_bytes is not None and request.chunk_bytes is not None:
        problem = " and chunk exclude each other: the size chooses the chunks, the chunk fixes them"
        raise UsageError(problem, argument="size")
    if request.chunks is not None and request.chunk_bytes is None:
        problem = " says how many chunks each rank starts with, and needs the size of a chunk"
        raise UsageError(problem, argument="chunks")


def _refuse_free_order(request: Request, race: RaceRunner | None) -> None:
    """Raise UsageError for a request in which sums cannot have a fixed order."""
    kinds = [one.sets.blocks.kind if one.sets and one.sets.blocks else one.kind for one in request.asked]
    if len(kinds) > 1 or kinds[0] not in REDUCING:
        problem = f": expected a single collective of {', '.join(REDUCING)}, found {' and '.join(kinds)}"
        raise UsageError(problem, argument="reproducible")
    for argument, given in (("race", race), ("runtime", request.runtime), ("trees", request.trees)):
        if given:
            raise UsageError(
                ": a fixed order of sums is asked for, which this does not keep; leave it out",
                argument=argument,
            )


def _folded(request: Request) -> SymmetricNetwork | None:
    """Return the symmetric network on which to plan a request; None to plan on all its links.

    Raises UsageError if a symmetric schedule is requested and cannot be made.
    """
    needs_all = request.listed or request.trees or request.quick or request.sizes
    if request.method == "symmetric" and not needs_all:
        return _asked_symmetry(request)
    network, whole = request.network, request.whole
    known = network.symmetry if isinstance(network, NamedNetwork) else None
    if request.reproducible or request.method != "auto" or needs_all or known is None or whole is None:
        return None
    if not request.without:
        return known if is_large(known, whole.kind) else None
    whole_size = request.chunk_bytes is None and request.chunks is None
    return known if whole_size and serves_failures(known, whole.kind) else None


def _asked_symmetry(request: Request) -> SymmetricNetwork:
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


def _plain_or_periodic(request: Request, progress: Progress, pools: WorkerPools) -> Synthesis:
    """Return the best schedule: plain or periodic for the method "auto", periodic only for "periodic".

    Other methods give plain ones only, and so does "auto" if all sends must be listed or a prediction
    decides between schedules. Raises as `fastest_plain` and `fastest_periodic` do.
    """
    if request.method == "periodic":
        progress.update(0, 1, "periodic")
        return _periodic_alone(request)
    listed = request.listed or request.trees or request.decided_by_prediction
    if request.method != "auto" or listed or unserved(request):
        return fastest_plain(request, progress, pools=pools)
    if request.chunk_bytes is not None:
        # A periodic schedule may end the search before any plan is made.
        tried, chunk_bytes = None, request.chunk_bytes
    else:
        tried = list(plans(request))
        chunk_bytes = min(plan.chunk_bytes for plan in tried)
    if not _is_capped(request, chunk_bytes):
        return fastest_plain(request, progress, pools=pools, tried=tried)
    begun_s = time.perf_counter()
    proven = periodic_bounds(request)
    least_s = max(bound.time_s for bound in proven)
    network = request.network
    # Smaller chunks reduce only the betas of the crossing, not its alphas, so only the betas count here.
    filling_s = _crossing_s(network, network.beta_s_per_byte * chunk_bytes)
    plain_s = least_s + _crossing_s(network, network.travel_s(chunk_bytes))
    bounded_s = time.perf_counter() - begun_s
    found = None
    if request.chunks is not None or filling_s >= _FILLS_SOON * least_s:
        progress.update(0, 1, "periodic")
        share = f"{100 * filling_s / least_s:.2g} %"
        why = f"with the smallest chunks, filling a plain schedule's pipeline takes {share} of the bound"
        if request.chunks is not None:
            why = f"a table of its sends would have at least {deliveries(request.shape()):.2g} rows"
        with suppress(NotApplicableError):
            found = _periodic(request, proven, why)
    if found is not None and _time_s(found) <= max(plain_s, (1 + _FILLS_SOON) * least_s):
        return replace(found, proof_s=found.proof_s + bounded_s)
    left_s = request.time_limit_s
    if left_s is not None:
        left_s = max(0.0, left_s - (time.perf_counter() - begun_s))
    limited = replace(request, time_limit_s=left_s)
    plain = fastest_plain(limited, progress, proven=proven, pools=pools, tried=tried)
    plain = replace(plain, proof_s=plain.proof_s + bounded_s)
    return plain if found is None else _faster(found, plain)


def _periodic_alone(request: Request) -> Synthesis:
    if reason := unserved(request):
        raise NotApplicableError(reason)
    begun_s = time.perf_counter()
    proven = periodic_bounds(request)
    bounded_s = time.perf_counter() - begun_s
    found = _periodic(request, proven, "asked for by name")
    return replace(found, proof_s=found.proof_s + bounded_s)


def _faster(periodic: Synthesis, plain: Synthesis) -> Synthesis:
    """Return the result whose schedule takes less time, with the attempts and times of both."""
    attempts = (*periodic.attempts, *plain.attempts)
    synthesis_s, proof_s = periodic.synthesis_s + plain.synthesis_s, periodic.proof_s + plain.proof_s
    if _time_s(plain) <= _time_s(periodic):
        return replace(plain, attempts=attempts, synthesis_s=synthesis_s, proof_s=proof_s)
    gained = _time_s(plain) / _time_s(periodic) - 1
    return replace(
        periodic,
        attempts=attempts,
        synthesis_s=synthesis_s,
        proof_s=proof_s,
        why=f"{100 * gained:.2g} % faster than {plain.listed.method}, the best plain one",
        peak_bytes=plain.peak_bytes,
        workers_bytes=plain.workers_bytes,
    )


def _time_s(found: Synthesis) -> float:
    outcome = found.schedule.outcome
    assert outcome is not None
    return outcome.time_s


def _periodic(request: Request, proven: tuple[Bound, ...], why: str) -> Synthesis:
    begun_s = time.perf_counter()
    found = fastest_periodic(request)
    found_s = time.perf_counter()
    made = proven_with(found, proven)
    proof_s = time.perf_counter() - found_s
    assert made.outcome is not None
    attempt = Attempt("periodic", made.chunks, made.outcome.time_s, "", made.sends)
    return Synthesis(made, (attempt,), found_s - begun_s, proof_s, why, peak_bytes())


def _is_capped(request: Request, finest_bytes: int) -> bool:
    """Return whether the limit of sends keeps plain schedules from smaller chunks than ``finest_bytes``."""
    if request.chunk_bytes is not None:
        most = max(method.most_sends for method in METHODS.values())
        return deliveries(request.shape()) > most
    return finest_bytes >= 2 * SMALLEST_CHUNK_BYTES


def _crossing_s(network: Network, cost_s: Floats) -> float:
    """Return the path cost between two ranks that are far apart, at most the network's diameter.

    ``cost_s`` has one value a link. One rank is the farthest from rank 0, the other the farthest from it.
    """
    far = int(np.argmax(distances_s(network, cost_s, np.array([0]))[0]))
    return float(distances_s(network, cost_s, np.array([far]))[0].max())


def _raced(request: Request, progress: Progress, race: RaceRunner, pools: WorkerPools) -> Synthesis:
    """Race all schedules that the search finds and those of libraries; return the fastest."""
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
    # The bounds are those of the request, whichever method is tried.
    proven: tuple[Bound, ...] | None = None
    for method in _QUICK:
        left_s = None
        if request.time_limit_s is not None and found:
            left_s = request.time_limit_s - (time.monotonic() - started_s)
            if left_s <= 0:
                break
        with suppress(UsageError):
            asked = replace(request, method=method, time_limit_s=left_s, predicted=False)
            found.append(fastest_plain(asked, progress, proven=proven))
            outcome = found[-1].schedule.outcome
            proven = None if outcome is None else outcome.bounds
    if not found:
        return fastest_plain(request, progress)
    by_schedule = {id(one.schedule): one for one in found}
    every = sorted((one.listed for one in found), key=lambda one: replay(one).time_s)
    return by_schedule[id(soonest(every))]
