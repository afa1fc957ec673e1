"""The waits of a program's steps, and whether all can run, without code shared with the compiler.

A step waits for the step before it in its threadblock, for the step that it names, for the message that it
takes, and, to send, for room in its connection. A step never runs if its message is never sent, if it is on a
cycle of waits, or if it waits for such a step. The order in which ready steps run does not matter, because no
threadblock chooses what it waits for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probes.base import Indices, Mask, offsets
from synth.kernels import compiled
from synth.program import RECEIVES, SENDS, Program

__all__ = ["Waits", "blocked", "least_depth", "order_of"]


@dataclass(frozen=True, eq=False)
class Waits:
    """A well-formed program and the waits of its steps; a connection has one threadblock at either end."""

    program: Program

    @cached_property
    def sends(self) -> Mask:
        return np.array(SENDS)[self.program.op]

    @cached_property
    def receives(self) -> Mask:
        return np.array(RECEIVES)[self.program.op]

    @cached_property
    def writer(self) -> Indices:
        """The threadblock whose messages each threadblock receives; -1: none."""
        program = self.program
        ends: dict[tuple[int, int, int], int] = {}
        rank, channel = program.tb_rank.tolist(), program.tb_channel.tolist()
        for tb, to in enumerate(program.tb_send.tolist()):
            if to >= 0:
                ends[rank[tb], to, channel[tb]] = tb
        return np.array(
            [ends.get((src, rank[tb], channel[tb]), -1) for tb, src in enumerate(program.tb_recv.tolist())],
            dtype=np.int64,
        )

    @cached_property
    def reader(self) -> Indices:
        """The threadblock that receives the messages of each threadblock; -1: none."""
        found = np.full(len(self.writer), -1, dtype=np.int64)
        joined = np.flatnonzero(self.writer >= 0)
        found[self.writer[joined]] = joined
        return found

    @cached_property
    def previous(self) -> Indices:
        """The step before each step in its threadblock; -1: none."""
        row = np.arange(self.program.steps)
        return np.where(row > self.program.tb_start[self.program.tb_of], row - 1, -1)

    @cached_property
    def goal(self) -> Indices:
        """The step that each step explicitly waits for; -1: none."""
        program = self.program
        named = program.tb_start[program.wait_tb] + program.wait_step
        return np.where(program.wait_tb >= 0, named, -1).astype(np.int64)

    @cached_property
    def sender(self) -> Indices:
        """The step whose message each receiving step takes; -1: none is ever sent."""
        return self._partner(self.receives, self.sends, self.writer, 0)

    def room(self, depth: int) -> Indices:
        """Return for each sending step the step that must first free one of ``depth`` places; -1: none."""
        return self._partner(self.sends, self.receives, self.reader, depth)

    def first(self, depth: int) -> Mask:
        """Return a mask of the first ``depth`` sending steps of each connection."""
        found = self.sends.copy()
        found[self.sends] = self._number(self.sends) < depth
        return found

    def _number(self, steps: Mask) -> Indices:
        """Return for each step of the mask how many of its steps precede it in its threadblock."""
        tb = self.program.tb_of[steps]
        return np.arange(len(tb)) - offsets(np.bincount(tb, minlength=1))[tb]

    def _partner(self, mine: Mask, theirs: Mask, peer_tb: Indices, behind: int) -> Indices:
        """Match a threadblock's k-th step of ``mine`` with its peer's (k − ``behind``)-th of ``theirs``."""
        program = self.program
        start = offsets(np.bincount(program.tb_of[theirs], minlength=len(peer_tb)))
        partner, number = peer_tb[program.tb_of[mine]], self._number(mine) - behind
        exists = (partner >= 0) & (number >= 0) & (number < np.diff(start)[partner])
        found = np.full(program.steps, -1, dtype=np.int64)
        found[np.flatnonzero(mine)[exists]] = np.flatnonzero(theirs)[start[partner[exists]] + number[exists]]
        return found


def order_of(waits: Waits, depth: int) -> Indices:
    """Return the steps that run with ``depth`` messages in each connection, in a possible order; O(steps)."""
    room = waits.room(depth)
    never = waits.receives & (waits.sender < 0)
    never |= waits.sends & (room < 0) & ~waits.first(depth)
    return _order(np.stack([waits.previous, waits.goal, waits.sender, room]), never)


def least_depth(waits: Waits) -> int:
    """Return the fewest messages per connection with which every step runs; 0: no number is enough."""
    steps = waits.program.steps
    most = int(np.bincount(waits.program.tb_of[waits.sends], minlength=1).max(initial=1))
    if len(order_of(waits, 1)) == steps:
        return 1
    depths = range(2, most + 1)
    at = bisect_left(depths, steps, key=lambda depth: len(order_of(waits, depth)))
    return depths[at] if at < len(depths) else 0


def blocked(waits: Waits, order: Indices, depth: int) -> list[str]:
    """Return the steps that never run, with the cause; if all run, the messages that no step receives."""
    found = list(_stuck(waits, order, depth))
    return found or list(_left_over(waits))


def _stuck(waits: Waits, order: Indices, depth: int) -> Iterator[str]:
    program = waits.program
    ran = np.zeros(program.steps, dtype=bool)
    ran[order] = True
    reached = program.tb_start[:-1] + np.bincount(program.tb_of[order], minlength=len(program.tb_rank))
    for tb in np.flatnonzero(reached < program.tb_start[1:]).tolist():
        step = int(reached[tb])
        goal, sender = int(waits.goal[step]), int(waits.sender[step])
        channel = f"on channel {program.tb_channel[tb]}"
        if goal >= 0 and not ran[goal]:
            reason = f"waits for {program.place(goal)} and never runs"
        elif waits.receives[step] and not (sender >= 0 and ran[sender]):
            reason = f"waits for a message from rank {program.tb_recv[tb]} {channel} that never comes"
        else:
            reason = (
                f"waits for rank {program.tb_send[tb]} to receive {channel}: all {depth} places of "
                "the connection stay full"
            )
        yield f"{program.place(step)} {reason}"


def _left_over(waits: Waits) -> Iterator[str]:
    program = waits.program
    blocks = len(program.tb_rank)
    received = np.append(np.bincount(program.tb_of[waits.receives], minlength=blocks), 0)
    left = np.bincount(program.tb_of[waits.sends], minlength=blocks) - received[waits.reader]
    for tb in np.flatnonzero(left > 0).tolist():
        yield (
            f"{program.tb_name(tb)} sends {left[tb]} messages to rank {program.tb_send[tb]} "
            "that nobody receives"
        )


@compiled
def _order(waits_for: Indices, never: Mask) -> Indices:
    """Return the steps that run, each after those it waits for (Kahn's algorithm); -1 means no wait."""
    kinds, steps = waits_for.shape
    open_ = np.zeros(steps, np.int64)
    # The steps that wait for a step form a chain of places in ``waits_for``.
    head, following = np.full(steps, -1, np.int64), np.full(kinds * steps, -1, np.int64)
    for kind in range(kinds):
        for step in range(steps):
            other = waits_for[kind, step]
            if other >= 0:
                open_[step] += 1
                following[kind * steps + step] = head[other]
                head[other] = kind * steps + step
    order = np.empty(steps, np.int64)
    done = 0
    for step in range(steps):
        if never[step]:
            open_[step] += 1
        elif open_[step] == 0:
            order[done] = step
            done += 1
    at = 0
    while at < done:
        place = head[order[at]]
        at += 1
        while place >= 0:
            step = place % steps
            open_[step] -= 1
            if open_[step] == 0:
                order[done] = step
                done += 1
            place = following[place]
    return order[:done]
