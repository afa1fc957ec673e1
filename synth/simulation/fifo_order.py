"""An order in which the steps of a program can run with bounded FIFOs.

Unordered steps of a correct program do not touch the same memory, so any such order gives the same result.
The compiler, the interpreter and the executors all follow the order of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Indices, Mask
from synth.kernels import compiled
from synth.program import RECEIVES, SENDS, Program

__all__ = ["ThreadblockLinks", "connections", "links_of", "run"]


@dataclass(frozen=True, eq=False)
class ThreadblockLinks:
    """The FIFOs and waits of a program.

    ``send`` and ``recv`` are the FIFOs of each threadblock (-1: none), ``goal`` is the step that each step
    waits for, ``sender`` the step whose message each receiving step takes (-1: none is ever sent).
    """

    program: Program
    fifos: int
    send: Indices
    recv: Indices
    goal: Indices
    sends: Mask
    receives: Mask

    @cached_property
    def sender(self) -> Indices:
        program = self.program
        out, into = (np.flatnonzero(uses) for uses in (self.sends, self.receives))
        fifo_out, fifo_in = self.send[program.tb_of[out]], self.recv[program.tb_of[into]]
        # The k-th message sent into a FIFO is the k-th received: number both within their FIFO.
        out, into = out[np.argsort(fifo_out, kind="stable")], into[np.argsort(fifo_in, kind="stable")]
        fifo_out, fifo_in = np.sort(fifo_out), np.sort(fifo_in)
        number = np.arange(len(into)) - np.searchsorted(fifo_in, fifo_in)
        at = np.searchsorted(fifo_out, fifo_in) + number
        there = at < np.searchsorted(fifo_out, fifo_in, side="right")
        sender = np.full(program.steps, -1, dtype=np.int64)
        sender[into[there]] = out[at[there]]
        return sender


def links_of(program: Program) -> ThreadblockLinks:
    """Return the FIFOs, one for each sender, receiver and channel, and the resolved waits; O(steps)."""
    rank, channel = program.tb_rank.astype(np.int64), program.tb_channel.astype(np.int64)
    to, source = program.tb_send.astype(np.int64), program.tb_recv.astype(np.int64)
    span, ranks = int(channel.max(initial=0)) + 1, program.ranks
    keys = np.concatenate([(rank * ranks + to) * span + channel, (source * ranks + rank) * span + channel])
    has_peer = np.concatenate([to, source]) >= 0
    names, number = np.unique(keys[has_peer], return_inverse=True)
    fifo = np.full(len(keys), -1, dtype=np.int64)
    fifo[has_peer] = number
    waits = program.wait_tb >= 0
    goal = np.where(waits, program.tb_start[program.wait_tb] + program.wait_step, -1).astype(np.int64)
    return ThreadblockLinks(
        program,
        len(names),
        fifo[: len(rank)],
        fifo[len(rank) :],
        goal,
        np.array(SENDS)[program.op],
        np.array(RECEIVES)[program.op],
    )


def connections(program: Program) -> tuple[list[int], list[int]]:
    """Return for each threadblock the FIFO it sends to and the one it receives from; -1 without a peer."""
    links = links_of(program)
    return links.send.tolist(), links.recv.tolist()


def run(links: ThreadblockLinks, depth: int) -> tuple[Indices, Indices, Indices]:
    """Return (steps in the order they ran, next step of each threadblock, messages left in each FIFO)."""
    program = links.program
    columns = (program.tb_start.astype(np.int64), program.tb_of.astype(np.int64), links.goal)
    order, done, reached, filled = _run(
        *columns, links.sends, links.receives, links.send, links.recv, links.fifos, depth
    )
    return order[:done], reached, filled


@compiled
def _run(
    start: Indices,
    tb_of: Indices,
    goal: Indices,
    sends: Mask,
    receives: Mask,
    send: Indices,
    recv: Indices,
    fifos: int,
    depth: int,
) -> tuple[Indices, int, Indices, Indices]:
    blocks = len(send)
    reached = start[:-1].copy()
    filled = np.zeros(fifos + 1, dtype=np.int64)
    full_for = np.full(fifos + 1, -1, dtype=np.int64)
    empty_for = np.full(fifos + 1, -1, dtype=np.int64)
    # The threadblocks that wait for one other form a linked list, because each waits for at most one.
    # ``sleeper`` holds the first of each list, ``after`` the next.
    sleeper = np.full(blocks, -1, dtype=np.int64)
    after = np.full(blocks, -1, dtype=np.int64)
    order = np.empty(len(tb_of), dtype=np.int64)
    queue = np.arange(blocks + 1)
    head, length, done = 0, blocks, 0
    while length > 0:
        tb = queue[head]
        head = (head + 1) % (blocks + 1)
        length -= 1
        step = reached[tb]
        if step == start[tb + 1]:
            continue
        if goal[step] >= 0:
            other = tb_of[goal[step]]
            if reached[other] <= goal[step]:
                after[tb], sleeper[other] = sleeper[other], tb
                continue
        if receives[step] and filled[recv[tb]] == 0:
            empty_for[recv[tb]] = tb
            continue
        if sends[step] and filled[send[tb]] >= depth:
            full_for[send[tb]] = tb
            continue
        order[done] = step
        done += 1
        reached[tb] = step + 1
        if receives[step]:
            filled[recv[tb]] -= 1
            if full_for[recv[tb]] >= 0:
                queue[(head + length) % (blocks + 1)] = full_for[recv[tb]]
                length += 1
                full_for[recv[tb]] = -1
        if sends[step]:
            filled[send[tb]] += 1
            if empty_for[send[tb]] >= 0:
                queue[(head + length) % (blocks + 1)] = empty_for[send[tb]]
                length += 1
                empty_for[send[tb]] = -1
        last, waiting = -1, sleeper[tb]
        while waiting >= 0:
            following = after[waiting]
            if goal[reached[waiting]] <= step:
                if last < 0:
                    sleeper[tb] = following
                else:
                    after[last] = following
                queue[(head + length) % (blocks + 1)] = waiting
                length += 1
            else:
                last = waiting
            waiting = following
        queue[(head + length) % (blocks + 1)] = tb
        length += 1
    return order, done, reached, filled
