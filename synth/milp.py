"""Mixed-integer linear programs: built in columns and rows, solved through PuLP by CBC or HiGHS.

Nothing else in ccctl talks to a solver of integer programs. What a solver says is kept: its status,
the bound it proved, the gap, what it printed. An answer is called infeasible or optimal only where
the solver ended by itself, well within its time.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from probes.columns import Floats
from probes.errors import UnavailableError, UsageError

__all__ = ["SOLVERS", "Model", "Solution", "Status", "require"]

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
SOLVERS = ("cbc", "highs")
# A solver that stops this close to its limit may have been cut short, whatever it says.
_ENDED_BY_ITSELF = 0.97
# CBC ends without a status where its preprocessing finds a contradiction.
_CONTRADICTION = "Pre-processing says infeasible or unbounded"


@dataclass(frozen=True, eq=False)
class Solution:
    """``values`` of all columns (None without a solution); ``bound`` is a proven least objective."""

    status: Status
    values: Floats | None
    objective: float
    bound: float
    seconds: float
    log: str = ""

    @property
    def gap(self) -> float:
        """(objective − bound) / objective: 0 is proven optimal, infinite without a solution."""
        if self.values is None:
            return math.inf
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-12)


@dataclass(eq=False)
class Model:
    """Minimise ``cost``·x with low ≤ row·x ≤ high; columns are numbers, in the order they are added.

    ``start`` is a solution to begin with. Without ``preprocess`` CBC leaves the program as it is, which
    finds solutions of pure feasibility problems sooner.
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
        """A continuous column."""
        return self._column(low, high, False)

    def binary(self) -> int:
        """A column that is 0 or 1."""
        return self._column(0.0, 1.0, True)

    def row(
        self,
        columns: Sequence[int],
        coefficients: Sequence[float],
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        """``low`` ≤ Σ coefficient·column ≤ ``high``; a column may be named once."""
        self.rows.append((list(columns), list(coefficients), low, high))

    def solve(
        self,
        *,
        solver: str = "cbc",
        time_limit_s: float = 60.0,
        gap: float = 0.0,
        threads: int = 1,
        seed: int = 0,
    ) -> Solution:
        """The best solution within the time, with its proof as far as it came.

        ``gap`` is the relative gap that is good enough. Raises UnavailableError if the solver is
        not installed, UsageError if it is not known.
        """
        begun_s = time.perf_counter()
        problem, variables = self._problem()
        left_s = max(0.1, time_limit_s - (time.perf_counter() - begun_s))
        with tempfile.TemporaryDirectory(prefix="ccctl-milp-") as folder:
            log = Path(folder) / "solver.log"
            program = _solver(solver)(self, left_s, gap, threads, seed, log)
            program.tmpDir = folder
            solving_s = time.perf_counter()
            code = _run(program, problem, solver, left_s)
            taken_s = time.perf_counter() - solving_s
            text = log.read_text(errors="replace") if log.exists() else ""
        ended = taken_s < _ENDED_BY_ITSELF * left_s and "maximum time" not in text
        return self._solution(code, ended, variables, text, problem, gap, time.perf_counter() - begun_s)

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
        problem.addVariables(variables)
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
        problem: Any,
        gap: float,
        seconds: float,
    ) -> Solution:
        import pulp

        bounded = all(math.isfinite(self.high[at]) for at in self.cost)
        if code == pulp.LpSolutionInfeasible or (_CONTRADICTION in text and bounded):
            status: Status = "infeasible" if ended else "unknown"
            return Solution(status, None, math.inf, math.inf if ended else -math.inf, seconds, text)
        if code not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return Solution("unknown", None, math.inf, _bound(text, problem, -math.inf), seconds, text)
        values = np.array([variable.value() or 0.0 for variable in variables])
        whole = np.array(self.integer, dtype=bool)
        values[whole] = np.round(values[whole])
        objective = sum(values[at] * cost for at, cost in self.cost.items())
        proven = code == pulp.LpSolutionOptimal and ended
        bound = min(objective, _bound(text, problem, objective if proven else -math.inf))
        exact = proven and objective - bound <= max(gap, 1e-9) * max(abs(objective), 1e-12)
        return Solution("optimal" if exact else "feasible", values, objective, bound, seconds, text)


def _run(program: Any, problem: Any, solver: str, limit_s: float) -> int:
    """The solution status. CBC looks at its clock only between steps, which can be minutes apart."""
    import pulp

    stops = [
        threading.Timer(limit_s * 1.02 + late_s, _interrupt, (program.tmpDir, number))
        for late_s, number in ((0.5, signal.SIGINT), (2.0, signal.SIGKILL))
    ]
    begun_s = time.perf_counter()
    try:
        for stop in stops:
            stop.daemon = True
            stop.start()
        problem.solve(program)
    except pulp.PulpSolverError as error:
        if time.perf_counter() - begun_s > limit_s:
            return int(pulp.LpSolutionNoSolutionFound)
        raise UnavailableError(
            f"--solver {solver}: expected it to solve a program of {problem.numVariables()} columns, "
            f"found: {error}",
            hint="ccctl doctor shows which solvers work",
        ) from error
    finally:
        for stop in stops:
            stop.cancel()
    return int(problem.sol_status)


def _interrupt(folder: str, number: int) -> None:
    """Signal the solver process that works on files in ``folder``."""
    import psutil

    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(argument.startswith(folder) for argument in child.cmdline()):
                child.send_signal(number)


def _solver(name: str) -> Callable[..., Any]:
    """What makes the named solver from (model, time limit, gap, threads, seed, log file)."""
    makers: dict[str, Callable[..., Any]] = {"cbc": _cbc, "highs": _highs}
    if name not in makers:
        raise UsageError(f"--solver {name}: unknown solver", hint=f"known: {', '.join(SOLVERS)}")
    return makers[name]


def require(solver: str) -> None:
    """Raise UsageError if ``solver`` is not known, UnavailableError if it is not installed."""
    _solver(solver)(Model(), 1.0, 0.0, 1, 0, Path(os.devnull))


def _cbc(model: Model, limit_s: float, gap: float, threads: int, seed: int, log: Path) -> Any:
    import pulp

    program = pulp.PULP_CBC_CMD(
        msg=False,
        timeLimit=round(limit_s, 3),
        gapRel=gap,
        threads=threads if threads > 1 else None,
        warmStart=bool(model.start),
        logPath=str(log),
        options=[
            f"randomSeed {seed + 1}",
            f"randomCbcSeed {seed + 1}",
            *([] if model.preprocess else ["preprocess off"]),
        ],
    )
    if not program.available():
        raise UnavailableError(
            f"--solver cbc: expected the CBC that PuLP brings, found none at {program.path}",
            hint="pip install 'pulp>=3.1,<4', or --solver highs",
        )
    return program


def _highs(model: Model, limit_s: float, gap: float, threads: int, seed: int, log: Path) -> Any:
    import pulp

    if not pulp.HiGHS().available():
        raise UnavailableError(
            "--solver highs: expected highspy, found none", hint="pip install 'ccctl[highs]', or --solver cbc"
        )
    return pulp.HiGHS(
        msg=True,
        timeLimit=limit_s,
        gapRel=gap,
        threads=threads,
        random_seed=seed,
        log_to_console=False,
        log_file=str(log),
    )


def _bound(text: str, problem: Any, otherwise: float) -> float:
    """The proven bound: HiGHS hands it over, CBC prints it when it stops early."""
    highs = getattr(problem, "solverModel", None)
    if highs is not None:
        bound = float(highs.getInfo().mip_dual_bound)
        return bound if math.isfinite(bound) else otherwise
    printed = re.findall(r"^(?:Lower bound|\(best possible\)):\s+(\S+)", text, re.MULTILINE)
    return float(printed[-1]) if printed else otherwise
