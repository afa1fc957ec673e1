"""Mixed-integer linear programs: built in columns and rows, solved by CBC through PuLP or HiGHS in SciPy.

``synth.milp.backends`` and ``synth.milp.highs`` run the solvers. The solution keeps its status, its proven
bound, its gap and its log. The status is "infeasible" or "optimal" only if the solver ended by itself, well
within its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from probes.base import Floats
from probes.files import temporary_folders
from synth.milp.backends import SolverLimits, bound_of, cbc_of, require, run
from synth.milp.highs import solve_by_highs

__all__ = ["IntegerProgram", "Solution", "Status", "relative_gap", "require"]

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
# A solver that uses at least this share of its time limit may have been cut short, whatever its status.
_ENDED_BY_ITSELF = 0.97
# CBC ends without a status if its preprocessing finds a contradiction.
_CONTRADICTION = "Pre-processing says infeasible or unbounded"


@dataclass(frozen=True, eq=False)
class Solution:
    """The ``values`` of all columns, None if none were found, and a proven lower ``bound``."""

    status: Status
    values: Floats | None
    objective: float
    bound: float
    seconds: float
    log: str = ""

    @property
    def gap(self) -> float:
        """The relative gap of the objective; infinite without a solution."""
        return math.inf if self.values is None else relative_gap(self.objective, self.bound)


def relative_gap(value: float, bound: float) -> float:
    """Return (value − bound) / value, an upper bound on the distance to the optimum; 0 is optimal."""
    return max(0.0, value - bound) / max(abs(value), 1e-12)


@dataclass(eq=False)
class IntegerProgram:
    """A program: minimise ``cost``·x with low ≤ row·x ≤ high; columns are numbered as they are added.

    ``start`` is a first solution. Without ``preprocess`` CBC solves the program unchanged, which finds
    solutions of pure feasibility problems sooner.
    """

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    cost: dict[int, float] = field(default_factory=dict)
    rows: list[tuple[list[int], list[float], float, float]] = field(default_factory=list)
    start: dict[int, float] = field(default_factory=dict)
    preprocess: bool = True

    @property
    def columns(self) -> int:
        return len(self.low)

    def number(self, low: float = 0.0, high: float = math.inf) -> int:
        """Add a continuous column, and return its number."""
        return self._column(low, high, False)

    def integer_number(self, low: float = 0.0, high: float = math.inf) -> int:
        """Add an integer column, and return its number."""
        return self._column(low, high, True)

    def binary(self) -> int:
        """Add a column that is 0 or 1, and return its number."""
        return self._column(0.0, 1.0, True)

    def row(
        self,
        columns: Sequence[int],
        coefficients: Sequence[float],
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        """Add the row ``low`` ≤ Σ coefficient·column ≤ ``high``; each column may appear once."""
        self.rows.append((list(columns), list(coefficients), low, high))

    def solve(
        self,
        *,
        solver: str = "cbc",
        time_limit_s: float = 60.0,
        gap: float = 0.0,
        seed: int = 0,
        node_limit: int | None = None,
    ) -> Solution:
        """Return the best solution within the time, with the bound proven by then.

        ``gap`` is the relative gap that is good enough. ``node_limit`` ends the search after this many nodes
        of the tree, independent of a machine's speed. Raises UnavailableError if the solver is not installed,
        UsageError if it is not known.
        """
        require(solver)
        begun_s = time.perf_counter()
        if solver == "highs":
            return self._by_highs(SolverLimits(time_limit_s, gap, seed, node_limit))
        problem, variables = self._problem()
        left_s = max(0.1, time_limit_s - (time.perf_counter() - begun_s))
        with temporary_folders.folder("ccctl-milp-") as folder:
            log = folder / "solver.log"
            effort = SolverLimits(left_s, gap, seed, node_limit)
            program = cbc_of(bool(self.start), self.preprocess, effort, log)
            program.tmpDir = str(folder)
            solving_s = time.perf_counter()
            code = run(program, problem, left_s)
            taken_s = time.perf_counter() - solving_s
            text = log.read_text(errors="replace") if log.exists() else ""
        cut_short = "maximum time" in text or "maximum nodes" in text
        ended = taken_s < _ENDED_BY_ITSELF * left_s and not cut_short
        return self._solution(code, ended, variables, text, gap, time.perf_counter() - begun_s)

    def _column(self, low: float, high: float, integer: bool) -> int:
        self.low.append(low)
        self.high.append(high)
        self.integer.append(integer)
        return self.columns - 1

    def _problem(self) -> tuple[Any, list[Any]]:
        import pulp

        problem = pulp.LpProblem("ccctl", pulp.LpMinimize)
        variables = [
            pulp.LpVariable(
                f"x{at:07d}",
                self.low[at],
                None if math.isinf(self.high[at]) else self.high[at],
                pulp.LpInteger if self.integer[at] else pulp.LpContinuous,
            )
            for at in range(self.columns)
        ]
        # Solvers refuse a column that has no cost and is in no row, so it is left out and stays at its lower
        # bound.
        used = set(self.cost).union(*(columns for columns, _, _, _ in self.rows))
        problem.addVariables([variables[at] for at in sorted(used)])
        for at, value in self.start.items():
            variables[at].setInitialValue(value)
        problem += pulp.LpAffineExpression([(variables[at], cost) for at, cost in self.cost.items()])
        for columns, coefficients, low, high in self.rows:
            terms = pulp.LpAffineExpression(
                [(variables[at], c) for at, c in zip(columns, coefficients, strict=True)]
            )
            if low == high:
                problem += terms == low
                continue
            if high < math.inf:
                problem += pulp.LpConstraint(terms, pulp.LpConstraintLE, rhs=high)
            if low > -math.inf:
                problem += pulp.LpConstraint(terms, pulp.LpConstraintGE, rhs=low)
        return problem, variables

    def _solution(
        self,
        code: int,
        ended: bool,
        variables: list[Any],
        text: str,
        gap: float,
        seconds: float,
    ) -> Solution:
        import pulp

        bounded = all(math.isfinite(self.high[at]) for at in self.cost)
        if code == pulp.LpSolutionInfeasible or (_CONTRADICTION in text and bounded):
            status: Status = "infeasible" if ended else "unknown"
            return Solution(status, None, math.inf, math.inf if ended else -math.inf, seconds, text)
        if code not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return Solution("unknown", None, math.inf, bound_of(text, -math.inf), seconds, text)
        found = [variable.value() for variable in variables]
        values = np.array(
            [low if value is None else value for value, low in zip(found, self.low, strict=True)]
        )
        proven = code == pulp.LpSolutionOptimal and ended
        return self._rounded(
            values, bound_of(text, math.inf if proven else -math.inf), proven, gap, seconds, text
        )

    def _by_highs(self, limits: SolverLimits) -> Solution:
        begun_s = time.perf_counter()
        cost = np.zeros(self.columns)
        cost[list(self.cost)] = list(self.cost.values())
        low, high = np.array(self.low), np.array(self.high)
        found = solve_by_highs(cost, low, high, self.integer, self.rows, limits)
        seconds = time.perf_counter() - begun_s
        bound = -math.inf if found.bound is None or math.isnan(found.bound) else found.bound
        if found.infeasible:
            return Solution("infeasible", None, math.inf, math.inf, seconds, found.message)
        if found.values is None:
            return Solution("unknown", None, math.inf, bound, seconds, found.message)
        return self._rounded(found.values, bound, found.ended, limits.gap, seconds, found.message)

    def _rounded(
        self, values: Floats, bound: float, proven: bool, gap: float, seconds: float, text: str
    ) -> Solution:
        """Return the solution of these values, with integer columns rounded."""
        whole = np.array(self.integer, dtype=bool)
        values[whole] = np.round(values[whole])
        objective = sum(values[at] * cost for at, cost in self.cost.items())
        bound = min(objective, bound)
        exact = proven and objective - bound <= max(gap, 1e-9) * max(abs(objective), 1e-12)
        return Solution("optimal" if exact else "feasible", values, objective, bound, seconds, text)
