"""The checker of schedules: every send causal, every link exclusive, every result complete.

The checker trusts neither the schedule nor the times claimed for it. Schedules that ``linear_pass`` cannot
prove are checked chunk by chunk.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from probes.base import Floats, Indices
from synth.check.contributions import (
    CHANGED,
    MISSING,
    NO_SUBTREE,
    NOT_HELD,
    TWICE,
    by_the_table,
    by_the_times,
)
from synth.check.linear_pass import is_delivered, takes_turns
from synth.check.size_range import Unsettled, check_sizes
from synth.check.times import on_lanes, replay
from synth.schedules import REDUCE, AnySchedule, Obligation, Schedule, Timing

__all__ = ["check"]

# A broken schedule may have a problem in each send. The first 20, about a screenful, show what is wrong.
_MOST = 20
# Times are sums of floats, so equal ones may differ by rounding. The relative error of a sum of n is below
# n · 2^-53, so the slack suffices for nine million addends.
_SLACK = 1e-9
# The slack of a start that is taken modulo a period, relative to the start. It suffices for 9,000 addends. It
# is less than _SLACK, because a start may be many periods after time 0.
_SLACK_OF_START = 1e-12


def check(made: AnySchedule, timing: Timing | None = None) -> list[str]:
    """Return findings on any type of schedule, at most 20 of each sort; an empty list is a proof.

    The proof covers: the source held the chunk when the send started; no link and no port carries two sends
    at once (each stream counts as a link of its own, with its share of the rate); no contribution is reduced
    twice; nothing changes while it is being sent; every rank that wants a chunk ends with all of its
    contributions. If the order of sums is fixed, each send carries exactly the sum below one node of the tree
    of additions, so ranks can add in the fixed order. The checker of programs proves that they do.

    The sends of a switch's operation (`Schedule.multimem`) start together, with the share of the ports that
    all operations beside each other leave, while no other send uses these ports; the rank that reads a sum
    holds its own contribution.

    The proof holds for two ways of running the schedule. In one, sends start and arrive at the claimed times,
    by default those of `synth.check.times`. In the other, they run one by one in table order, as in programs.
    O(sends · log sends), multiplied by ranks / 64 for reducing collectives whose sums follow no trees.

    Periods share no chunk, so one period is judged as a schedule of its own. Periods do share links and
    ports: two sends of any periods collide if and only if they collide modulo the period.

    ``timing`` holds the claimed times of a table, or of the quotient of a symmetric schedule. A periodic
    schedule states its own times, and a selection states none.
    """
    found = made.problems()
    for owed in made.obligations(timing) if not found else ():
        found += _check_sizes(owed) if owed.most_chunk_bytes else _check_table(owed)
    return found


def _check_sizes(owed: Obligation) -> list[str]:
    """Return findings on a table that must hold for every chunk size up to a largest one."""

    def judge(table: Schedule) -> list[str]:
        return _check_table(replace(owed, table=table))

    assert owed.most_chunk_bytes is not None
    wrong = check_sizes(owed.table, owed.most_chunk_bytes, judge)
    if wrong is None:
        return []
    if isinstance(wrong, Unsettled):
        return [
            f"{owed.place}: right at {wrong.from_bytes} and {wrong.to_bytes} bytes a chunk, but between "
            "them sends change their order too often to be proven"
        ]
    size, findings = wrong
    return [f"{owed.place}, {size} bytes a chunk: {finding}" for finding in findings]


def _check_table(owed: Obligation) -> list[str]:
    if problems := owed.table.problems():
        return problems
    schedule = on_lanes(owed.table)
    claimed = owed.timing or replay(schedule)
    found = []
    if not takes_turns(schedule, claimed, _SLACK):
        found = _times(schedule, claimed) + _exclusive(schedule, claimed)
    if owed.period_s is not None:
        found += _exclusive(schedule, claimed, owed.period_s)
    if schedule.uses_switches:
        found += _operations(owed.table, claimed)
    if schedule.exchanges:
        return found + _messages(schedule, by_the_table(schedule, claimed))
    if schedule.collective.sum_order != "any" and (schedule.op == REDUCE).any():
        return [*found, "sends name no addends, so ranks sum in the order of arrival, not in the fixed order"]
    if is_delivered(schedule, claimed, _SLACK):
        return found
    found += _messages(schedule, by_the_times(schedule, claimed))
    if found:
        return found
    return [f"in the order of the table, {one}" for one in _messages(schedule, by_the_table(schedule))]


def _times(schedule: Schedule, timing: Timing) -> list[str]:
    """Return messages on sends that start before 0, arrive too soon or end too late."""
    # A send that never starts has no times. The comparisons are written so that a NaN is a finding.
    started = timing.start_s != math.inf
    travel_s = schedule.network.travel_s(schedule.chunk_bytes)[schedule.link]
    slack_s = _SLACK * (1.0 + np.abs(timing.arrival_s))
    with np.errstate(invalid="ignore"):
        short = started & ~(timing.arrival_s - timing.start_s >= travel_s - slack_s)
    early = started & ~(timing.start_s >= 0)
    found = [f"{_name(schedule, row)} arrives sooner than its link allows" for row in _few(short)]
    found += [f"{_name(schedule, row)} starts before time 0" for row in _few(early)]
    claimed_s = float(np.max(timing.arrival_s, initial=0.0, where=started))
    if not claimed_s <= timing.time_s * (1 + _SLACK):
        found.append(f"the last send arrives at {claimed_s:.9g} s, after the claimed {timing.time_s:.9g} s")
    return found


def _exclusive(schedule: Schedule, timing: Timing, period_s: float | None = None) -> list[str]:
    """Return messages on sends that hold one link or port at once, modulo ``period_s`` if given."""
    network, size, link = schedule.network, schedule.chunk_bytes, schedule.link
    rows, port = network.ports_along(link)
    port_hold_s = network.port_hold_s(size)[network.port_entries(link)]
    at_links = _overlaps(timing, period_s, np.arange(schedule.sends), link, network.hold_s(size)[link])
    found = [(f"link {_link_name(schedule, held)}", *pair) for held, *pair in at_links]
    at_ports = _overlaps(timing, period_s, rows, port, port_hold_s)
    found += [(f"port {network.ports[held]}", *pair) for held, *pair in at_ports]
    when = "at {:.9g} s" if period_s is None else "of two periods at {:.9g} s of the period"
    return [f"{name} carries sends {row} and {other} {when.format(at_s)}" for name, row, other, at_s in found]


def _operations(schedule: Schedule, timing: Timing) -> list[str]:
    """Return messages on operations of switches whose sends differ in time, lack data, or share a port."""
    network, number = schedule.network, schedule.multimem
    inside = np.flatnonzero(number >= 0)
    follows = inside[1:][number[inside[1:]] == number[inside[1:] - 1]]
    apart = (timing.start_s[follows] != timing.start_s[follows - 1]) | (
        timing.arrival_s[follows] != timing.arrival_s[follows - 1]
    )
    found = [
        f"{_name(schedule, row)} is not at the same time as operation {number[row]} of the switch"
        for row in follows[apart][:_MOST].tolist()
    ]
    hosts = np.unique(network.host_of[network.src[schedule.link[inside]]])
    theirs = np.flatnonzero(network.within_host & np.isin(network.host_of[network.src], hosts))
    ports = np.unique(network.ports_along(theirs)[1])
    alone = np.flatnonzero(number < 0)
    row, port = network.ports_along(schedule.link[alone])
    shares = np.isin(schedule.link[alone], theirs)
    shares[row[np.isin(port, ports)]] = True
    found += [
        f"{_name(schedule, row)} shares a port with operations of the switch"
        for row in alone[shares][:_MOST].tolist()
    ]
    return found + _lacking_readers(schedule, timing)


def _lacking_readers(schedule: Schedule, timing: Timing) -> list[str]:
    """Return messages on sums that start before their reader holds something to add."""
    found, came = list[str](), dict[tuple[int, int], float]()
    held, number = schedule.collective.held(), schedule.multimem
    for row in range(schedule.sends):
        slot = int(schedule.network.dst[schedule.link[row]]), int(schedule.chunk[row])
        begins = number[row] >= 0 and (row == 0 or number[row - 1] != number[row])
        if begins and schedule.op[row] == REDUCE and not held[slot]:
            ready_s = came.get(slot, math.inf)
            if not ready_s <= timing.start_s[row] * (1 + _SLACK):
                found.append(f"{_name(schedule, row)}: rank {slot[0]} reads a sum without its own part")
        came[slot] = min(came.get(slot, math.inf), float(timing.arrival_s[row]))
    return found[:_MOST]


def _overlaps(
    timing: Timing, period_s: float | None, rows: Indices, resource: Indices, hold_s: Floats
) -> list[tuple[int, int, int, float]]:
    """Return (resource, send, next send, start of the next) where the two overlap."""
    started = np.isfinite(timing.start_s[rows])
    rows, resource, hold_s = rows[started], resource[started], hold_s[started]
    start_s = timing.start_s[rows]
    place_s = start_s if period_s is None else np.mod(start_s, period_s)
    order = np.lexsort((place_s, resource))
    row, held, begin_s = rows[order], resource[order], place_s[order]
    end_s = begin_s + hold_s[order]
    # The last send of a resource is followed by its first one, a period later.
    first = np.flatnonzero(np.diff(held, prepend=-1))
    last = np.append(first[1:], len(held))[: len(first)] - 1
    follower = np.arange(1, len(held) + 1)
    follower[last] = first
    next_s = begin_s[follower]
    next_s[last] += math.inf if period_s is None else period_s
    slack_s = _SLACK * end_s if period_s is None else _SLACK * period_s + _SLACK_OF_START * start_s[order]
    clashes = np.flatnonzero(next_s < end_s - slack_s)[:_MOST]
    at_s = next_s if period_s is None else np.mod(next_s, period_s)
    columns = held, row, row[follower], at_s
    return list(zip(*(column[clashes].tolist() for column in columns), strict=True))


def _messages(schedule: Schedule, codes: Indices) -> list[str]:
    """Return a message for each row (code, send or -1, rank, chunk)."""
    words = {
        NOT_HELD: "rank {rank} does not hold chunk {chunk} when it starts",
        TWICE: "rank {rank} already has a contribution to chunk {chunk} that this reduce adds again",
        CHANGED: "chunk {chunk} changes at rank {rank} while it is being sent",
        MISSING: "rank {rank} ends without the complete chunk {chunk}",
        NO_SUBTREE: "rank {rank} sums contributions to chunk {chunk} that the fixed order keeps apart",
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
