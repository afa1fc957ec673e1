"""An order in which the steps of a program can run with bounded FIFOs, and the least FIFO depth.

Steps of a correct program that are not ordered do not touch the same memory, so any such order
gives the same result; the judge, the interpreter and the executors all follow this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Indices, Mask
from synth.kernels import compiled
from synth.program import RECEIVES, SENDS, Program

__all__ = ["FIFO_DEPTH", "Links", "Walk", "connections", "least_depth", "links_of", "walk"]

FIFO_DEPTH = 2


@dataclass(frozen=True)
class Walk:
    """``order``: steps (rows of the program) as they ran; ``blocked``: why the others could not."""

    order: list[int]
    blocked: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Links:
    """How the threadblocks of a program hang together.

    ``send`` and ``recv`` give each threadblock its FIFOs (-1: none), ``goal`` each step the step it
    waits for, ``sender`` each receiving step the step whose message it takes (-1: none ever comes).
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
        # The k-th message of a FIFO is the k-th received: number both within their FIFO.
        out, into = out[np.argsort(fifo_out, kind="stable")], into[np.argsort(fifo_in, kind="stable")]
        fifo_out, fifo_in = np.sort(fifo_out), np.sort(fifo_in)
        number = np.arange(len(into)) - np.searchsorted(fifo_in, fifo_in)
        at = np.searchsorted(fifo_out, fifo_in) + number
        there = at < np.searchsorted(fifo_out, fifo_in, side="right")
        sender = np.full(program.steps, -1, dtype=np.int64)
        sender[into[there]] = out[at[there]]
        return sender


def links_of(program: Program) -> Links:
    """Number the FIFOs (one for each sender, receiver and channel) and resolve the waits; O(steps)."""
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
    return Links(
        program,
        len(names),
        fifo[: len(rank)],
        fifo[len(rank) :],
        goal,
        np.array(SENDS)[program.op],
        np.array(RECEIVES)[program.op],
    )


def connections(program: Program) -> tuple[list[int], list[int]]:
    """For each threadblock the FIFO it sends to and the one it receives from; -1 where it has no peer."""
    links = links_of(program)
    return links.send.tolist(), links.recv.tolist()


def walk(program: Program, depth: int = FIFO_DEPTH) -> Walk:
    """Run every threadblock a step at a time, in turn, with ``depth`` messages in each FIFO; O(steps)."""
    links = links_of(program)
    order, reached, filled = run(links, depth)
    blocked = () if len(order) == program.steps else tuple(_blocked(links, depth, reached, filled))
    return Walk(order.tolist(), blocked or tuple(_left_over(links, filled)))


def run(links: Links, depth: int) -> tuple[Indices, Indices, Indices]:
    """(steps as they ran, the step each threadblock stands at, messages left in each FIFO)."""
    program = links.program
    columns = (program.tb_start.astype(np.int64), program.tb_of.astype(np.int64), links.goal)
    order, done, reached, filled = _run(
        *columns, links.sends, links.receives, links.send, links.recv, links.fifos, depth
    )
    return order[:done], reached, filled


def least_depth(links: Links) -> int:
    """The smallest depth of the FIFOs with which every step runs; 0 where none is enough."""
    steps = links.program.steps
    most = int(np.bincount(links.send[links.program.tb_of[links.sends]], minlength=1).max(initial=1))
    if len(run(links, 1)[0]) == steps:
        return 1
    low, high = 1, 2
    while len(run(links, high)[0]) < steps:
        if high >= most:
            return 0
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = len(run(links, middle)[0]) == steps
        low, high = (low, middle) if fits else (middle, high)
    return high


def _blocked(links: Links, depth: int, reached: Indices, filled: Indices) -> list[str]:
    """Who waits for whom, once nothing can run."""
    program, found = links.program, []
    for tb in np.flatnonzero(reached < program.tb_start[1:]).tolist():
        step = int(reached[tb])
        goal, channel = int(links.goal[step]), f"on channel {program.tb_channel[tb]}"
        if goal >= 0 and reached[program.tb_of[goal]] <= goal:
            reason = f"waits for {program.place(goal)} and never runs"
        elif links.receives[step] and not filled[links.recv[tb]]:
            reason = f"waits for a message from rank {program.tb_recv[tb]} {channel} that never comes"
        else:
            reason = (
                f"waits for rank {program.tb_send[tb]} to receive {channel}: all {depth} places of "
                "the connection stay full"
            )
        found.append(f"{program.place(step)} {reason}")
    return found


def _left_over(links: Links, filled: Indices) -> list[str]:
    program = links.program
    return [
        f"{program.tb_name(tb)} sends {filled[links.send[tb]]} messages to rank {program.tb_send[tb]} "
        "that nobody receives"
        for tb in np.flatnonzero(np.where(links.send >= 0, filled[links.send], 0)).tolist()
    ]


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
    # The sleepers of a threadblock are a chain: each threadblock sleeps for at most one other.
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
