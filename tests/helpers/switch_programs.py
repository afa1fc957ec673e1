"""Programs in which switches sum and copy what ranks have just written."""

from __future__ import annotations

from dataclasses import replace

from assembler import Assembler

from probes.base.columns import ints
from synth.collective import collective
from synth.program import GLRE, GSTORE, INPUT, OPS, OUTPUT, SIGNAL, WAIT, Program

__all__ = ["copied_first"]


def copied_first(ranks: int) -> Program:
    """An all_reduce: each rank copies its input to its output, and the switch sums up outputs in place."""
    build = Assembler(collective("all_reduce", ranks, ranks))
    for rank in range(ranks):
        peers = range(1, ranks)
        blocks = [build.threadblock(rank, (rank + away) % ranks, (rank - away) % ranks) for away in peers]
        copied = build.step(blocks[0], OPS.index("cpy"), (INPUT, 0), (OUTPUT, 0), count=ranks)
        for block in blocks:
            build.step(block, SIGNAL, after=[copied])
        waits = [build.step(block, WAIT) for block in blocks]
        build.step(blocks[0], GLRE, (OUTPUT, rank), (OUTPUT, rank), after=waits)
        stored = build.step(blocks[0], GSTORE, (OUTPUT, rank), (OUTPUT, rank))
        for block in blocks:
            build.step(block, SIGNAL, after=[stored])
            build.step(block, WAIT)
    program = build.program("copied first", [0] * ranks, in_place=False)
    return replace(program, group=ints([0] * ranks))
