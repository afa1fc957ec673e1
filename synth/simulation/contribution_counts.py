"""The number of contributions that a send carries: 1 for a plain chunk, more for a partial sum."""

from __future__ import annotations

import numpy as np

from probes.base import Bytes, Indices, Ints, Mask
from synth.kernels import compiled
from synth.schedules import REDUCE, Schedule
from synth.simulation.chunk_slots import touched

__all__ = ["contributions"]


def contributions(schedule: Schedule) -> Indices:
    """Return the number of contributions that each send carries; O(sends).

    Correct for schedules that the checker accepts. A copy of an unreduced chunk carries 1.
    """
    slots = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    return _carried(*slots, schedule.op, schedule.addend_start, schedule.addend)


@compiled
def _carried(
    leaves: Indices, enters: Indices, held: Mask, op: Bytes, addend_start: Ints, addend: Ints
) -> Indices:
    summed = held.astype(np.int64)
    carried = np.empty(len(leaves), dtype=np.int64)
    for row in range(len(leaves)):
        carried[row] = summed[leaves[row]]
        if len(addend) > 0 and addend_start[row + 1] > addend_start[row]:
            carried[row] = 0
            for at in range(addend_start[row], addend_start[row + 1]):
                carried[row] += carried[addend[at]] if addend[at] >= 0 else 1
        before = summed[enters[row]] if op[row] == REDUCE else 0
        summed[enters[row]] = before + carried[row]
    return carried
