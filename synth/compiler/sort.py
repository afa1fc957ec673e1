"""One topological order of all instructions; threadblocks run them in this order, which avoids deadlock.

Rows are sorted by their depth in the graph, then by the longest path that begins at them (GC3 Sec. 5.2). If
the program comes from a schedule, the time of its sends replaces the depth. A send comes after the rows that
its receive depends on, so that the message does not wait in its FIFO for these rows.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, offsets
from synth.compiler.instruction_dag import InstructionDag
from synth.kernels import compiled, pop, push

__all__ = ["sorted_rows"]


def sorted_rows(dag: InstructionDag, *, adjacent: bool) -> Indices:
    """Return each row's place in the order; O((rows + dependences) · log rows).

    Receives of equal priority keep the order of their sends. With ``adjacent`` every receive follows its send
    at once. This order is slow, but without fused instructions it cannot deadlock, however short the FIFOs.
    """
    start, after = _edges(dag)
    into = np.bincount(after, minlength=dag.rows)
    done, depth, height = _depths(start, after, into)
    if done < dag.rows:
        raise AssertionError("the instructions depend on each other in a circle")
    first = np.unique(dag.when if len(dag.when) else depth, return_inverse=True)[1]
    second = np.empty(dag.rows, dtype=np.int64)
    second[np.argsort(-height, kind="stable")] = np.arange(dag.rows)
    major = np.asarray(first, dtype=np.float64) * (2 * dag.rows)
    if adjacent:
        major[dag.sender >= 0] = -2.0 * dag.rows
    place: Indices = _topological(start, after, into, major, second, dag.sender)
    return place


def _edges(dag: InstructionDag) -> tuple[Indices, Indices]:
    """Return the rows that must follow each row: its dependents, their senders, and its receiver."""
    after, before = dag.needs.after, dag.needs.before
    receivers = np.flatnonzero(dag.sender >= 0)
    # The sender of a row also comes after the rows that the row depends on, except the sender itself.
    sender = dag.sender[after]
    early = (sender >= 0) & (before != sender)
    source = np.concatenate([before, dag.sender[receivers], before[early]])
    target = np.concatenate([after, receivers, sender[early]])
    order = np.argsort(source, kind="stable")
    start = offsets(np.bincount(source, minlength=dag.rows))
    return start, target[order]


@compiled
def _depths(start: Indices, after: Indices, into: Indices) -> tuple[int, Indices, Indices]:
    rows = len(start) - 1
    left = into.copy()
    queue = np.empty(rows, dtype=np.int64)
    depth = np.zeros(rows, dtype=np.int64)
    height = np.zeros(rows, dtype=np.int64)
    head, tail = 0, 0
    for row in range(rows):
        if left[row] == 0:
            queue[tail] = row
            tail += 1
    while head < tail:
        row = queue[head]
        head += 1
        for at in range(start[row], start[row + 1]):
            other = after[at]
            depth[other] = max(depth[other], depth[row] + 1)
            left[other] -= 1
            if left[other] == 0:
                queue[tail] = other
                tail += 1
    for back in range(tail - 1, -1, -1):
        row = queue[back]
        for at in range(start[row], start[row + 1]):
            height[row] = max(height[row], height[after[at]] + 1)
    return tail, depth, height


@compiled
def _topological(
    start: Indices, after: Indices, into: Indices, major: Floats, minor: Indices, sender: Indices
) -> Indices:
    rows = len(start) - 1
    left = into.copy()
    key = np.empty(rows + 1, dtype=np.float64)
    heap_entry = np.empty(rows + 1, dtype=np.int64)
    place = np.full(rows, -1, dtype=np.int64)
    size, done = 0, 0
    for row in range(rows):
        if left[row] == 0:
            size = push(key, heap_entry, size, major[row] + minor[row], row)
    while size > 0:
        row = heap_entry[0]
        size = pop(key, heap_entry, size)
        place[row] = done
        done += 1
        for at in range(start[row], start[row + 1]):
            other = after[at]
            left[other] -= 1
            if left[other] == 0:
                second = minor[other] if sender[other] < 0 else rows + place[sender[other]]
                size = push(key, heap_entry, size, major[other] + second, other)
    return place
