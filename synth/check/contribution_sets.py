"""Contribution sets: whose contributions each rank holds of a chunk, through all starts and arrivals.

A rank's contributions are a set of bits. Part of the judge: shares no code with any synthesizer.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from probes.columns import Bytes, Floats, Indices, Mask
from synth.kernels.compiled import compiled
from synth.schedule import REDUCE

__all__ = ["CHANGED", "MISSING", "NOT_HELD", "TWICE", "Sends", "Sets", "follow"]

NOT_HELD, TWICE, CHANGED, MISSING = range(1, 5)
_SLACK = 1e-9
Words: TypeAlias = NDArray[np.uint64]


class Sends(NamedTuple):
    """The columns of the sends, and two orders of them.

    ``by_start`` and ``by_arrival`` list the sends chunk by chunk, as they start and as they arrive; those of
    chunk c are at ``chunk_start[c]:chunk_start[c + 1]``.
    """

    by_start: Indices
    by_arrival: Indices
    chunk_start: Indices
    start_s: Floats
    arrival_s: Floats
    hold_s: Floats
    src: Indices
    dst: Indices
    op: Bytes


class Sets(NamedTuple):
    """The columns of `RankSets`."""

    group: Indices
    start: Indices
    rank: Indices


@compiled
def follow(sends: Sends, ranks: int, sources: Sets, targets: Sets, reduced: Mask, most: int) -> Indices:
    """Rows of (code, send or -1, rank, chunk), at most ``most`` of each code."""
    by_start, by_arrival, chunk_start, start_s, arrival_s, hold_s, src, dst, op = sends
    chunks = len(reduced)
    words = (ranks + 63) // 64 if reduced.any() else 1
    bits = np.zeros((ranks, words), np.uint64)
    complete = np.zeros(words, np.uint64)
    busy_until_s = np.zeros(ranks)
    found = np.zeros((5, most, 4), np.int64)
    count = np.zeros(5, np.int64)
    place = np.zeros(len(by_arrival), np.int64)
    for chunk in range(chunks):
        for at in range(chunk_start[chunk], chunk_start[chunk + 1]):
            place[by_arrival[at]] = at - chunk_start[chunk]
        _begin(bits, complete, _ranks_of(sources, chunk), reduced[chunk])
        busy_until_s[:] = 0.0
        begun, end = chunk_start[chunk], chunk_start[chunk + 1]
        message = np.zeros((end - begun, words), np.uint64)
        for at in range(chunk_start[chunk], end):
            row = by_arrival[at]
            # Of one instant, arrivals come first: what arrives at t can leave at t.
            while begun < end and not start_s[by_start[begun]] >= arrival_s[row]:
                starting = by_start[begun]
                sender = src[starting]
                if _is_empty(bits[sender]):
                    _report(found, count, NOT_HELD, starting, sender, chunk)
                _copy(message[place[starting]], bits[sender])
                ends_s = start_s[starting] + hold_s[starting]
                busy_until_s[sender] = max(busy_until_s[sender], ends_s)
                begun += 1
            if arrival_s[row] == np.inf:
                _report(found, count, NOT_HELD, row, src[row], chunk)
                continue
            twice, changed = _receive(bits[dst[row]], message[place[row]], op[row])
            if twice:
                _report(found, count, TWICE, row, dst[row], chunk)
            if changed and arrival_s[row] < busy_until_s[dst[row]] * (1.0 - _SLACK):
                _report(found, count, CHANGED, row, dst[row], chunk)
        for rank in _ranks_of(targets, chunk):
            if not _is_equal(bits[rank], complete):
                _report(found, count, MISSING, -1, rank, chunk)
    return _kept(found, count)


@compiled
def _ranks_of(sets: Sets, chunk: int) -> Indices:
    group = sets.group[chunk]
    return sets.rank[sets.start[group] : sets.start[group + 1]]


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
def _begin(bits: Words, complete: Words, sources: Indices, reduced: bool) -> None:
    """Each source of the chunk holds its own contribution, and together they are the complete chunk."""
    bits[:] = 0
    complete[:] = 0
    for rank in sources:
        contribution = rank if reduced else 0
        bit = np.uint64(1) << np.uint64(contribution % 64)
        bits[rank, contribution // 64] |= bit
        complete[contribution // 64] |= bit


@compiled
def _receive(slot: Words, content: Words, op: int) -> tuple[bool, bool]:
    """Apply a send to the receiver's slot: (added something twice, changed what was there)."""
    twice = False
    changed = False
    occupied = not _is_empty(slot)
    for word in range(len(slot)):
        after = slot[word] | content[word] if op == REDUCE else content[word]
        twice = twice or (op == REDUCE and (slot[word] & content[word]) != 0)
        changed = changed or (occupied and after != slot[word])
        slot[word] = after
    return twice, changed


@compiled
def _is_empty(words: Words) -> bool:
    empty = True
    for word in words:
        empty = empty and word == 0
    return empty


@compiled
def _is_equal(first: Words, second: Words) -> bool:
    equal = True
    for word in range(len(first)):
        equal = equal and first[word] == second[word]
    return equal


@compiled
def _copy(into: Words, words: Words) -> None:
    """Word by word: to assign a slice compiles all that could be said of shapes that differ."""
    for word in range(len(words)):
        into[word] = words[word]


@compiled
def _report(found: Indices, count: Indices, code: int, row: int, rank: int, chunk: int) -> None:
    if count[code] < found.shape[1]:
        found[code, count[code], 0] = code
        found[code, count[code], 1] = row
        found[code, count[code], 2] = rank
        found[code, count[code], 3] = chunk
        count[code] += 1
