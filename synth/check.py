"""The one judge of schedules: is every send causal, every link exclusive, every result complete?

It takes a schedule and the times that are claimed for it, and believes neither. It shares no code
with any synthesizer. For every chunk it follows which ranks' contributions each rank holds, as a
set of bits, through all starts and arrivals in the order of time.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from probes.columns import Bytes, Floats, Indices, Mask
from synth.jit import compiled
from synth.proof import is_spread, takes_turns
from synth.rank_sets import RankSets
from synth.schedule import REDUCE, Schedule
from synth.simulate import Timing, replay

__all__ = ["check"]

_NOT_HELD, _TWICE, _CHANGED, _MISSING = range(1, 5)
_MOST = 20
_SLACK = 1e-9
Words: TypeAlias = NDArray[np.uint64]


def check(schedule: Schedule, timing: Timing | None = None) -> list[str]:
    """Findings, at most 20 of a kind; an empty list proves the schedule.

    Proven are: the source held the chunk when the send started; no link and no port carries two
    sends at once; no contribution is reduced twice; nothing changes while it is being sent; every
    rank that wants a chunk ends with all of its contributions.
    O(sends · log sends), and for reducing collectives times ranks / 64.
    """
    problems = schedule.problems()
    if problems:
        return problems
    claimed = timing or replay(schedule)
    found = []
    if not takes_turns(schedule, claimed, _SLACK):
        found += _times(schedule, claimed) + _exclusive(schedule, claimed)
    return found if is_spread(schedule, claimed) else found + _contents(schedule, claimed)


def _times(schedule: Schedule, timing: Timing) -> list[str]:
    """Sends that start before zero, or do not take what their link takes."""
    started = np.isfinite(timing.start_s)
    travel_s = schedule.network.travel_s(schedule.chunk_bytes)[schedule.link]
    slack_s = _SLACK * (1.0 + np.abs(timing.arrival_s))
    with np.errstate(invalid="ignore"):
        short = started & (timing.arrival_s - timing.start_s < travel_s - slack_s)
    early = started & (timing.start_s < 0)
    found = [f"{_name(schedule, row)} arrives sooner than its link allows" for row in _few(short)]
    found += [f"{_name(schedule, row)} starts before time 0" for row in _few(early)]
    claimed_s = float(np.max(timing.arrival_s, initial=0.0, where=started))
    if claimed_s > timing.time_s * (1 + _SLACK):
        found.append(f"the last send arrives at {claimed_s:.9g} s, after the claimed {timing.time_s:.9g} s")
    return found


def _exclusive(schedule: Schedule, timing: Timing) -> list[str]:
    """Pairs of sends that hold one link, or one port, at the same time."""
    network = schedule.network
    hold_s = network.hold_s(schedule.chunk_bytes)[schedule.link]
    found = _overlaps(schedule, timing, np.arange(schedule.sends), schedule.link, hold_s, "link", ())
    counts = np.diff(network.link_port_start)[schedule.link]
    rows = np.repeat(np.arange(schedule.sends), counts)
    first = np.repeat(network.link_port_start[:-1][schedule.link], counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    port = network.link_port[first + within]
    return found + _overlaps(schedule, timing, rows, port, hold_s, "port", network.ports)


def _overlaps(
    schedule: Schedule,
    timing: Timing,
    rows: Indices,
    resource: Indices,
    hold_s: Floats,
    noun: str,
    names: tuple[str, ...],
) -> list[str]:
    begin_s = timing.start_s[rows]
    order = np.lexsort((begin_s, resource))
    order = order[np.isfinite(begin_s[order])]
    sorted_rows, sorted_resource = rows[order], resource[order]
    begin_s = begin_s[order]
    end_s = begin_s + hold_s[sorted_rows]
    same = sorted_resource[1:] == sorted_resource[:-1]
    clash = same & (begin_s[1:] < end_s[:-1] - _SLACK * end_s[:-1])
    found = []
    for at in _few(clash):
        label = names[sorted_resource[at]] if names else _link_name(schedule, int(sorted_resource[at]))
        first, second = int(sorted_rows[at]), int(sorted_rows[at + 1])
        found.append(f"{noun} {label} carries sends {first} and {second} at {begin_s[at + 1]:.9g} s")
    return found


def _contents(schedule: Schedule, timing: Timing) -> list[str]:
    """Sends of what is not held, contributions added twice, results that are not complete."""
    collective, network = schedule.collective, schedule.network
    hold_s = network.hold_s(schedule.chunk_bytes)
    order = np.argsort(schedule.chunk, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(schedule.chunk, minlength=collective.chunks))))
    codes = _follow(
        order,
        start,
        timing.start_s,
        timing.arrival_s,
        hold_s[schedule.link],
        network.src[schedule.link],
        network.dst[schedule.link],
        schedule.op,
        network.ranks,
        *_columns(collective.sources),
        *_columns(collective.targets),
        collective.reduced,
        _MOST,
    )
    words = {
        _NOT_HELD: "rank {rank} does not hold chunk {chunk} when it starts",
        _TWICE: "rank {rank} already has a contribution to chunk {chunk} that this reduce adds again",
        _CHANGED: "chunk {chunk} changes at rank {rank} while it is being sent",
        _MISSING: "rank {rank} ends without the complete chunk {chunk}",
    }
    return [
        (f"{_name(schedule, row)}: " if row >= 0 else "") + words[code].format(rank=rank, chunk=chunk)
        for code, row, rank, chunk in codes.tolist()
    ]


def _columns(sets: RankSets) -> tuple[Indices, Indices, Indices]:
    return sets.group, sets.start, sets.rank


@compiled
def _follow(
    order: Indices,
    chunk_start: Indices,
    start_s: Floats,
    arrival_s: Floats,
    hold_s: Floats,
    src: Indices,
    dst: Indices,
    op: Bytes,
    ranks: int,
    source_group: Indices,
    source_start: Indices,
    source_rank: Indices,
    target_group: Indices,
    target_start: Indices,
    target_rank: Indices,
    reduced: Mask,
    most: int,
) -> Indices:
    """Rows of (code, send or -1, rank, chunk), at most ``most`` of each code."""
    chunks = len(reduced)
    words = (ranks + 63) // 64 if reduced.any() else 1
    bits = np.zeros((ranks, words), np.uint64)
    complete = np.zeros(words, np.uint64)
    busy_until_s = np.zeros(ranks)
    found = np.zeros((5, most, 4), np.int64)
    count = np.zeros(5, np.int64)
    for chunk in range(chunks):
        group = source_group[chunk]
        _begin(bits, complete, source_rank[source_start[group] : source_start[group + 1]], reduced[chunk])
        busy_until_s[:] = 0.0
        rows = order[chunk_start[chunk] : chunk_start[chunk + 1]]
        by_start = np.argsort(start_s[rows])
        message = np.zeros((len(rows), words), np.uint64)
        begun = 0
        for arriving in np.argsort(arrival_s[rows]):
            row = rows[arriving]
            # Of one instant, arrivals come first: what arrives at t can leave at t.
            while begun < len(rows) and not start_s[rows[by_start[begun]]] >= arrival_s[row]:
                starting = by_start[begun]
                sender = src[rows[starting]]
                if _is_empty(bits[sender]):
                    _report(found, count, _NOT_HELD, rows[starting], sender, chunk)
                message[starting] = bits[sender]
                ends_s = start_s[rows[starting]] + hold_s[rows[starting]]
                busy_until_s[sender] = max(busy_until_s[sender], ends_s)
                begun += 1
            if arrival_s[row] == np.inf:
                _report(found, count, _NOT_HELD, row, src[row], chunk)
                continue
            twice, changed = _receive(bits[dst[row]], message[arriving], op[row])
            if twice:
                _report(found, count, _TWICE, row, dst[row], chunk)
            if changed and arrival_s[row] < busy_until_s[dst[row]] * (1.0 - _SLACK):
                _report(found, count, _CHANGED, row, dst[row], chunk)
        group = target_group[chunk]
        for rank in target_rank[target_start[group] : target_start[group + 1]]:
            if not _is_equal(bits[rank], complete):
                _report(found, count, _MISSING, -1, rank, chunk)
    kept = np.zeros((count.sum(), 4), np.int64)
    at = 0
    for code in range(5):
        kept[at : at + count[code]] = found[code, : count[code]]
        at += count[code]
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
    return not words.any()


@compiled
def _is_equal(first: Words, second: Words) -> bool:
    return bool((first == second).all())


@compiled
def _report(found: Indices, count: Indices, code: int, row: int, rank: int, chunk: int) -> None:
    if count[code] < found.shape[1]:
        found[code, count[code], 0] = code
        found[code, count[code], 1] = row
        found[code, count[code], 2] = rank
        found[code, count[code], 3] = chunk
        count[code] += 1


def _name(schedule: Schedule, row: int) -> str:
    link = int(schedule.link[row])
    return f"send {row} (chunk {schedule.chunk[row]} over {_link_name(schedule, link)})"


def _link_name(schedule: Schedule, link: int) -> str:
    return f"{schedule.network.src[link]}→{schedule.network.dst[link]}"


def _few(mask: object) -> list[int]:
    return [int(row) for row in np.flatnonzero(np.asarray(mask))[:_MOST]]
