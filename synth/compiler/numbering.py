"""Threadblock numbers: awaited threadblocks come first if any rank has more than MSCCL can await."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import ints, offsets, spans
from synth.program import Program

__all__ = ["awaited_first"]

# The number of an awaited threadblock must be below this: MSCCL's runtime keeps it in a signed byte.
_MOST_AWAITED = 128
_TB_COLUMNS = ("tb_rank", "tb_send", "tb_recv", "tb_channel")
_STEP_COLUMNS = (
    *("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb", "wait_step"),
    *("line", "turn"),
)


def awaited_first(program: Program) -> Program:
    """Return the program with each rank's awaited threadblocks first, if any rank has over 128; O(steps).

    The order among the awaited threadblocks, and among the others, stays.
    """
    if program.threadblocks_max <= _MOST_AWAITED:
        return program
    free = np.ones(program.threadblocks, dtype=bool)
    free[program.wait_tb[program.wait_tb >= 0]] = False
    order = np.lexsort((free, program.tb_rank))
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    lengths = np.diff(program.tb_start)[order]
    # The old row of the step at each new row.
    rows = spans(program.tb_start[:-1][order], lengths)
    columns = {name: getattr(program, name)[order] for name in _TB_COLUMNS}
    for name in _STEP_COLUMNS:
        column = getattr(program, name)
        columns[name] = column[rows] if len(column) else column
    awaited = columns["wait_tb"]
    columns["wait_tb"] = ints(np.where(awaited >= 0, number[np.maximum(awaited, 0)], -1))
    return replace(program, tb_start=ints(offsets(lengths)), **columns)
