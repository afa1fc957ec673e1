"""HiGHS, which comes with SciPy: it solves a program of columns and rows in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Floats
from synth.milp.backends import SolverLimits

__all__ = ["HighsResult", "solve_by_highs"]

Rows = Sequence[tuple[list[int], list[float], float, float]]
# Statuses of scipy.optimize.milp.
_OPTIMAL, _INFEASIBLE = 0, 2


@dataclass(frozen=True, eq=False)
class HighsResult:
    """The values found, or None, and the proven bound.

    ``ended`` tells whether the search ended by itself, ``infeasible`` whether it proved that nothing fits.
    """

    values: Floats | None
    bound: float | None
    ended: bool
    infeasible: bool
    message: str


def solve_by_highs(
    cost: Floats, low: Floats, high: Floats, integer: Sequence[bool], rows: Rows, limits: SolverLimits
) -> HighsResult:
    """Return what HiGHS finds for: minimise ``cost``·x with ``low`` ≤ x ≤ ``high`` and the rows.

    HiGHS has no seed here: the same program gives the same solution if no time limit ends the search.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    options: dict[str, float | bool] = {"time_limit": limits.limit_s, "mip_rel_gap": limits.gap}
    if limits.nodes is not None:
        options["node_limit"] = limits.nodes
    starts = np.concatenate(([0], np.cumsum([len(columns) for columns, _, _, _ in rows])))
    columns = np.array([column for each, _, _, _ in rows for column in each], dtype=np.int64)
    values = np.array([value for _, each, _, _ in rows for value in each], dtype=np.float64)
    table = csr_array((values, columns, starts.astype(np.int64)), shape=(len(rows), len(cost)))
    limited = LinearConstraint(table, [row[2] for row in rows], [row[3] for row in rows])
    found = milp(
        cost,
        integrality=np.array(integer, dtype=np.int64),
        bounds=Bounds(low, high),
        constraints=[limited] if rows else [],
        options=options,
    )
    ended = found.status in (_OPTIMAL, _INFEASIBLE)
    infeasible = found.status == _INFEASIBLE
    return HighsResult(found.x, found.mip_dual_bound, ended, infeasible, str(found.message))
