"""Schedules whose sends carry addends: what each of them carries, and what ranks end with.

What a send carries is a set of contributions that follows from the table alone: times only say whether
everything had come when it started. Part of the judge: shares no code with any synthesizer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.columns import Bytes, Floats, Indices, Ints, Mask
from synth.check.contribution_sets import CHANGED, MISSING, NOT_HELD, TWICE, Words
from synth.kernels.compiled import compiled
from synth.schedule import REDUCE, Schedule
from synth.simulation.schedule import Timing

__all__ = ["carried_addends"]


class _Sends(NamedTuple):
    """The columns of the sends: the slots (rank · chunks + chunk) at both ends, addends, times."""

    leaves: Indices
    enters: Indices
    op: Bytes
    addend_start: Ints
    addend: Ints
    start_s: Floats
    arrival_s: Floats
    hold_s: Floats


def carried_addends(schedule: Schedule, timing: Timing, most: int) -> Indices:
    """Rows of (code, send or -1, rank, chunk), at most ``most`` of each code.

    Held must be, when a send starts, all that it carries; no contribution is added twice, neither by
    what carries it nor where it comes in; nothing is overwritten while it is being sent; and in the end
    the slot of each target has them all. O(sends and addends · ranks / 64).
    """
    collective, network = schedule.collective, schedule.network
    chunk = schedule.chunk.astype(np.int64)
    src, dst = network.src[schedule.link], network.dst[schedule.link]
    sends = _Sends(
        src * np.int64(collective.chunks) + chunk,
        dst * np.int64(collective.chunks) + chunk,
        schedule.op,
        schedule.addend_start,
        schedule.addend,
        timing.start_s,
        timing.arrival_s,
        network.hold_s(schedule.chunk_bytes)[schedule.link],
    )
    held = np.asarray(collective.held(), bool).ravel()
    reduced = np.asarray(collective.reduced, bool)
    words = (network.ranks + 63) // 64
    slots = np.zeros((len(held), words), np.uint64)
    wrong, slots = _follow(sends, held, reduced, slots, np.zeros((schedule.sends, words), np.uint64))
    found = []
    for code in (NOT_HELD, TWICE, CHANGED):
        for row in np.flatnonzero(wrong & (1 << code))[:most]:
            rank = dst[row] if code == CHANGED or wrong[row] & 1 else src[row]
            found.append((code, row, rank, schedule.chunk[row]))
    complete = np.zeros((collective.chunks, words), np.uint64)
    for rank, one in np.argwhere(collective.held()).tolist():
        complete[one, rank // 64 if reduced[one] else 0] |= np.uint64(1 << (rank % 64 if reduced[one] else 0))
    wants = np.argwhere(collective.wanted())
    lacks = (slots[wants[:, 0] * collective.chunks + wants[:, 1]] != complete[wants[:, 1]]).any(axis=1)
    found += [(MISSING, -1, rank, one) for rank, one in wants[lacks][:most].tolist()]
    return np.array(found, dtype=np.int64).reshape(-1, 4)


@compiled
def _follow(sends: _Sends, held: Mask, reduced: Mask, slots: Words, carried: Words) -> tuple[Indices, Words]:
    """(for each send the bits 1 << code of what is wrong with it, what slots hold in the end).

    Bit 1 says that it is wrong at its receiver. All is followed in the order of the table.
    """
    leaves, enters, op, addend_start, addend, start_s, arrival_s, hold_s = sends
    chunks, words = len(reduced), slots.shape[1]
    wrong = np.zeros(len(leaves), np.int64)
    complete_s, busy_until_s = np.zeros(len(held)), np.zeros(len(held))
    own = np.zeros((len(held), words), np.uint64)
    overwritten = np.zeros(len(held), np.bool_)
    for slot in range(len(held)):
        if held[slot]:
            contribution = slot // chunks if reduced[slot % chunks] else 0
            own[slot, contribution // 64] = np.uint64(1) << np.uint64(contribution % 64)
            slots[slot, contribution // 64] = own[slot, contribution // 64]
    for row in range(len(leaves)):
        source, target = leaves[row], enters[row]
        low, high = addend_start[row], addend_start[row + 1]
        if low == high:
            if not start_s[row] >= complete_s[source]:
                wrong[row] |= 1 << NOT_HELD
            for word in range(words):
                carried[row, word] = slots[source, word]
        for at in range(low, high):
            part = addend[at]
            came = start_s[row] >= arrival_s[part] if part >= 0 else held[source]
            if not came or overwritten[source]:
                wrong[row] |= 1 << NOT_HELD
            for word in range(words):
                adds = carried[part, word] if part >= 0 else own[source, word]
                if carried[row, word] & adds:
                    wrong[row] |= 1 << TWICE
                carried[row, word] |= adds
        nothing = True
        for word in range(words):
            nothing = nothing and carried[row, word] == 0
        if nothing or not start_s[row] < np.inf:
            wrong[row] |= 1 << NOT_HELD
        busy_until_s[source] = max(busy_until_s[source], start_s[row] + hold_s[row])
        if op[row] != REDUCE and arrival_s[row] < busy_until_s[target] * (1.0 - 1e-9):
            wrong[row] |= 1 << CHANGED
        overwritten[target] = overwritten[target] or op[row] != REDUCE
        for word in range(words):
            if op[row] == REDUCE and slots[target, word] & carried[row, word]:
                wrong[row] |= (1 << TWICE) | 1
            after = slots[target, word] if op[row] == REDUCE else np.uint64(0)
            slots[target, word] = after | carried[row, word]
        complete_s[target] = max(complete_s[target], arrival_s[row])
    return wrong, slots
