"""Tiles, the outermost loop of GC3's interpreter (Sec. 4.3): all steps run on one tile of each chunk in turn.

A chunk longer than a tile is cut into tiles, which lie in different memory. So a step waits for steps of
other tiles only in its own threadblock. The simulator takes this for a longer program on shorter chunks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.columns import ints
from synth.program import Program

__all__ = ["in_tiles", "tiles_of"]

# The most steps of a simulation that ends soon; with more, tiles are taken to be longer.
_MOST_STEPS = 4_000_000


def tiles_of(program: Program, chunk_bytes: int, tile_bytes: int) -> int:
    """How many tiles a chunk has, at least one; fewer if the program would have too many steps."""
    wanted = max(1, -(-chunk_bytes // tile_bytes))
    return max(1, min(wanted, _MOST_STEPS // max(1, program.steps)))


def in_tiles(program: Program, tiles: int) -> Program:
    """The program with each threadblock's steps repeated for each tile; O(steps · tiles).

    It is only for timing: all tiles use the slots of the first one.
    """
    if tiles == 1:
        return program
    length = np.diff(program.tb_start)
    start = ints(program.tb_start * tiles)
    # For each new step the step of the program that it repeats, and in which tile.
    tb = np.repeat(np.arange(program.threadblocks), length * tiles)
    within = np.arange(len(tb)) - start[tb]
    tile, step = within // length[tb], program.tb_start[tb] + within % length[tb]
    waits = program.wait_tb[step]
    ahead = np.where(waits >= 0, length[waits] * tile, 0)
    columns = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb")
    repeated = {name: getattr(program, name)[step] for name in columns}
    told = {name: getattr(program, name)[step] for name in ("line", "turn") if len(getattr(program, name))}
    return replace(
        program, tb_start=start, wait_step=ints(program.wait_step[step] + ahead), **repeated, **told
    )
