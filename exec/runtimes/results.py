"""The right output of each rank by the definition of a collective, and the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Numbers", "RuntimeReport", "expected_output"]

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class RuntimeReport:
    """The result of a run in a reference runtime.

    ``wrong`` of ``elements`` output elements differ from the definition of the collective; all are compared
    after every launch. ``elements`` is 0 if the file does not say what the results must be.
    """

    launches: int
    actions: int
    elements: int
    wrong: int
    findings: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.wrong and not self.findings


def expected_output(kind: str, inputs: Sequence[Numbers], rank: int, root: int = 0) -> Numbers:
    """Return the output of ``rank``; raises ValueError for a collective that has no definition here."""
    ranks, nothing = len(inputs), np.zeros(0, dtype=np.int64)
    match kind:
        case "all_reduce":
            return _sum(inputs)
        case "reduce":
            return _sum(inputs) if rank == root else nothing
        case "reduce_scatter":
            return _share(_sum(inputs), rank, ranks)
        case "all_gather":
            return np.concatenate(inputs)
        case "gather":
            return np.concatenate(inputs) if rank == root else nothing
        case "all_to_all":
            return np.concatenate([_share(array, rank, ranks) for array in inputs])
        case "all_to_next":
            return inputs[rank - 1] if rank else nothing
        case "broadcast":
            return inputs[root]
        case "scatter":
            return _share(inputs[root], rank, ranks)
    raise ValueError(kind)


def _sum(inputs: Sequence[Numbers]) -> Numbers:
    total: Numbers = np.sum(inputs, axis=0)
    return total


def _share(whole: Numbers, rank: int, ranks: int) -> Numbers:
    size = len(whole) // ranks
    return whole[rank * size : (rank + 1) * size]
