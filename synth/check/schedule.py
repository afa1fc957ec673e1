"""The checker of schedules: every send causal, every link exclusive, every result complete.

It trusts neither the schedule nor the times claimed for it. Schedules that ``linear_pass`` cannot prove in
one pass are checked chunk by chunk.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices
from synth.check.contributions import CHANGED, MISSING, NOT_HELD, TWICE, by_the_table, by_the_times
from synth.check.linear_pass import is_delivered, takes_turns
from synth.check.size_range import Unsettled, check_sizes
from synth.check.times import on_lanes, replay
from synth.schedules import Schedule, Selection, Timing

__all__ = ["check", "check_selection"]

_MOST = 20
_SLACK = 1e-9


def check(schedule: Schedule, timing: Timing | None = None) -> list[str]:
    """Return findings, at most 20 of a kind; an empty list proves the schedule.

    The proof covers: the source held the chunk when the send started; no link and no port carries two sends
    at once (each stream counts as a link of its own, with its share of the rate); no contribution is reduced
    twice; nothing changes while it is being sent; every rank that wants a chunk ends with all of its
    contributions. It holds at the claimed times, by default those of `synth.check.times`, and when the sends
    run one by one in table order, as programs do. O(sends · log sends), times ranks / 64 for reducing
    collectives whose sums follow no trees.
    """
    problems = schedule.problems()
    if problems:
        return problems
    schedule = on_lanes(schedule)
    claimed = timing or replay(schedule)
    found = []
    if not takes_turns(schedule, claimed, _SLACK):
        found = _times(schedule, claimed) + _exclusive(schedule, claimed)
    if schedule.exchanges:
        return found + _said(schedule, by_the_table(schedule, claimed))
    if is_delivered(schedule, claimed, _SLACK):
        return found
    found += _said(schedule, by_the_times(schedule, claimed))
    if found:
        return found
    return [f"in the order of the table, {one}" for one in _said(schedule, by_the_table(schedule))]


def check_selection(selection: Selection) -> list[str]:
    """Return findings on the schedule of each range; an empty list proves each for all sizes of its range."""
    found = selection.problems()
    for row, one in enumerate(selection.ranges if not found else ()):
        least, most = selection.choose(one.from_bytes), selection.choose(one.to_bytes)
        wrong = check_sizes(least, most.chunk_bytes, check)
        if isinstance(wrong, Unsettled):
            found.append(
                f"ranges[{row}]: right at {wrong.from_bytes} and {wrong.to_bytes} bytes a chunk, but between "
                "them sends change their order too often to be proven"
            )
        elif wrong is not None:
            size, findings = wrong
            found += [f"ranges[{row}], {size} bytes a chunk: {finding}" for finding in findings]
    return found


def _times(schedule: Schedule, timing: Timing) -> list[str]:
    """Return sends that start before time 0 or arrive sooner than their link allows."""
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
    """Return pairs of sends that hold one link, or one port, at the same time."""
    network = schedule.network
    hold_s = network.hold_s(schedule.chunk_bytes)[schedule.link]
    found = _overlaps(schedule, timing, np.arange(schedule.sends), schedule.link, hold_s, "link", ())
    rows, port = network.ports_along(schedule.link)
    port_hold_s = network.port_hold_s(schedule.chunk_bytes)[network.port_entries(schedule.link)]
    return found + _overlaps(schedule, timing, rows, port, port_hold_s, "port", network.ports)


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
    end_s = begin_s + hold_s[order]
    same = sorted_resource[1:] == sorted_resource[:-1]
    clash = same & (begin_s[1:] < end_s[:-1] - _SLACK * end_s[:-1])
    found = []
    for at in _few(clash):
        label = names[sorted_resource[at]] if names else _link_name(schedule, int(sorted_resource[at]))
        first, second = int(sorted_rows[at]), int(sorted_rows[at + 1])
        found.append(f"{noun} {label} carries sends {first} and {second} at {begin_s[at + 1]:.9g} s")
    return found


def _said(schedule: Schedule, codes: Indices) -> list[str]:
    """Return a message for each row (code, send or -1, rank, chunk)."""
    words = {
        NOT_HELD: "rank {rank} does not hold chunk {chunk} when it starts",
        TWICE: "rank {rank} already has a contribution to chunk {chunk} that this reduce adds again",
        CHANGED: "chunk {chunk} changes at rank {rank} while it is being sent",
        MISSING: "rank {rank} ends without the complete chunk {chunk}",
    }
    return [
        (f"{_name(schedule, row)}: " if row >= 0 else "") + words[code].format(rank=rank, chunk=chunk)
        for code, row, rank, chunk in codes.tolist()
    ]


def _name(schedule: Schedule, row: int) -> str:
    link = int(schedule.link[row])
    return f"send {row} (chunk {schedule.chunk[row]} over {_link_name(schedule, link)})"


def _link_name(schedule: Schedule, link: int) -> str:
    return f"{schedule.network.src[link]}→{schedule.network.dst[link]}"


def _few(mask: object) -> list[int]:
    return [int(row) for row in np.flatnonzero(np.asarray(mask))[:_MOST]]
