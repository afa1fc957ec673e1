"""A barrier that ranks leave at nearly the same time, and the clock offsets between their hosts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from exec.sockets import Group

__all__ = ["clock_offsets", "line_up", "offsets_of"]

# Each further meeting can only narrow the bounds of the offsets, but costs a barrier.
_MEETINGS = 30
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def line_up(comm: Any) -> None:
    """Wait until all ranks have come, and return at nearly the same time on all of them; collective."""
    if isinstance(comm, Group):
        comm.line_up()
    else:
        comm.Barrier()


def clock_offsets(comm: Any) -> tuple[tuple[int, ...], int]:
    """Return (nanoseconds that each rank's monotonic clock is ahead of rank 0's, their largest error).

    All ranks line up several times; no rank goes on before all have come. Ranks under one kernel share its
    clock. Collective; all ranks get the same result.
    """
    kernels = comm.allgather(_BOOT_ID.read_text() if _BOOT_ID.exists() else "")
    if len(set(kernels)) == 1:
        return (0,) * comm.Get_size(), 0
    stamps = []
    for _ in range(_MEETINGS):
        came_ns = time.perf_counter_ns()
        line_up(comm)
        stamps.append((came_ns, time.perf_counter_ns()))
    return offsets_of(np.array(comm.allgather(stamps)), kernels)


def offsets_of(stamps: np.ndarray, kernels: list[str]) -> tuple[tuple[int, ...], int]:
    """Return offsets and error from the times at which ranks came and left: (ranks, meetings, 2)."""
    came, left = stamps[..., 0], stamps[..., 1]
    found, error = [], 0
    for rank, kernel in enumerate(kernels):
        if kernel == kernels[0]:
            found.append(0)
            continue
        # Rank 0 came before this rank left, and this rank came before rank 0 left: a bound on each side.
        least, most = int((came[rank] - left[0]).max()), int((left[rank] - came[0]).min())
        found.append((least + most) // 2)
        error = max(error, (most - least + 1) // 2)
    return tuple(found), error
