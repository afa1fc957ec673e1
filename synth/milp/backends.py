"""The solvers of integer programs, CBC and HiGHS, through PuLP: their settings, limits and results.

No other module of ccctl calls a solver of integer programs.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.base import UnavailableError, UsageError, install, meant

__all__ = ["SOLVERS", "SolverLimits", "bound_of", "require", "run", "solver_of"]

SOLVERS = ("cbc", "highs")


@dataclass(frozen=True)
class SolverLimits:
    """Limits of a solver: a time, a relative gap, a number of nodes (None: no limit)."""

    limit_s: float
    gap: float = 0.0
    seed: int = 0
    nodes: int | None = None


def run(program: Any, problem: Any, solver: str, limit_s: float) -> int:
    """Run the solver and return its status.

    Timers end it soon after ``limit_s``, as CBC checks its clock only between steps, which can take minutes.
    """
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
    except KeyError:
        # PuLP raises this if HiGHS stops at its node limit, after it has read the values.
        found = math.isfinite(problem.solverModel.getObjectiveValue())
        return int(pulp.LpSolutionIntegerFeasible if found else pulp.LpSolutionNoSolutionFound)
    except pulp.PulpSolverError as error:
        if time.perf_counter() - begun_s > limit_s:
            return int(pulp.LpSolutionNoSolutionFound)
        raise UnavailableError(
            f" {solver}: expected it to solve a program of {problem.numVariables()} columns, found: {error}",
            hint="ccctl doctor shows which solvers work",
            argument="solver",
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


def solver_of(name: str) -> Callable[..., Any]:
    """Return the function that makes the named solver from (started, preprocess, effort, log)."""
    makers: dict[str, Callable[..., Any]] = {"cbc": _cbc, "highs": _highs}
    if name not in makers:
        raise UsageError(
            f" {name}: unknown solver",
            hint=meant(name, SOLVERS) or f"known: {', '.join(SOLVERS)}",
            argument="solver",
        )
    return makers[name]


def require(solver: str) -> None:
    """Raise UsageError if ``solver`` is not known, UnavailableError if it is not installed."""
    solver_of(solver)(False, True, SolverLimits(1.0), Path(os.devnull))


def _cbc(started: bool, preprocess: bool, effort: SolverLimits, log: Path) -> Any:
    import pulp

    program = pulp.PULP_CBC_CMD(
        msg=False,
        timeLimit=round(effort.limit_s, 3),
        gapRel=effort.gap,
        maxNodes=effort.nodes,
        warmStart=started,
        logPath=str(log),
        options=[
            f"randomSeed {effort.seed + 1}",
            f"randomCbcSeed {effort.seed + 1}",
            *([] if preprocess else ["preprocess off"]),
        ],
    )
    if not program.available():
        raise UnavailableError(
            f" cbc: expected the CBC that PuLP brings, found none at {program.path}",
            argument="solver",
            hint="pip install 'pulp>=3.1,<4', or the solver highs",
        )
    return program


def _highs(started: bool, preprocess: bool, effort: SolverLimits, log: Path) -> Any:
    import pulp

    if not pulp.HiGHS().available():
        raise UnavailableError(
            " highs: expected highspy, found none",
            hint=f"{install('highs')}, or the solver cbc",
            argument="solver",
        )
    return pulp.HiGHS(
        msg=True,
        timeLimit=effort.limit_s,
        gapRel=effort.gap,
        threads=1,
        random_seed=effort.seed,
        **({} if effort.nodes is None else {"mip_max_nodes": effort.nodes}),
        log_to_console=False,
        log_file=str(log),
    )


def bound_of(text: str, problem: Any, otherwise: float) -> float:
    """Return the proven bound, or ``otherwise`` if there is none.

    HiGHS reports it; CBC prints it when it stops early.
    """
    highs = getattr(problem, "solverModel", None)
    if highs is not None:
        bound = float(highs.getInfo().mip_dual_bound)
        return bound if math.isfinite(bound) else otherwise
    printed = re.findall(r"^(?:Lower bound|\(best possible\)):\s+(\S+)", text, re.MULTILINE)
    return float(printed[-1]) if printed else otherwise
