"""Who a rank waits for when its interpreter cannot go on: the threadblock, the step, the peer."""

from __future__ import annotations

import ctypes
from typing import Any

from exec.mpi import kernel
from exec.mpi.tables import Tables
from synth.program import Program

__all__ = ["waits_for"]


def waits_for(program: Program, tables: Tables, arguments: tuple[Any, ...]) -> tuple[int, str]:
    """(rank, "rank 0 threadblock 1 step 3 (rrc)"); rank -1 where no threadblock is at work."""
    header, blocks, links = arguments[0], tables.blocks, arguments[5]
    best: tuple[int, str] = (-1, f"{program.name}: until all have read")
    for block in blocks.tolist():
        if block[kernel.AT_TILE] >= header[kernel.TILES]:
            continue
        row = tables.steps[block[kernel.AT_STEP]]
        step = int(tables.step_of[block[kernel.AT_STEP]])
        peer = _peer(program, header, links, row, step, block[kernel.AT_TILE])
        tiles = int(header[kernel.TILES])
        where = program.place(step) + (f", tile {block[kernel.AT_TILE]} of {tiles}" if tiles > 1 else "")
        if peer >= 0:
            return peer, where
        best = (-1, where)
    return best


def _peer(program: Program, header: Any, links: Any, row: Any, step: int, tile: int) -> int:
    """The rank whose message, or whose reading of one, is missing; -1 where another step is."""
    threadblock = program.tb_of[step]
    link = row[kernel.IN]
    if link >= 0:
        number = (header[kernel.RUN] * header[kernel.TILES] + tile) * links[link, kernel.PER_TILE]
        if (
            ctypes.c_int64.from_address(int(links[link, kernel.WRITTEN])).value
            <= number + row[kernel.IN_NUMBER]
        ):
            return int(program.tb_recv[threadblock])
    if row[kernel.OUT] >= 0:
        return int(program.tb_send[threadblock])
    return -1
