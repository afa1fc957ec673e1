"""TACOS-ILP (Sec. V): optimal schedules by integer programs over the time-expanded network.

Horizons between the largest proven bound and greedy's time are tried. For each horizon, a program decides
whether any schedule ends by then. The first feasible horizon is the optimum, and each infeasible horizon
raises the lower bound. When time runs out, the solver's partial solution is completed by shortest paths (Sec.
V-B). A problem too large for one program is solved in short windows one after the other (time clustering,
Sec. V-C). The best schedule found is returned.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from probes.base import SILENT, Progress, bytes_of, ints
from synth.bounds import bounds
from synth.collective import Collective, Kind
from synth.errors import NotApplicableError
from synth.methods import greedy, paths
from synth.milp import relative_gap
from synth.network import Network
from synth.schedules import Bound, Outcome, Schedule
from synth.scheduling import in_start_order, reversed_in_time
from synth.simulation import replay
from synth.tacos_ilp import CLOSE, HorizonSearch, Mechanism, copies_to_all

__all__ = ["both_halves", "require_one_way", "solve", "suits", "synthesize"]

# The most deliveries (of a chunk to a rank) of a small program; an all_gather on nine ranks has as many. CBC
# mostly solves small programs within seconds, and larger ones rarely.
_MOST_DELIVERIES = 72
# A search begins with _GREEDY_SENDS / (chunks · ranks) greedy schedules for each policy, at least one, but
# with at most _MOST_GREEDY_RUNS in all.
_GREEDY_SENDS = 60_000
_MOST_GREEDY_RUNS = 48


def suits(network: Network, collective: Collective) -> bool:
    """Return whether the integer program is small enough to be solved quickly."""
    if collective.chunks > 2 * _MOST_DELIVERIES:
        return False
    copies = int((collective.wanted() & ~collective.held()).sum())
    sums = int(collective.sources.sizes().sum()) - collective.chunks
    return max(copies, sums) <= _MOST_DELIVERIES


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
    time_step_s: float | None = None,
    mechanism: Mechanism = "auto",
) -> Schedule:
    """Return the best schedule found within the time limit; its status is "optimal" only if proven.

    The search begins with schedules of other methods; such a schedule keeps its method's name if no program
    finds a faster one. If one of them meets the bound, no program is solved, and the outcome has no gap. With
    a ``mechanism`` other than "auto" the search begins with shortest paths alone, as in the paper.
    """
    return solve(
        network,
        collective,
        chunk_bytes,
        seed=seed,
        time_limit_s=time_limit_s,
        solver=solver,
        time_step_s=time_step_s,
        mechanism=mechanism,
        warm=mechanism == "auto",
    )[0]


def solve(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
    progress: Progress = SILENT,
    time_step_s: float | None = None,
    mechanism: Mechanism = "auto",
    warm: bool = True,
) -> tuple[Schedule, Bound | None]:
    """Return (schedule, bound that the search proved, or None).

    The bound comes from ``synth.bounds.wavefront``, or from infeasible horizons if these prove a larger one.

    A reduce_scatter is an all_gather, and a reduce a broadcast, solved on the transposed network and reversed
    in time. An all_reduce is a reduce_scatter and an all_gather, each within half the time limit; it has no
    bound of its own. ``time_step_s`` is TACOS's discretization factor. ``mechanism`` selects early
    termination or time clustering alone. Without ``warm`` the search begins with shortest paths only. Raises
    NotApplicableError if a rank cannot be reached, UnavailableError without the solver.
    """
    require_one_way("ilp", collective)
    if collective.kind == "all_reduce":
        half = partial(
            solve,
            network,
            chunk_bytes=chunk_bytes,
            seed=seed,
            time_limit_s=time_limit_s / 2,
            solver=solver,
            progress=progress,
            time_step_s=time_step_s,
            mechanism=mechanism,
            warm=warm,
        )
        return _of_halves(network, collective, chunk_bytes, seed, lambda shape: half(shape)[0]), None
    turned = collective.reversal is not None
    copying = collective.reversal or collective
    onward = network.transposed() if turned else network
    search = HorizonSearch(
        onward,
        copying,
        chunk_bytes,
        seed,
        time.perf_counter() + time_limit_s,
        solver,
        progress,
        _warm_starts(onward, copying, chunk_bytes, seed) if warm else iter(()),
        time_step_s,
        mechanism,
    )
    best = search.run()
    bound = search.bound if not turned or _reversible(network) else None
    if turned:
        best = reversed_in_time(best, network, collective)
    return _with_outcome(best, bound, ran=search.programs > 0), bound


def _of_halves(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    seed: int,
    half: Callable[[Collective], Schedule],
) -> Schedule:
    """Return an all_reduce of two halves; its outcome has a gap if programs ran for either half."""
    ran: list[bool] = []

    def solved(shape: Collective) -> Schedule:
        made = half(shape)
        ran.append(made.outcome is not None and made.outcome.gap is not None)
        return made

    schedule = both_halves(network, collective, chunk_bytes, "ilp", seed, solved)
    return _with_outcome(schedule, None, ran=any(ran))


def _warm_starts(network: Network, collective: Collective, chunk_bytes: int, seed: int) -> Iterator[Schedule]:
    """Yield greedy schedules, from more seeds if the problem is small.

    Unless every rank wants every chunk, yield one schedule of shortest paths instead.
    """
    if not copies_to_all(collective):
        yield paths.synthesize(network, collective, chunk_bytes, seed=seed)
        return
    policies = greedy.policies(network)
    runs = len(policies) * max(1, _GREEDY_SENDS // (collective.chunks * network.ranks))
    for at in range(min(runs, _MOST_GREEDY_RUNS)):
        policy = policies[at % len(policies)]
        yield greedy.synthesize(network, collective, chunk_bytes, seed=seed + at, policy=policy)


def _with_outcome(schedule: Schedule, bound: Bound | None, *, ran: bool) -> Schedule:
    """Return the schedule with its outcome, which has a gap only if programs ``ran``."""
    proven = bounds(schedule.network, schedule.collective, schedule.chunk_bytes)
    proven += [bound] if bound else []
    outcome = Outcome(replay(schedule).time_s, tuple(sorted(proven, key=lambda each: -each.time_s)))
    gap = relative_gap(outcome.time_s, outcome.binding.time_s)
    status = "optimal" if gap <= CLOSE else "feasible"
    left = (0.0 if gap <= CLOSE else gap) if ran else None
    return replace(in_start_order(schedule), outcome=replace(outcome, status=status, gap=left))


def _reversible(network: Network) -> bool:
    """Return whether every schedule and its reversal take equally long.

    This holds if alpha is part of the hold, or if all links of a port have the same alpha.
    """
    if network.hold_alpha:
        return True
    start, links = network.port_links
    return all(np.ptp(network.alpha_s[links[a:b]]) == 0 for a, b in itertools.pairwise(start) if b > a)


def require_one_way(method: str, collective: Collective) -> None:
    """Raise NotApplicableError unless a search for copies can plan the collective.

    It can plan copies, and sums of each chunk to one rank, which are copies backwards in time.
    """
    if collective.parts or (collective.kind == "custom" and collective.reduces):
        raise NotApplicableError(
            f"{method} does not serve {collective.label}, only copies, or sums of each chunk to one rank"
        )


def both_halves(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    method: str,
    seed: int,
    made_by: Callable[[Collective], Schedule],
) -> Schedule:
    """Return an all_reduce in one table: chunk c is reduced at member c mod N and spread from there.

    Its method is ``method`` if at least one half is by that method.
    """
    members = collective.size
    share = -(-collective.chunks // members)
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    halves: tuple[Kind, ...] = ("reduce_scatter", "all_gather")
    makers = set()
    for kind in halves:
        made = made_by(Collective(kind, network.ranks, share * members, members=collective.members))
        makers.add(made.method)
        chunk = made.chunk // share + (made.chunk % share) * members
        kept = chunk < collective.chunks
        columns.append((chunk[kept], made.link[kept], made.op[kept]))
    chunk, link, op = (np.concatenate(column) for column in zip(*columns, strict=True))
    maker = method if method in makers else min(makers)
    return Schedule(network, collective, chunk_bytes, maker, seed, ints(chunk), ints(link), bytes_of(op))
