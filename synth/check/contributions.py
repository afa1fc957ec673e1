"""Contribution sets: the ranks whose contributions each slot holds, after every start and arrival.

A set has one bit for each rank. A send carries the whole set of its source's slot, or the addends that the
schedule names.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from probes.base import Bytes, Floats, Indices, Mask, floats
from synth.check.times import Sets, by_chunk, columns, ranks_of
from synth.kernels import compiled, copy_into
from synth.schedules import REDUCE, Schedule, Timing

__all__ = ["CHANGED", "MISSING", "NOT_HELD", "NO_SUBTREE", "TWICE", "by_the_table", "by_the_times"]

# The codes of flaws; `synth.check.schedule` has a message for each.
NOT_HELD, TWICE, CHANGED, MISSING, NO_SUBTREE = range(1, 6)
# The maximum number of flaws reported for each code: a broken schedule may have one in every send, and the
# first ones show what is wrong.
_MOST = 20
# The relative tolerance when times are compared: they are sums of floats, so equal ones may differ by
# rounding.
_SLACK = 1e-9
_Words: TypeAlias = NDArray[np.uint64]


class _Events(NamedTuple):
    """Two orders of the sends, chunk by chunk: as they start and as they arrive.

    The sends of chunk c are at ``chunk_start[c]:chunk_start[c + 1]``. ``start`` and ``arrival`` decide
    whether a start or an arrival comes first.
    """

    by_start: Indices
    by_arrival: Indices
    chunk_start: Indices
    start: Floats
    arrival: Floats


class _Sends(NamedTuple):
    src: Indices
    dst: Indices
    op: Bytes
    start_s: Floats
    arrival_s: Floats
    hold_s: Floats
    addend_start: Indices
    addend: Indices


def by_the_times(schedule: Schedule, timing: Timing) -> Indices:
    """Return the flaws of the schedule if sends start and arrive in the claimed order.

    Rows are (code, send or -1, rank, chunk), at most 20 of each code. O(sends · log sends), times ranks / 64
    for sums.
    """
    rows, chunk_start = by_chunk(schedule)
    chunk = schedule.chunk[rows]
    by_start = rows[np.lexsort((timing.start_s[rows], chunk))]
    by_arrival = rows[np.lexsort((timing.arrival_s[rows], chunk))]
    events = _Events(by_start, by_arrival, chunk_start, timing.start_s, timing.arrival_s)
    return _codes(schedule, events, timing, _hold_s(schedule))


def by_the_table(schedule: Schedule, timing: Timing | None = None) -> Indices:
    """Return the flaws of the schedule if each send arrives before the next one starts, as in programs.

    With ``timing``, contributions still move in table order. In addition, no send may start, by the claimed
    times, before the contributions that it carries have arrived.
    """
    rows, chunk_start = by_chunk(schedule)
    row = np.arange(schedule.sends, dtype=np.float64)
    events = _Events(rows, rows, chunk_start, row, row + 0.5)
    if timing is not None:
        return _codes(schedule, events, timing, _hold_s(schedule))
    return _codes(schedule, events, Timing(row, row + 0.5, schedule.sends), floats(np.zeros(schedule.sends)))


def _hold_s(schedule: Schedule) -> Floats:
    return floats(schedule.network.hold_s(schedule.chunk_bytes)[schedule.link])


def _codes(schedule: Schedule, events: _Events, timing: Timing, hold_s: Floats) -> Indices:
    collective, network = schedule.collective, schedule.network
    sends = _Sends(
        network.src[schedule.link],
        network.dst[schedule.link],
        schedule.op,
        timing.start_s,
        timing.arrival_s,
        hold_s,
        schedule.addend_start,
        schedule.addend,
    )
    sets = columns(collective.sources), columns(collective.targets)
    aligned = collective.sum_order == "aligned"
    return _follow(events, sends, network.ranks, *sets, collective.reduced, aligned, _MOST)


@compiled
def _follow(
    events: _Events,
    sends: _Sends,
    ranks: int,
    sources: Sets,
    targets: Sets,
    reduced: Mask,
    aligned: bool,
    most: int,
) -> Indices:
    by_start, by_arrival, chunk_start, start, arrival = events
    src, dst, op, start_s, arrival_s, hold_s, addend_start, addend = sends
    words = (ranks + 63) // 64 if reduced.any() else 1
    bits, own_bits = np.zeros((ranks, words), np.uint64), np.zeros((ranks, words), np.uint64)
    complete = np.zeros(words, np.uint64)
    came_s, busy_until_s = np.zeros(ranks), np.zeros(ranks)
    overwritten = np.zeros(ranks, np.bool_)
    found = np.zeros((6, most, 4), np.int64)
    count = np.zeros(6, np.int64)
    place = np.zeros(len(by_arrival), np.int64)
    for chunk in range(len(reduced)):
        next_start, end = chunk_start[chunk], chunk_start[chunk + 1]
        for at in range(next_start, end):
            place[by_arrival[at]] = at - chunk_start[chunk]
        _begin(own_bits, complete, ranks_of(sources, chunk), reduced[chunk])
        for rank in range(len(bits)):
            copy_into(bits[rank], own_bits[rank])
        came_s[:] = -np.inf
        busy_until_s[:] = 0.0
        overwritten[:] = False
        message = np.zeros((end - next_start, words), np.uint64)
        for at in range(chunk_start[chunk], end):
            row = by_arrival[at]
            # At one instant arrivals come first: a chunk that arrives at t can leave at t.
            while next_start < end and not start[by_start[next_start]] >= arrival[row]:
                sent = by_start[next_start]
                next_start += 1
                sender, carried = src[sent], message[place[sent]]
                parts = addend[addend_start[sent] : addend_start[sent + 1]] if len(addend) > 0 else addend
                held = start_s[sent] >= came_s[sender] if len(parts) == 0 else not overwritten[sender]
                if len(parts) == 0:
                    copy_into(carried, bits[sender])
                for part in parts:
                    held = held and (part < 0 or start_s[sent] >= arrival_s[part])
                    held = held and not (part < 0 and _is_empty(own_bits[sender]))
                    if _add(carried, message[place[part]] if part >= 0 else own_bits[sender]):
                        _report(found, count, TWICE, sent, sender, chunk)
                if not (held and start_s[sent] < np.inf) or _is_empty(carried):
                    _report(found, count, NOT_HELD, sent, sender, chunk)
                if aligned and reduced[chunk] and not _is_subtree(carried, ranks_of(sources, chunk)):
                    _report(found, count, NO_SUBTREE, sent, sender, chunk)
                busy_until_s[sender] = max(busy_until_s[sender], start_s[sent] + hold_s[sent])
            if arrival_s[row] == np.inf:
                _report(found, count, NOT_HELD, row, src[row], chunk)
                continue
            slot, carried = bits[dst[row]], message[place[row]]
            # Later arrivals do not change a sum of named addends.
            changed = _changes(slot, carried, op[row]) if len(addend) == 0 else op[row] != REDUCE
            if changed and arrival_s[row] < busy_until_s[dst[row]] * (1.0 - _SLACK):
                _report(found, count, CHANGED, row, dst[row], chunk)
            if op[row] != REDUCE:
                copy_into(slot, carried)
                overwritten[dst[row]] = True
            # With a fixed order all sums are subtrees, and a larger one replaces those that it contains.
            elif _add(slot, carried) and not aligned:
                _report(found, count, TWICE, row, dst[row], chunk)
            came_s[dst[row]] = max(came_s[dst[row]], arrival_s[row])
        for rank in ranks_of(targets, chunk):
            if not _is_equal(bits[rank], complete):
                _report(found, count, MISSING, -1, rank, chunk)
    return _kept(found, count)


@compiled
def _is_subtree(carried: _Words, sources: Indices) -> bool:
    """Return whether a sum holds exactly the leaves below one node of the aligned tree over ``sources``.

    The leaves below a node start at a multiple of a power of two w. They are the next w leaves, or all that
    remain if fewer do.
    """
    first, leaves = -1, 0
    for place in range(len(sources)):
        rank = sources[place]
        if (carried[rank // 64] >> np.uint64(rank % 64)) & np.uint64(1):
            if first < 0:
                first = place
            elif place != first + leaves:
                return False
            leaves += 1
    width = 1
    while width < leaves:
        width *= 2
    return first >= 0 and first % width == 0 and (leaves == width or first + leaves == len(sources))


@compiled
def _kept(found: Indices, count: Indices) -> Indices:
    rows = 0
    for code in range(len(count)):
        rows += count[code]
    kept = np.empty((rows, found.shape[2]), np.int64)
    at = 0
    for code in range(len(count)):
        for row in range(count[code]):
            for column in range(found.shape[2]):
                kept[at, column] = found[code, row, column]
            at += 1
    return kept


@compiled
def _begin(own_bits: _Words, complete: _Words, sources: Indices, reduced: bool) -> None:
    """Give each source of the chunk its own contribution; ``complete`` becomes the set of all of them."""
    own_bits[:] = 0
    complete[:] = 0
    for rank in sources:
        contribution = rank if reduced else 0
        bit = np.uint64(1) << np.uint64(contribution % 64)
        own_bits[rank, contribution // 64] |= bit
        complete[contribution // 64] |= bit


@compiled
def _changes(slot: _Words, content: _Words, op: int) -> bool:
    """Return whether a send changes the contents of a slot; filling an empty slot is no change."""
    changed = False
    for word in range(len(slot)):
        after = slot[word] | content[word] if op == REDUCE else content[word]
        changed = changed or after != slot[word]
    return changed and not _is_empty(slot)


@compiled
def _add(slot: _Words, content: _Words) -> bool:
    """Add a sum to a slot; return whether a contribution is in it twice."""
    twice = False
    for word in range(len(slot)):
        twice = twice or (slot[word] & content[word]) != 0
        slot[word] |= content[word]
    return twice


@compiled
def _is_empty(words: _Words) -> bool:
    empty = True
    for word in words:
        empty = empty and word == 0
    return empty


@compiled
def _is_equal(first: _Words, second: _Words) -> bool:
    equal = True
    for word in range(len(first)):
        equal = equal and first[word] == second[word]
    return equal


@compiled
def _report(found: Indices, count: Indices, code: int, row: int, rank: int, chunk: int) -> None:
    if count[code] < found.shape[1]:
        found[code, count[code], 0] = code
        found[code, count[code], 1] = row
        found[code, count[code], 2] = rank
        found[code, count[code], 3] = chunk
        count[code] += 1
