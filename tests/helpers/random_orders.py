"""Random orders in which the steps of a program can run, for executors that follow one order."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np

from synth.check.waits import Waits
from synth.program import FIFO_DEPTH, Program

__all__ = ["in_random_order", "random_order"]


def random_order(program: Program, draw: random.Random) -> np.ndarray:
    """Each step after those it waits for, with room for its message; any of the ready ones comes next."""
    waits = Waits(program)
    awaited = [waits.previous, waits.goal, waits.sender, waits.room(FIFO_DEPTH)]
    followers: list[list[int]] = [[] for _ in range(program.steps)]
    left = [0] * program.steps
    for column in awaited:
        for step, other in enumerate(column.tolist()):
            if other >= 0:
                followers[other].append(step)
                left[step] += 1
    ready = [step for step in range(program.steps) if not left[step]]
    order = []
    while ready:
        at = draw.randrange(len(ready))
        ready[at], ready[-1] = ready[-1], ready[at]
        order.append(ready.pop())
        for step in followers[order[-1]]:
            left[step] -= 1
            if not left[step]:
                ready.append(step)
    return np.array(order)


def in_random_order(program: Program, draw: random.Random) -> mock._patch:
    """Let `exec.program` run the steps of ``program`` in a random order."""
    order = random_order(program, draw)
    return mock.patch("exec.program.move.run", lambda links, depth: (order, None, np.zeros(1)))
