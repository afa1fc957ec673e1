"""Races: two unordered accesses to one slot, at least one of them a write."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Indices, Mask, spans
from synth.check.slots import Slots
from synth.check.switches import member_slots
from synth.check.waits import Waits
from synth.kernels import compiled
from synth.program import GLRE, GSTORE, OPS, READS_SRC, WRITES_DST, Program

__all__ = ["overlaps", "races"]

_CPY = OPS.index("cpy")


def races(waits: Waits, slots: Slots, order: Indices) -> list[str]:
    """Return every pair of conflicting accesses whose order is fixed by neither waits nor messages.

    ``order`` must be an order in which the steps can run. Vector clocks order accesses within a rank, in
    O(waits · threadblocks of a rank). For a pair that the clocks leave unordered, a search looks for a path
    of messages through other ranks, in O(steps) for each later step of such pairs. Accesses of a switch to
    the memory of several ranks are all such pairs.
    """
    program = waits.program
    rank_of = program.tb_rank.astype(np.int64)
    step_rank = rank_of[program.tb_of]
    src = slots.first[step_rank, program.src_buffer] + program.src_slot
    dst = slots.first[step_rank, program.dst_buffer] + program.dst_slot
    writes = np.array(WRITES_DST)[program.op]
    reads = np.array(READS_SRC)[program.op] | (program.op == OPS.index("re"))
    same = slots.same.astype(np.int64)
    # Executors skip a copy from a slot to itself, which occurs in in-place programs.
    local = np.flatnonzero(program.op == _CPY)
    idle = np.zeros(program.steps, dtype=bool)
    idle[local] = same[src[local]] == same[dst[local]]
    by_rank = order[np.argsort(step_rank[order], kind="stable")]
    first_tb = np.searchsorted(rank_of, rank_of)
    count = program.count.astype(np.int64)
    accesses = _Accesses(reads & ~idle, writes & ~idle, src, dst, count, same)
    suspects = _suspects(
        by_rank,
        _Blocks(program.tb_of.astype(np.int64), first_tb, np.bincount(rank_of, minlength=1)[rank_of]),
        waits.goal,
        _waited_for(waits),
        accesses,
    )
    if program.uses_switches:
        suspects = np.concatenate([suspects, _across_ranks(program, slots, order, accesses)])
    if not len(suspects):
        return []
    return _messages(waits, slots, suspects[_open(waits, order, suspects)])


def overlaps(program: Program, slots: Slots) -> list[str]:
    """Return the steps whose read and written slots overlap partly; O(slots · log slots).

    Reading and writing exactly the same memory is allowed. The placement decides which slots share memory.
    """
    both = np.array(READS_SRC)[program.op] & np.array(WRITES_DST)[program.op]
    steps = np.flatnonzero(both & (program.count > 1))
    rank = program.tb_rank[program.tb_of[steps]]
    count = program.count[steps].astype(np.int64)
    row = np.repeat(np.arange(len(steps)), count)
    read, written = (
        slots.same[spans(slots.first[rank, buffer[steps]] + slot[steps], count)]
        for buffer, slot in ((program.src_buffer, program.src_slot), (program.dst_buffer, program.dst_slot))
    )
    shared = np.isin(row * len(slots.same) + read, row * len(slots.same) + written)
    partly = np.bincount(row[shared & (read != written)], minlength=len(steps)) > 0
    return [program.overlap(step) for step in steps[partly].tolist()]


def _messages(waits: Waits, slots: Slots, pairs: Indices) -> list[str]:
    program = waits.program
    place = program.place
    found: dict[str, None] = {}
    for earlier, later, cell in pairs.tolist():
        owner = slots.rank(cell)
        own = {int(program.tb_rank[program.tb_of[step]]) for step in (earlier, later)} == {owner}
        where = slots.name(cell) + ("" if own else f" of rank {owner}")
        found[f"{place(later)} and {place(earlier)} access {where} in no certain order"] = None
    return list(found)


def _across_ranks(program: Program, slots: Slots, order: Indices, accesses: _Accesses) -> Indices:
    """Return rows of (earlier step, later step, cell) of conflicts with a switch's access to several ranks.

    Accesses of one threadblock are in order. O(slots touched · log).
    """
    members = member_slots(program, slots)
    by_switch = np.repeat(np.arange(program.steps), np.diff(members.start))
    reads = np.flatnonzero(accesses.reads & (program.op != GLRE))
    writes = np.flatnonzero(accesses.writes & (program.op != GSTORE))
    step = np.concatenate([by_switch, reads, writes])
    first = np.concatenate([members.slot, accesses.src[reads], accesses.dst[writes]])
    written = np.concatenate(
        [program.op[by_switch] == GSTORE, np.zeros(len(reads), np.bool_), np.ones(len(writes), np.bool_)]
    )
    count = accesses.length[step]
    cell = accesses.same[spans(first, count)]
    step, written = np.repeat(step, count), np.repeat(written, count)
    reached = np.zeros(len(accesses.same), dtype=bool)
    reached[cell[: accesses.length[by_switch].sum()]] = True
    kept = np.flatnonzero(reached[cell])
    position = np.empty(program.steps, dtype=np.int64)
    position[order] = np.arange(len(order))
    rows = kept[np.lexsort((written[kept], position[step[kept]], cell[kept]))]
    switch = (program.op == GLRE) | (program.op == GSTORE)
    return _conflicts(step[rows], cell[rows], written[rows], switch, program.tb_of.astype(np.int64))


@compiled
def _conflicts(step: Indices, cell: Indices, written: Mask, switch: Mask, tb_of: Indices) -> Indices:
    """Return (earlier, later, cell) of conflicting accesses, one of them a switch's; they come sorted."""
    found = np.empty((3 * len(step) + 1, 3), dtype=np.int64)
    size, last, since = 0, -1, 0
    for at in range(len(step)):
        if at == 0 or cell[at] != cell[at - 1]:
            last, since = -1, at
        for turn in range(since if written[at] else at, at + 1):
            # The accesses since the last write are reads; the last turn is the last write itself.
            before = turn if turn < at else last
            if before < 0 or tb_of[step[before]] == tb_of[step[at]]:
                continue
            if switch[step[before]] or switch[step[at]]:
                found[size, 0], found[size, 1], found[size, 2] = step[before], step[at], cell[at]
                size += 1
        if written[at]:
            last, since = at, at + 1
    return found[:size]


def _waited_for(waits: Waits) -> Indices:
    """Return for each step its number among the steps that others wait for, or -1."""
    goals = np.unique(waits.goal[waits.goal >= 0])
    number = np.full(waits.program.steps, -1, dtype=np.int64)
    number[goals] = np.arange(len(goals))
    return number


def _open(waits: Waits, order: Indices, suspects: Indices) -> Mask:
    """Return which suspects are races: no path of steps, waits and messages joins their two steps."""
    position = np.full(waits.program.steps, -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    by_later = np.argsort(suspects[:, 1], kind="stable")
    found = np.empty(len(suspects), dtype=bool)
    found[by_later] = _unordered(suspects[by_later], position, waits.previous, waits.goal, waits.sender)
    return found


class _Blocks(NamedTuple):
    """The threadblock of each step.

    The last two have, for each threadblock, its rank's first threadblock and number of threadblocks.
    """

    tb_of: Indices
    first_tb: Indices
    tbs_of_rank: Indices


class _Accesses(NamedTuple):
    """The accesses of steps: whether each reads and writes, its first cells, and the number of cells.

    ``same`` maps each cell to the memory that it lies in.
    """

    reads: Mask
    writes: Mask
    src: Indices
    dst: Indices
    length: Indices
    same: Indices


@compiled
def _suspects(
    order: Indices, blocks: _Blocks, goal: Indices, waited_for: Indices, accesses: _Accesses
) -> Indices:
    """Return rows of (earlier step, later step, cell) of accesses that no wait in the rank puts in order."""
    tb_of, first_tb, tbs_of_rank = blocks
    reads, writes, src, dst, count, same = accesses
    found = np.empty((64, 3), dtype=np.int64)
    size = 0
    last_write = np.full(len(same) + 1, -1, dtype=np.int64)
    # The reads of a cell since its last write form a linked list; ``chain`` holds the head of each cell's
    # list.
    chain = np.full(len(same) + 1, -1, dtype=np.int64)
    total = 0
    for step in order:
        total += count[step]
    link_step = np.empty(2 * total + 1, dtype=np.int64)
    link_next = np.empty(2 * total + 1, dtype=np.int64)
    links = 0
    low = 0
    while low < len(order):
        base = first_tb[tb_of[order[low]]]
        width = tbs_of_rank[tb_of[order[low]]]
        high, goals = low, 0
        while high < len(order) and first_tb[tb_of[order[high]]] == base:
            if waited_for[order[high]] >= 0:
                goals += 1
            high += 1
        known = np.full((width, width), -1, dtype=np.int64)
        seen = np.empty((goals, width), dtype=np.int64)
        lowest = len(waited_for)
        for at in range(low, high):
            if 0 <= waited_for[order[at]] < lowest:
                lowest = waited_for[order[at]]
        for at in range(low, high):
            step = order[at]
            mine = tb_of[step] - base
            if goal[step] >= 0 and known[mine, tb_of[goal[step]] - base] < goal[step]:
                row = waited_for[goal[step]] - lowest
                for other in range(width):
                    if seen[row, other] > known[mine, other]:
                        known[mine, other] = seen[row, other]
            if waited_for[step] >= 0:
                row = waited_for[step] - lowest
                for other in range(width):
                    seen[row, other] = known[mine, other]
                seen[row, mine] = step
            for turn in range(2):
                if (turn == 0 and not reads[step]) or (turn == 1 and not writes[step]):
                    continue
                for k in range(count[step]):
                    cell = same[(src[step] if turn == 0 else dst[step]) + k]
                    before = last_write[cell]
                    link = -1
                    if turn == 1:
                        link = chain[cell]
                    while before >= 0 or link >= 0:
                        if before < 0:
                            before, link = link_step[link], link_next[link]
                        other = tb_of[before] - base
                        if other != mine and known[mine, other] < before:
                            if size == len(found):
                                found = np.concatenate((found, np.empty((size, 3), dtype=np.int64)))
                            found[size, 0], found[size, 1], found[size, 2] = before, step, cell
                            size += 1
                        before = -1
                    if turn == 0:
                        link_step[links], link_next[links] = step, chain[cell]
                        chain[cell] = links
                        links += 1
                    else:
                        last_write[cell] = step
                        chain[cell] = -1
        low = high
    return found[:size]


@compiled
def _unordered(suspects: Indices, position: Indices, before: Indices, goal: Indices, sender: Indices) -> Mask:
    left = np.ones(len(suspects), dtype=np.bool_)
    seen = np.full(len(position), -1, dtype=np.int64)
    stack = np.empty(3 * len(position) + 3, dtype=np.int64)
    low = 0
    while low < len(suspects):
        later = suspects[low, 1]
        high = low
        horizon = len(position)
        while high < len(suspects) and suspects[high, 1] == later:
            horizon = min(horizon, position[suspects[high, 0]])
            high += 1
        stack[0], depth = later, 1
        seen[later] = later
        while depth > 0:
            depth -= 1
            step = stack[depth]
            for turn in range(3):
                other = before[step] if turn == 0 else goal[step] if turn == 1 else sender[step]
                if other >= 0 and seen[other] != later and position[other] >= horizon:
                    seen[other] = later
                    stack[depth] = other
                    depth += 1
        for row in range(low, high):
            left[row] = seen[suspects[row, 0]] != later
        low = high
    return left
