"""Steps that reach the memory of other ranks: sums and copies of switches (``glre`` and ``gstore``).

Such a step needs each member of its group to be there: a member must have started before it, and may end
only after it. Before that its input may not be there yet, and afterwards its memory may serve other things.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Indices, offsets
from synth.check.slots import Slots
from synth.check.waits import Waits
from synth.kernels import compiled
from synth.program import GLRE, Program

__all__ = ["MemberSlots", "absent_members", "member_slots"]


class MemberSlots(NamedTuple):
    """The first slots of steps at the members of their groups: step n has ``slot[start[n]:start[n + 1]]``."""

    start: Indices
    slot: Indices


def member_slots(program: Program, slots: Slots) -> MemberSlots:
    """Return the slots that each glre reads and each gstore writes; other steps have none."""
    length, found = np.zeros(program.steps, dtype=np.int64), [np.zeros(0, dtype=np.int64)]
    for step in program.in_group.tolist():
        members = program.members(int(program.tb_rank[program.tb_of[step]]))
        reads = program.op[step] == GLRE
        buffer = (program.src_buffer if reads else program.dst_buffer)[step]
        found.append(slots.first[members, buffer] + (program.src_slot if reads else program.dst_slot)[step])
        length[step] = len(members)
    return MemberSlots(offsets(length), np.concatenate(found))


def absent_members(waits: Waits, order: Indices) -> list[str]:
    """Return the steps of a group that run before a member has surely started, or after it may have ended.

    ``order`` must be an order in which the steps can run. O(steps · ranks / 64).
    """
    program = waits.program
    if not program.uses_switches:
        return []
    rank = program.tb_rank[program.tb_of].astype(np.int64)
    before, after = _ranks_around(order, waits.previous, waits.goal, waits.sender, rank, program.ranks)
    found = []
    for step in program.in_group.tolist():
        verb = "reads" if program.op[step] == GLRE else "writes"
        for member in program.members(int(rank[step])).tolist():
            bit = np.uint64(1) << np.uint64(member % 64)
            for ranks, state in ((before, "started"), (after, "ended")):
                if not ranks[step, member // 64] & bit:
                    may = "not have" if state == "started" else "have"
                    found.append(
                        f"{program.place(step)} {verb} the memory of rank {member}, which may {may} {state}"
                    )
    return found


@compiled
def _ranks_around(
    order: Indices, previous: Indices, goal: Indices, sender: Indices, rank: Indices, ranks: int
) -> tuple[Indices, Indices]:
    """Return for each step, as bits, the ranks with a step that surely comes before it, and after it."""
    words = (ranks + 63) // 64
    before = np.zeros((len(rank), words), dtype=np.uint64)
    after = np.zeros((len(rank), words), dtype=np.uint64)
    for step in range(len(rank)):
        bit = np.uint64(1) << np.uint64(rank[step] % 64)
        before[step, rank[step] // 64] = bit
        after[step, rank[step] // 64] = bit
    for step in order:
        for turn in range(3):
            other = previous[step] if turn == 0 else goal[step] if turn == 1 else sender[step]
            if other >= 0:
                for word in range(words):
                    before[step, word] |= before[other, word]
    for at in range(len(order) - 1, -1, -1):
        step = order[at]
        for turn in range(3):
            other = previous[step] if turn == 0 else goal[step] if turn == 1 else sender[step]
            if other >= 0:
                for word in range(words):
                    after[other, word] |= after[step, word]
    return before, after
