"""What a rank copies and adds in its own memory while all others do the same, by size."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

__all__ = ["SIZES_BYTES", "memory_speed"]

# From the innermost caches to beyond the largest; of an operand, of which a sum has three.
SIZES_BYTES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
# As often as so many bytes need, and each so many times, of which the median counts.
_BYTES, _TIMES = 4 << 20, 5


def memory_speed(comm: Any) -> tuple[list[float], list[float]]:
    """(copies, sums): this rank's seconds for a byte of an operand, one value a size; collective.

    All ranks begin at once. Sums are of float32: two operands into a third place.
    """
    operands = [np.ones(SIZES_BYTES[-1] // 4, np.float32) for _ in range(3)]
    copies, sums = [], []
    for size_bytes in SIZES_BYTES:
        first, second, result = (array[: size_bytes // 4] for array in operands)
        turns = max(1, _BYTES // size_bytes)
        taken_s: tuple[list[float], list[float]] = ([], [])
        for _ in range(_TIMES):
            comm.Barrier()
            begin_s = perf_counter()
            for _ in range(turns):
                np.copyto(result, first)
            middle_s = perf_counter()
            for _ in range(turns):
                np.add(first, second, out=result)
            taken_s[0].append(middle_s - begin_s)
            taken_s[1].append(perf_counter() - middle_s)
        copies.append(median(taken_s[0]) / turns / size_bytes)
        sums.append(median(taken_s[1]) / turns / size_bytes)
    return copies, sums
