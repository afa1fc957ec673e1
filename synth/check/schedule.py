"""The checker of schedules: every send causal, every link exclusive, every result complete.

It takes a schedule and the times that are claimed for it, and believes neither. It shares no code
with any synthesizer. What ``linear_pass`` cannot prove in one pass it looks at closely, chunk by chunk.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices, floats, offsets
from synth.check.addends import carried_addends
from synth.check.contribution_sets import CHANGED, MISSING, NOT_HELD, TWICE, Sends, Sets, follow
from synth.check.linear_pass import is_spread, is_summed, takes_turns
from synth.check.size_range import Unsettled, check_sizes
from synth.rank_sets import RankSets
from synth.schedule import Schedule
from synth.selection import Selection
from synth.simulation.schedule import Timing, replay
from synth.streams import divided, overloads

__all__ = ["check", "check_selection"]

_MOST = 20
_SLACK = 1e-9


def check(schedule: Schedule, timing: Timing | None = None) -> list[str]:
    """Findings, at most 20 of a kind; an empty list proves the schedule.

    Proven are: the source held the chunk when the send started; no link and no port carries two sends at
    once, and streams, each a link of its own here, ask for no more than these carry; no contribution is
    reduced twice; nothing changes while it is being sent; every rank that wants a chunk ends with all of its
    contributions. That holds at the claimed times, and when the sends are carried out one by one in the order
    of the table, as programs do.
    O(sends · log sends), and times ranks / 64 for reducing collectives whose sums go no trees.
    """
    problems = schedule.problems()
    if problems:
        return problems
    claimed = timing or replay(schedule)
    found = overloads(schedule, _SLACK)
    schedule = divided(schedule)
    if not takes_turns(schedule, claimed, _SLACK):
        found += _times(schedule, claimed) + _exclusive(schedule, claimed)
    if schedule.exchanges:
        return found + _said(schedule, carried_addends(schedule, claimed, _MOST))
    if is_spread(schedule, claimed) or is_summed(schedule, claimed, _SLACK):
        return found
    found += _contents(schedule, claimed)
    if found:
        return found
    in_turn = _contents(schedule, _one_by_one(schedule), holding=False)
    return [f"in the order of the table, {finding}" for finding in in_turn]


def check_selection(selection: Selection) -> list[str]:
    """Findings on the schedule of each range; none proves it for every size of its range."""
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


def _one_by_one(schedule: Schedule) -> Timing:
    """Times at which every send arrives before the next one starts."""
    row = np.arange(schedule.sends, dtype=np.float64)
    return Timing(floats(row), floats(row + 0.5), float(schedule.sends))


def _contents(schedule: Schedule, timing: Timing, *, holding: bool = True) -> list[str]:
    """Sends of what is not held, contributions added twice, results that are not complete.

    ``holding``: what a send carries must not change while the send holds its link.
    """
    collective, network = schedule.collective, schedule.network
    hold_s = network.hold_s(schedule.chunk_bytes)[schedule.link] * holding
    by_start = np.lexsort((timing.start_s, schedule.chunk))
    by_arrival = np.lexsort((timing.arrival_s, schedule.chunk))
    start = offsets(np.bincount(schedule.chunk, minlength=collective.chunks))
    sends = Sends(
        by_start,
        by_arrival,
        start,
        timing.start_s,
        timing.arrival_s,
        hold_s,
        network.src[schedule.link],
        network.dst[schedule.link],
        schedule.op,
    )
    codes = follow(
        sends,
        network.ranks,
        _columns(collective.sources),
        _columns(collective.targets),
        collective.reduced,
        _MOST,
    )
    return _said(schedule, codes)


def _said(schedule: Schedule, codes: Indices) -> list[str]:
    """What each (code, send or -1, rank, chunk) means."""
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


def _columns(sets: RankSets) -> Sets:
    return Sets(sets.group, sets.start, sets.rank)


def _name(schedule: Schedule, row: int) -> str:
    link = int(schedule.link[row])
    return f"send {row} (chunk {schedule.chunk[row]} over {_link_name(schedule, link)})"


def _link_name(schedule: Schedule, link: int) -> str:
    return f"{schedule.network.src[link]}→{schedule.network.dst[link]}"


def _few(mask: object) -> list[int]:
    return [int(row) for row in np.flatnonzero(np.asarray(mask))[:_MOST]]
