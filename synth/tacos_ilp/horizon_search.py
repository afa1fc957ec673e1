"""The search for the least horizon of TACOS-ILP (Sec. V), from the proven bound up.

When time runs out, the solver's partial solution is completed by shortest paths (Sec. V-B). A problem too
large for one program is solved in short windows one after the other (time clustering, Sec. V-C).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from probes.base import Indices, Progress
from synth.bounds import bounds, wavefront
from synth.collective import Collective
from synth.network import Network
from synth.schedules import Bound, Schedule
from synth.simulation import replay
from synth.tacos_ilp.recovery import completed
from synth.tacos_ilp.time_expanded_milp import LinkMove, by_orbits, moves_of, program
from synth.tacos_ilp.time_expanded_network import Bundles, Expansion, bundle, expand, grid_of

__all__ = ["CLOSE", "HorizonSearch", "Mechanism", "copies_to_all"]

# The mechanisms for a program that is too large to be solved whole; "auto" uses both as needed.
Mechanism = Literal["auto", "early-termination", "time-clustering"]

# Horizons count as equal if their relative difference is less.
CLOSE = 1e-6
# The largest program that is solved whole.
_MOST_COLUMNS = 60_000
# A program may have this many columns for each second of time that is left.
_COLUMNS_PER_S = 6_000
# The length of a window, in the travel times of the slowest link.
_WINDOW_HOPS = 2
# The part of the remaining time that one program may take.
_SHARE = 0.7
# A program with only the first _FEW instants of each hold time is solved first, if it has less than the
# fraction _FEWER of all instants.
_FEW = 4
_FEWER = 0.8
# No program is started with less than this many seconds left.
_LEAST_S = 0.2


@dataclass(eq=False)
class HorizonSearch:
    """The search for one copying collective: its best schedule so far, and its bound so far.

    ``programs`` counts the integer programs that a solver was given.
    """

    network: Network
    collective: Collective
    chunk_bytes: int
    seed: int
    deadline_s: float
    solver: str
    progress: Progress
    warm_starts: Iterator[Schedule]
    time_step_s: float | None = None
    mechanism: Mechanism = "auto"
    bound: Bound | None = None
    best: Schedule = field(init=False)
    best_s: float = float("inf")
    programs: int = 0

    def run(self) -> Schedule:
        bundles = bundle(self.network)
        shape = self.collective
        self.bound = wavefront(self.network, shape.held(), shape.wanted(), self.chunk_bytes)
        known_s = bounds(self.network, shape, self.chunk_bytes)[0].time_s
        known_s = max(known_s, self.bound.time_s if self.bound else 0.0)
        self._begin(bundles, known_s)
        if self.best_s <= known_s * (1 + CLOSE):
            return self.best
        if self.mechanism == "time-clustering":
            self._cluster(bundles)
            return self.best
        if self.mechanism == "early-termination":
            self._end_early(bundles, known_s)
            return self.best
        grid = grid_of(bundles, self.chunk_bytes, self.best_s, tick_s=self.time_step_s, up=self._up)
        expansion = expand(grid, self.collective.held(), grid.ticks(self.best_s))
        if expansion is None or not self._grow(expansion, grid.ticks(known_s)):
            self._cluster(bundles)
        return self.best

    @property
    def _up(self) -> bool:
        """Whether times are rounded up, as in the paper; infeasible horizons then prove nothing."""
        return self.time_step_s is not None

    def _end_early(self, bundles: Bundles, known_s: float) -> None:
        """Solve one program until time is up; complete its solution by shortest paths (Sec. V-B).

        As in the paper, times are multiples of a step, by default the shortest hop: with exact times,
        programs are so large that a stopped solver has no solution yet. The horizon is the bound, rounded up
        to steps.
        """
        step_s = self.time_step_s or float(self.network.travel_s(self.chunk_bytes).min())
        grid = grid_of(bundles, self.chunk_bytes, self.best_s, tick_s=step_s, up=True)
        horizon = math.ceil(known_s / step_s * (1 - CLOSE))
        expansion = expand(grid, self.collective.held(), horizon)
        if expansion is not None:
            self._feasibility(expansion, self._left_s(), elastic=True)

    def _left_s(self) -> float:
        return self.deadline_s - time.perf_counter()

    def _most(self) -> int:
        """Return the limit of columns for the time left; early termination accepts many more."""
        if self.mechanism == "early-termination":
            return 100 * _MOST_COLUMNS
        return min(_MOST_COLUMNS, int(self._left_s() * _COLUMNS_PER_S))

    def _keep(self, schedule: Schedule) -> None:
        time_s = replay(schedule).time_s
        if time_s < self.best_s:
            self.best, self.best_s = schedule, time_s

    def _begin(self, bundles: Bundles, known_s: float) -> None:
        """Find a first schedule: by other methods until one meets the bound, or shortest paths."""
        if not copies_to_all(self.collective):
            self._keep(self._schedule(bundles, []))
        for at in itertools.count():
            if self.best_s <= known_s * (1 + CLOSE) or (at and self._left_s() < _LEAST_S):
                return
            made = next(self.warm_starts, None)
            if made is None:
                break
            self._keep(replace(made, seed=self.seed))
        if self.best_s == float("inf"):
            self._keep(self._schedule(bundles, []))

    def _schedule(self, bundles: Bundles, moves: list[LinkMove]) -> Schedule:
        # A schedule of shortest paths alone is not named after the integer program.
        method = "ilp" if moves else "paths"
        return completed(bundles, self.collective, self.chunk_bytes, moves, method, self.seed)

    def _grow(self, expansion: Expansion, known: int) -> bool:
        """Test horizons from the known bound up; return False if programs are too large to solve.

        Steps double while horizons are infeasible, so that many close horizons cost few programs. After the
        first feasible horizon, each step halves the remaining range.
        """
        horizons = expansion.arrivals
        horizons = horizons[horizons < expansion.horizon]
        low = int(np.searchsorted(horizons, known, side="right")) - 1
        low, high, step = max(low, 0), len(horizons), 1
        while low < high and self._left_s() > _LEAST_S:
            at = min(low + step - 1, high - 1)
            self.progress.update(low, high, f"horizon {horizons[at] * expansion.grid.tick_s * 1e6:.6g} us")
            answer = self._decide(expansion.until(int(horizons[at])))
            if answer is None:
                return low > 0
            if answer == "unknown":
                break
            if answer == "infeasible":
                low, step = at + 1, 2 * step
            else:
                high, step = at, 1 if at - low < 2 else (at - low) // 2
        self._prove(expansion, horizons, low)
        if low < high and self._left_s() > _LEAST_S:
            self._feasibility(expansion.until(int(horizons[high - 1])), self._left_s(), elastic=True)
        return True

    def _decide(self, expansion: Expansion) -> str | None:
        """Return "feasible", "infeasible" or "unknown" for a horizon; None if the program is too large.

        Smaller programs come first: one of orbits, and one of few instants, which can only prove that the
        horizon is feasible.
        """
        status, moves = by_orbits(
            expansion,
            self.collective.held(),
            self.collective.wanted(),
            most_columns=self._most(),
            solver=self.solver,
            time_limit_s=self._left_s() * _SHARE / 2,
            seed=self.seed,
        )
        if moves:
            self._keep(self._schedule(expansion.grid.bundles, moves))
        if status != "unknown":
            self.programs += 1
            return status
        thin = expansion.thinned(_FEW)
        if thin.instants < _FEWER * expansion.instants:
            answer = self._feasibility(thin, self._left_s() * _SHARE, elastic=False)
            if answer == "feasible":
                return answer
        return self._feasibility(expansion, self._left_s() * _SHARE, elastic=False)

    def _feasibility(self, expansion: Expansion, limit_s: float, *, elastic: bool) -> str | None:
        """Return "feasible", "infeasible" or "unknown" for the program; None if it is too large.

        A solution is kept if it is the best so far.
        """
        until_s = time.perf_counter() + limit_s
        shape = self.collective
        made = program(expansion, shape.held(), shape.wanted(), elastic=elastic, most_columns=self._most())
        if made is None:
            return None
        if not made.possible and not elastic:
            return "infeasible"
        limit_s = max(0.1, until_s - time.perf_counter())
        self.programs += 1
        solution = made.model.solve(solver=self.solver, time_limit_s=limit_s, seed=self.seed)
        if solution.values is not None:
            self._keep(self._schedule(expansion.grid.bundles, moves_of(made, solution)))
            return "feasible"
        return solution.status

    def _prove(self, expansion: Expansion, horizons: Indices, low: int) -> None:
        """Raise the bound to the first horizon that is not proven infeasible."""
        if not low or self._up:
            return
        tick_s = expansion.grid.tick_s
        next_s = float(horizons[low] * tick_s) if low < len(horizons) else self.best_s
        exactly = "exact times" if expansion.grid.exact else f"times rounded down to {tick_s:.3g} s"
        self.bound = Bound(
            "ILP horizon",
            min(next_s, self.best_s),
            f"none ends by {horizons[low - 1] * tick_s:.9g} s: {expansion.instants} instants, {exactly}",
        )

    def _cluster(self, bundles: Bundles) -> None:
        """Solve short windows one after the other, each moving as many chunks as it can."""
        # The tick is at most the shortest time that a chunk holds a link; alphas are rounded separately.
        tick_s = self.time_step_s or float(self.network.beta_s_per_byte.min()) * self.chunk_bytes
        grid = grid_of(bundles, self.chunk_bytes, self.best_s, tick_s=tick_s, up=self._up)
        window = _WINDOW_HOPS * int(grid.travel.max())
        held, wanted = self.collective.held(), self.collective.wanted()
        moves: list[LinkMove] = []
        begin = 0
        while (wanted & ~held).any() and self._left_s() > _LEAST_S:
            expansion = expand(grid, held, window)
            made = expansion and program(expansion, held, wanted, elastic=True, most_columns=self._most())
            if not made:
                break
            windows = max(2, -(-grid.ticks(self.best_s) // window) - begin // window)
            limit_s = self._left_s() * 2 / windows
            self.programs += 1
            solution = made.model.solve(solver=self.solver, time_limit_s=limit_s, seed=self.seed)
            found = moves_of(made, solution)
            if not found:
                break
            for move in found:
                held[self.network.dst[bundles.first[move.bundle]], move.chunk] = True
            moves += [replace(move, tick=begin + move.tick) for move in found]
            begin += window
        self._keep(self._schedule(bundles, moves))


def copies_to_all(collective: Collective) -> bool:
    """Return whether every rank wants every chunk, as in a whole all_gather or broadcast."""
    return collective.kind in ("all_gather", "broadcast") and not collective.members
