"""Accepted programs on numbers: the reference interpreter against sums that NumPy makes itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracles.collectives import wanted

from exec.program.interpreter import interpret

__all__ = ["wrong_elements"]


def wrong_elements(program: Any) -> str:
    """Return where outputs of ``program`` differ from its collective's, at several sizes; "" if nowhere."""
    asked = wanted(program.collective)
    share = program.collective.share
    for count in (share, 3 * share + 1, max(1, share - 1)):
        inputs, outputs = _expected(asked, program.ranks, share, count)
        placements = [
            at for at, claimed in ((False, program.out_of_place), (True, program.in_place)) if claimed
        ]
        if not any(map(len, inputs)):
            continue
        for in_place in placements:
            found = interpret(program, inputs, in_place=in_place)
            for rank, (one, other) in enumerate(zip(found, outputs, strict=True)):
                if not np.array_equal(one, other):
                    where = "in place" if in_place else "out of place"
                    wrong = int((one != other).sum()) if one.shape == other.shape else one.size
                    return f"rank {rank} with {count} elements {where}: {wrong} wrong"
    return ""


def _expected(asked: Any, ranks: int, share: int, count: int) -> tuple[list[Any], list[Any]]:
    """(input, output) of every rank: a block of ``count`` elements is cut into ``share`` chunks."""
    rng = np.random.default_rng(count)
    cuts = [part * count // share for part in range(share + 1)]
    inputs: list[list[Any]] = [[] for _ in range(ranks)]
    outputs: list[list[Any]] = [[] for _ in range(ranks)]
    for chunk in range(asked.chunks):
        length = cuts[chunk % share + 1] - cuts[chunk % share]
        shared = rng.integers(-1000, 1000, length)
        total = np.zeros(length, np.int64)
        for rank in asked.sources[chunk]:
            own = rng.integers(-1000, 1000, length) if asked.reduced[chunk] else shared
            inputs[rank].append(own)
            total += own
        for rank in asked.targets[chunk]:
            outputs[rank].append(total if asked.reduced[chunk] else shared)
    return tuple(
        [np.concatenate([np.zeros(0, np.int64), *one]) for one in each] for each in (inputs, outputs)
    )  # type: ignore[return-value]
