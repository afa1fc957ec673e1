"""The event loop of the program simulator: start and end of each step, and the cause of its last wait."""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Mask
from synth.kernels import compiled, pop, push

__all__ = ["CAUSES", "run_threadblocks"]

CAUSES = ("start", "order", "wait", "message", "FIFO", "link")


# One compiled loop: functions could not share the variables that it changes.
@compiled
def run_threadblocks(
    start: Indices,
    tb_of: Indices,
    goal: Indices,
    sends: Mask,
    receives: Mask,
    sender: Indices,
    send: Indices,
    recv: Indices,
    fifos: int,
    depth: int,
    holds: Mask,
    link: Indices,
    port_start: Indices,
    port: Indices,
    port_part: Floats,
    links: int,
    ports: int,
    busy_s: Floats,
    wire_s: Floats,
    alpha_s: Floats,
    late_s: Floats,
    slice_part: float,
) -> tuple[Floats, Floats, Indices, Indices]:
    """Return (start, end, cause, culprit) of each step; both times are infinite if it never runs.

    ``cause`` indexes CAUSES: what the step waited for last; ``culprit`` is the step that caused the wait.
    Steps that send, or that switches carry out, hold a link. If several steps could take a link or port at
    the same moment, the one with the least ``late_s`` does. A
    message holds each port for ``port_part`` of the time that it holds the link. Messages move in slices,
    each ``slice_part`` of a message (1: whole): a receiving step starts when the first slice has arrived, and
    ends when it has processed the last slice.
    """
    steps, blocks = len(tb_of), len(send)
    begin_s = np.full(steps, np.inf)
    end_s = np.full(steps, np.inf)
    # When the last slice of each step has left.
    left_s = np.full(steps, np.inf)
    cause = np.zeros(steps, dtype=np.int64)
    culprit = np.full(steps, -1, dtype=np.int64)
    reached = start[:-1].copy()
    # Links first, then ports: until when each is held, and by which step.
    free_s = np.zeros(links + ports)
    holder = np.full(links + ports, -1, dtype=np.int64)
    # For each FIFO the messages sent and taken, and when its slots became free, as a ring buffer.
    sent = np.zeros(fifos + 1, dtype=np.int64)
    taken = np.zeros(fifos + 1, dtype=np.int64)
    slot_free_s = np.zeros((fifos + 1, depth))
    slot_user = np.full((fifos + 1, depth), -1, dtype=np.int64)
    sleeper_of_fifo = np.full(fifos + 1, -1, dtype=np.int64)
    sender_asleep = np.full(fifos + 1, -1, dtype=np.int64)
    sleeper = np.full(blocks, -1, dtype=np.int64)
    after = np.full(blocks, -1, dtype=np.int64)
    key = np.empty(4 * blocks + 4)
    what = np.empty(4 * blocks + 4, dtype=np.int64)
    size = 0
    for tb in range(blocks):
        size = push(key, what, size, 0.0, tb)
    while size > 0:
        now_s = key[0]
        tb = what[0]
        size = pop(key, what, size)
        step = reached[tb]
        if step == start[tb + 1]:
            continue
        # The moment from which the step may run, and its cause.
        ready_s, why, whom = 0.0, 0, -1
        if step > start[tb]:
            ready_s, why, whom = end_s[step - 1], 1, step - 1
        if goal[step] >= 0:
            other = tb_of[goal[step]]
            if reached[other] <= goal[step]:
                after[tb], sleeper[other] = sleeper[other], tb
                continue
            if end_s[goal[step]] > ready_s:
                ready_s, why, whom = end_s[goal[step]], 2, goal[step]
        if receives[step]:
            fifo = recv[tb]
            if sent[fifo] == taken[fifo]:
                sleeper_of_fifo[fifo] = tb
                continue
            source = sender[step]
            arrival_s = begin_s[source] + wire_s[source] * slice_part + alpha_s[source]
            if arrival_s > ready_s:
                ready_s, why, whom = arrival_s, 3, source
        if sends[step]:
            fifo = send[tb]
            if sent[fifo] - taken[fifo] >= depth:
                sender_asleep[fifo] = tb
                continue
            slot = sent[fifo] % depth
            if slot_free_s[fifo, slot] > ready_s:
                ready_s, why, whom = slot_free_s[fifo, slot], 4, slot_user[fifo, slot]
        if holds[step]:
            last = _free_last(free_s, link[step], links, port_start, port)
            if free_s[last] > ready_s:
                ready_s, why, whom = free_s[last], 5, holder[last]
        if ready_s + late_s[step] > now_s:
            size = push(key, what, size, ready_s + late_s[step], tb)
            continue
        begin_s[step], end_s[step] = ready_s, ready_s + busy_s[step]
        left_s[step] = ready_s + wire_s[step]
        if receives[step]:
            source = sender[step]
            last_s = left_s[source] + alpha_s[source]
            end_s[step] = max(end_s[step], last_s + busy_s[step] * slice_part)
            left_s[step] = max(left_s[step], last_s + wire_s[step] * slice_part)
        cause[step], culprit[step] = why, whom
        reached[tb] = step + 1
        if holds[step]:
            edge = link[step]
            free_s[edge], holder[edge] = ready_s + wire_s[step], step
            for at in range(port_start[edge], port_start[edge + 1]):
                p = links + port[at]
                free_s[p], holder[p] = ready_s + wire_s[step] * port_part[at], step
        if sends[step]:
            fifo = send[tb]
            sent[fifo] += 1
            if sleeper_of_fifo[fifo] >= 0:
                size = push(key, what, size, ready_s, sleeper_of_fifo[fifo])
                sleeper_of_fifo[fifo] = -1
        if receives[step]:
            fifo = recv[tb]
            slot = taken[fifo] % depth
            slot_free_s[fifo, slot], slot_user[fifo, slot] = end_s[step], step
            taken[fifo] += 1
            if sender_asleep[fifo] >= 0:
                size = push(key, what, size, end_s[step], sender_asleep[fifo])
                sender_asleep[fifo] = -1
        size = _wake_waiting(key, what, size, end_s[step], tb, step, sleeper, after, goal, reached)
        size = push(key, what, size, end_s[step], tb)
    return begin_s, end_s, cause, culprit


@compiled
def _free_last(free_s: Floats, edge: int, links: int, port_start: Indices, port: Indices) -> int:
    """Return which of a link and its ports is free last, numbered as in ``free_s``."""
    last = edge
    for at in range(port_start[edge], port_start[edge + 1]):
        if free_s[links + port[at]] > free_s[last]:
            last = links + port[at]
    return last


@compiled
def _wake_waiting(
    key: Floats,
    what: Indices,
    size: int,
    now_s: float,
    tb: int,
    step: int,
    sleeper: Indices,
    after: Indices,
    goal: Indices,
    reached: Indices,
) -> int:
    """Queue the threadblocks that wait for ``step`` of ``tb``, at ``now_s``; return the queue's new size.

    ``sleeper[tb]`` is the first threadblock that waits for a step of ``tb``, ``after`` links to the next one.
    """
    before, waiting = -1, sleeper[tb]
    while waiting >= 0:
        following = after[waiting]
        if goal[reached[waiting]] <= step:
            if before < 0:
                sleeper[tb] = following
            else:
                after[before] = following
            size = push(key, what, size, now_s, waiting)
        else:
            before = waiting
        waiting = following
    return size
