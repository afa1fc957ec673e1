"""TACOS-ILP as published (Sec. V-A): an integer program for each horizon, from the diameter up.

Each program decides whether every chunk can arrive by its horizon; the first feasible horizon is the optimum.
The search knows no schedule of another method, so programs run even where another method meets the bound.
Links cost whole ticks: the coarsest tick that rounds nothing, or times rounded up to a discretization factor
(Sec. IV-C). `synth.tacos_ilp` has the model. Its columns say whether chunk c has left over link l by
tick t; the paper's variable sent(c, l, t) is the difference between two of them. Columns that no chunk can
use in time are left out. On a network with translations a smaller program by orbits decides most horizons
(`by_orbits`). The paper has no such program; its solver, Gurobi, looks for symmetries by itself.

When time runs out, the last program is solved for as many arrivals as possible (early termination), and the
rest takes shortest paths (Sec. V-B). Sums are copies reversed in time, and an all_reduce is a reduce_scatter
and an all_gather (Sec. VII-A). If each link has an opposite link, one search serves both halves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from probes.base import Mask, ints
from synth.bounds import bounds
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods import both_halves, require_one_way
from synth.network import Network
from synth.schedules import Outcome, Schedule
from synth.scheduling import in_start_order, reversed_in_time
from synth.simulation import replay
from synth.tacos_ilp import (
    CLOSE,
    Expansion,
    LinkMove,
    TimeGrid,
    bundle,
    by_orbits,
    completed,
    expand,
    grid_of,
    moves_of,
    program,
)

__all__ = ["synthesize"]

# The share of the time that is kept for the program of early termination.
_KEPT = 0.3
# A program of more columns does not fit into a few gigabytes of memory.
_MOST_COLUMNS = 2_000_000


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "highs",
    time_step_s: float | None = None,
) -> Schedule:
    """Return the optimum (status "optimal"), or the schedule of early termination ("feasible").

    Raises NotApplicableError if the collective sums to several ranks at once, a rank cannot be reached, or a
    program is too large.
    """
    require_one_way("tacos_ilp_published", collective)
    begun = partial(
        synthesize, network, chunk_bytes=chunk_bytes, seed=seed, solver=solver, time_step_s=time_step_s
    )
    if collective.kind == "all_reduce":
        return _both(network, collective, chunk_bytes, seed, partial(begun, time_limit_s=time_limit_s / 2))
    turned = collective.reversal is not None
    copying = collective.reversal or collective
    onward = network.transposed() if turned else network
    made = _searched(onward, copying, chunk_bytes, seed, time_limit_s, solver, time_step_s)
    if not turned:
        return made
    return replace(in_start_order(reversed_in_time(made, network, collective)), outcome=made.outcome)


def _both(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    seed: int,
    half: Callable[[Collective], Schedule],
) -> Schedule:
    """Return an all_reduce of two halves; one search serves both if reversing the links changes nothing."""
    opposite = network.opposite_links()
    made: dict[str, Schedule] = {}

    def solved(shape: Collective) -> Schedule:
        found = made.get(shape.kind)
        if found is None and opposite is not None and shape.reversal is not None:
            gathered = made.setdefault(shape.reversal.kind, half(shape.reversal))
            onward = replace(gathered, network=network.transposed(), link=ints(opposite[gathered.link]))
            found = in_start_order(reversed_in_time(onward, network, shape))
        made[shape.kind] = found = found or half(shape)
        return found

    whole = both_halves(network, collective, chunk_bytes, "tacos_ilp_published", seed, solved)
    gap = max(each.outcome.gap or 0.0 for each in made.values() if each.outcome is not None)
    return replace(whole, outcome=_outcome(whole, gap))


@dataclass(frozen=True)
class _Search:
    """One search for a collective that copies."""

    collective: Collective
    grid: TimeGrid
    chunk_bytes: int
    solver: str
    seed: int
    deadline_s: float

    def decided(self, expansion: Expansion, *, elastic: bool = False) -> tuple[str, list[LinkMove]]:
        """Return the program's status and moves for a horizon; if ``elastic``, not all chunks must arrive."""
        held, wanted = self.collective.held(), self.collective.wanted()
        if not elastic:
            status, moves = by_orbits(
                expansion,
                held,
                wanted,
                most_columns=_MOST_COLUMNS,
                solver=self.solver,
                time_limit_s=self._limit_s(_KEPT) / 2,
                seed=self.seed,
            )
            if status != "unknown":
                return status, moves
        made = program(expansion, held, wanted, elastic=elastic, most_columns=_MOST_COLUMNS)
        if made is None:
            raise NotApplicableError(
                f"tacos_ilp_published: {expansion.instants} starts and {self.collective.chunks} chunks make "
                f"a program of more than {_MOST_COLUMNS} columns"
            )
        if not made.possible and not elastic:
            return "infeasible", []
        limit_s = self._limit_s(0.0 if elastic else _KEPT)
        solution = made.model.solve(solver=self.solver, time_limit_s=limit_s, seed=self.seed)
        return solution.status, moves_of(made, solution)

    def _limit_s(self, kept: float) -> float:
        """Return the seconds until the deadline, less the share that is kept."""
        return max(0.1, self.deadline_s - time.perf_counter()) * (1 - kept)

    def schedule(self, moves: list[LinkMove], gap: float) -> Schedule:
        """Return the schedule of these moves, completed by shortest paths."""
        method = "tacos_ilp_published" if moves else "paths"
        made = completed(self.grid.bundles, self.collective, self.chunk_bytes, moves, method, self.seed)
        return replace(made, outcome=_outcome(made, gap))


def _outcome(schedule: Schedule, gap: float) -> Outcome:
    known = bounds(schedule.network, schedule.collective, schedule.chunk_bytes)
    status = "feasible" if gap else "optimal"
    # An all_reduce of two optimal halves is not an optimal all_reduce.
    if schedule.collective.kind == "all_reduce":
        status = "feasible"
    return Outcome(replay(schedule).time_s, tuple(known), status, gap)


def _searched(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    seed: int,
    time_limit_s: float,
    solver: str,
    time_step_s: float | None,
) -> Schedule:
    """Return the schedule of the first horizon that is feasible, or of early termination."""
    deadline_s = time.perf_counter() + time_limit_s
    bundles = bundle(network)
    # Shortest paths only limit the horizons that are listed.
    limit_s = replay(completed(bundles, collective, chunk_bytes, [], "paths", seed)).time_s
    up = time_step_s is not None
    grid = grid_of(bundles, chunk_bytes, limit_s, tick_s=time_step_s, up=up)
    search = _Search(collective, grid, chunk_bytes, solver, seed, deadline_s)
    diameter = _diameter(grid, collective.held(), collective.wanted())
    expansion = expand(grid, collective.held(), max(grid.ticks(limit_s), diameter))
    if expansion is None:
        raise NotApplicableError(
            "tacos_ilp_published: the links have too many different costs for one time-expanded network: "
            "give a time step, TACOS's discretization factor"
        )
    horizons = [int(tick) for tick in expansion.arrivals if tick >= diameter]
    for horizon in horizons:
        status, moves = search.decided(expansion.until(horizon))
        if moves:
            return search.schedule(moves, 0.0)
        if status != "infeasible" or time.perf_counter() > deadline_s:
            break
    _, moves = search.decided(expansion.until(horizon), elastic=True)
    made = search.schedule(moves, 1.0)
    end_s = replay(made).time_s
    # All earlier horizons are infeasible; the last one that was tried is not decided.
    gap = 1.0 - horizon * grid.tick_s / end_s
    return replace(made, outcome=_outcome(made, gap if gap > CLOSE else 0.0))


def _diameter(grid: TimeGrid, held: Mask, wanted: Mask) -> int:
    """Return the ticks that the farthest chunk takes to reach a rank that lacks it."""
    most = 0
    for rank, chunk in zip(*(wanted & ~held).nonzero(), strict=True):
        most = max(most, int(grid.distance[held[:, chunk], rank].min()))
    return most
