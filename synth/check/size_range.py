"""A proof that a schedule is right for every chunk size in a range, not only for the sizes tried.

Start times change with the size of a chunk, and so may the order in which two sends touch one chunk at one
rank. The result of a schedule depends on these orders alone. Most orders hold at any size, because the later
send cannot start before the earlier one has arrived. The other orders are proven over ranges of sizes. A
start time is a longest path through earlier sends, hence a convex function of the size, and a convex function
lies above its tangents and below its chord.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Mask, offsets
from synth.check.times import by_chunk, on_lanes, starts
from synth.kernels import compiled, copy_into
from synth.schedules import REDUCE, Schedule

__all__ = ["Unsettled", "check_sizes"]

# Times are sums of floats, so equal ones may differ by rounding.
_SLACK = 1e-9
# Kinds of pairs: a read of a chunk and a later write of it; two writes.
_READ_WRITE, _WRITE_WRITE = 0, 1
# Orders of a pair: as in the table, the other way round, the write in the middle of the read.
_AS_LISTED, _SWAPPED, _WITHIN = 0, 1, 2
# The most sizes that are judged. A range that they do not settle is a finding.
_MOST_SIZES = 400


class Unsettled(NamedTuple):
    """Two chunk sizes in bytes between which the order of some sends is unknown."""

    from_bytes: int
    to_bytes: int


@dataclass(frozen=True, eq=False)
class _Times:
    """Start, end of the hold, and arrival of each send at one size, with their growth per byte."""

    start_s: Floats
    start_slope: Floats
    hold_s: Floats
    travel_s: Floats
    beta: Floats

    def start(self, rows: Indices) -> tuple[Floats, Floats]:
        return self.start_s[rows], self.start_slope[rows]

    def end(self, rows: Indices) -> tuple[Floats, Floats]:
        return self.start_s[rows] + self.hold_s[rows], self.start_slope[rows] + self.beta[rows]

    def arrival(self, rows: Indices) -> tuple[Floats, Floats]:
        return self.start_s[rows] + self.travel_s[rows], self.start_slope[rows] + self.beta[rows]


def check_sizes(
    schedule: Schedule, most_bytes: int, judge: Callable[[Schedule], list[str]]
) -> tuple[int, list[str]] | Unsettled | None:
    """Return a chunk size at which ``judge`` has findings, and the findings; None proves every size.

    Sizes range from the schedule's ``chunk_bytes`` to ``most_bytes``; ``judge`` receives the schedule at one
    of them. Return Unsettled if 400 sizes do not settle the range. O(sends · ranks / 64), and O(sends) for
    each size judged.
    """
    judged: dict[int, list[str]] = {}
    times: dict[int, _Times] = {}

    def at(size: int) -> Schedule:
        return replace(schedule, chunk_bytes=size)

    def findings(size: int) -> list[str]:
        if size not in judged:
            judged[size] = judge(at(size))
        return judged[size]

    least, most = schedule.chunk_bytes, most_bytes
    for size in (least, most):
        if findings(size):
            return size, findings(size)
    # Sends that name their addends carry the same sums in every order.
    if schedule.exchanges:
        return None
    pairs = _free_pairs(schedule)
    ranges = [(least, most, np.ones(len(pairs), bool))]
    while ranges:
        low, high, open_ = ranges.pop()
        for size in (low, high):
            if size not in times:
                times[size] = _timed(at(size))
        left = open_.copy()
        left[open_] = ~_same_order(pairs[open_], times[low], times[high], high - low)
        if findings(low):
            return low, findings(low)
        if not left.any() or high - low <= 1:
            continue
        if len(times) >= _MOST_SIZES:
            return Unsettled(low, high)
        # Bisect in logarithms: orders change more often among small chunks.
        middle = min(high - 1, max(low + 1, round((low * high) ** 0.5)))
        if findings(middle):
            return middle, findings(middle)
        ranges += [(low, middle, left), (middle, high, left)]
    return None


def _free_pairs(schedule: Schedule) -> Indices:
    """Return rows (kind, first, second) of sends that touch one chunk at one rank in an unforced order.

    Only pairs of reduced chunks count, because all copies of any other chunk are equal.
    """
    order, _ = by_chunk(schedule)
    order = order[np.asarray(schedule.collective.reduced, bool)[schedule.chunk[order]]]
    start = offsets(np.bincount(schedule.chunk[order], minlength=schedule.collective.chunks))
    link = schedule.link[order]
    ends = schedule.network.src[link], schedule.network.dst[link], schedule.op[order]
    count = _list_pairs(start, *ends, schedule.network.ranks, np.empty((0, 3), np.int64), False)
    found = np.empty((count, 3), np.int64)
    _list_pairs(start, *ends, schedule.network.ranks, found, True)
    found[:, 1:] = order[found[:, 1:]]
    return found


@compiled
def _list_pairs(
    chunk_start: Indices, src: Indices, dst: Indices, op: Bytes, ranks: int, found: Indices, fill: bool
) -> int:
    """Count the free pairs; with ``fill`` also write them to ``found``, as places in the columns.

    ``before[i]`` is the set of sends of the same chunk that have arrived before send i can start.
    """
    count = 0
    last_read, last_write = np.full(ranks, -1), np.full(ranks, -1)
    for chunk in range(len(chunk_start) - 1):
        first, end = chunk_start[chunk], chunk_start[chunk + 1]
        if first == end:
            continue
        words = (end - first + 63) // 64
        arrived = np.zeros((ranks, words), np.uint64)
        before = np.zeros(words, np.uint64)
        next_read, next_write = np.full(end - first, -1), np.full(end - first, -1)
        last_read[:] = -1
        last_write[:] = -1
        for row in range(first, end):
            sender, receiver = src[row], dst[row]
            copy_into(before, arrived[sender])
            read = last_read[receiver]
            while read >= 0:
                at = read - first
                if not before[at // 64] >> np.uint64(at % 64) & np.uint64(1):
                    if fill:
                        found[count, 0], found[count, 1], found[count, 2] = 0, read, row
                    count += 1
                read = next_read[at]
            written = last_write[receiver]
            while written >= 0:
                at = written - first
                forced = before[at // 64] >> np.uint64(at % 64) & np.uint64(1)
                # Two reduces give the same sum in either order.
                if not forced and not (op[row] == REDUCE and op[written] == REDUCE):
                    if fill:
                        found[count, 0], found[count, 1], found[count, 2] = 1, written, row
                    count += 1
                written = next_write[at]
            here = row - first
            arrived[receiver] |= before
            arrived[receiver, here // 64] |= np.uint64(1) << np.uint64(here % 64)
            next_read[here], last_read[sender] = last_read[sender], row
            next_write[here], last_write[receiver] = last_write[receiver], row
    return count


def _same_order(pairs: Indices, low: _Times, high: _Times, width: float) -> Mask:
    """Return a mask of the pairs that provably keep one order at all sizes from ``low`` to ``high``."""
    below, above = _order(pairs, low), _order(pairs, high)
    begun, ended, arrived = zip(_accesses(pairs, low), _accesses(pairs, high), strict=True)
    as_listed = _stays_above(arrived, ended, width)
    swapped = _stays_above(begun, arrived, width)
    within = _stays_above(arrived, begun, width) & _stays_above(ended, arrived, width)
    chosen = np.select([below == _AS_LISTED, below == _SWAPPED], [as_listed, swapped], within)
    return np.asarray((below == above) & chosen, bool)


def _order(pairs: Indices, times: _Times) -> Indices:
    (begun_s, _), (ended_s, _), (arrival_s, _) = _accesses(pairs, times)
    listed = arrival_s >= ended_s * (1.0 - _SLACK)
    swapped = arrival_s <= begun_s * (1.0 + _SLACK)
    return np.select([listed, swapped], [_AS_LISTED, _SWAPPED], _WITHIN)


_Line = tuple[Floats, Floats]


def _accesses(pairs: Indices, times: _Times) -> tuple[_Line, _Line, _Line]:
    """Return the begin and the end of the first access of each pair, and the second, with their slopes.

    A read lasts while its send holds the link. A write is the arrival of its send.
    """
    kind, first, second = pairs.T
    written, (write_s, slope) = kind == _WRITE_WRITE, times.arrival(first)
    (start_s, start_slope), (end_s, end_slope) = times.start(first), times.end(first)
    begun = np.where(written, write_s, start_s), np.where(written, slope, start_slope)
    ended = np.where(written, write_s, end_s), np.where(written, slope, end_slope)
    return begun, ended, times.arrival(second)


def _stays_above(upper: tuple[_Line, _Line], lower: tuple[_Line, _Line], width: float) -> Mask:
    """Return a mask of the pairs in which ``upper`` provably never falls below ``lower``.

    Both are convex functions, given by (value, slope) at both ends of a range of ``width``. ``upper`` lies
    above its tangents and ``lower`` below its chord, so the bound on their distance is least at an end or
    where the tangents meet.
    """
    (left, left_slope), (right, right_slope) = upper
    chord, chord_end = lower[0][0], lower[1][0]
    slope = (chord_end - chord) / max(width, 1.0)
    from_left, from_right = left - chord, right - right_slope * width - chord
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = np.clip((from_left - from_right) / (right_slope - left_slope), 0.0, width)
    meet = np.where(np.isfinite(meet), meet, 0.0)
    distance = np.maximum(from_left + (left_slope - slope) * meet, from_right + (right_slope - slope) * meet)
    slack = _SLACK * np.abs(chord + slope * meet)
    ends = (left - chord >= -_SLACK * np.abs(chord)) & (right - chord_end >= -_SLACK * np.abs(chord_end))
    return ends & (distance >= -slack)


def _timed(schedule: Schedule) -> _Times:
    """Return the times of the sends at the schedule's size, and how they grow per byte."""
    schedule = on_lanes(schedule)
    network, size, row = schedule.network, schedule.chunk_bytes, schedule.link
    start_s, slope = starts(schedule)
    beta = network.beta_s_per_byte
    return _Times(start_s, slope, network.hold_s(size)[row], network.travel_s(size)[row], beta[row])
