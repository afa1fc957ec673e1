"""CBC through PuLP: its settings, limits and results; and the names of all solvers of integer programs.

`synth.milp.highs` has the other solver. No other module of ccctl calls a solver of integer programs.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.base import UnavailableError, UsageError, meant

__all__ = ["SOLVERS", "SolverLimits", "bound_of", "cbc_of", "require", "run"]

SOLVERS = ("cbc", "highs")


@dataclass(frozen=True)
class SolverLimits:
    """Limits of a solver: a time, a relative gap, a number of nodes (None: no limit)."""

    limit_s: float
    gap: float = 0.0
    seed: int = 0
    nodes: int | None = None


def run(program: Any, problem: Any, limit_s: float) -> int:
    """Run CBC and return its status.

    Timers end CBC soon after ``limit_s``: it checks its clock only between steps, which can take minutes.
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
    except pulp.PulpSolverError as error:
        if time.perf_counter() - begun_s > limit_s:
            return int(pulp.LpSolutionNoSolutionFound)
        raise UnavailableError(
            f" cbc: expected it to solve a program of {problem.numVariables()} columns, found: {error}",
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


def require(solver: str) -> None:
    """Raise UsageError if ``solver`` is not known, UnavailableError if it is not installed."""
    if solver not in SOLVERS:
        raise UsageError(
            f" {solver}: unknown solver",
            hint=meant(solver, SOLVERS) or f"known: {', '.join(SOLVERS)}",
            argument="solver",
        )
    if solver == "cbc":
        cbc_of(False, True, SolverLimits(1.0), Path("unused.log"))


def cbc_of(started: bool, preprocess: bool, effort: SolverLimits, log: Path) -> Any:
    """Return CBC with these settings; raise UnavailableError if PuLP brings none for this machine."""
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


def bound_of(text: str, otherwise: float) -> float:
    """Return the bound that CBC prints when it stops early, or ``otherwise`` if there is none."""
    printed = re.findall(r"^(?:Lower bound|\(best possible\)):\s+(\S+)", text, re.MULTILINE)
    return float(printed[-1]) if printed else otherwise
