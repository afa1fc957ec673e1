"""The checker of periodic schedules: one proof for any number of periods.

Periods share no chunk, so one period is judged as a schedule of its own, at the times that the table claims.
Periods share links and ports: two sends of any periods hold one at the same time if and only if they do so
modulo the period.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, floats
from synth.check.schedule import check
from synth.schedules import PeriodicSchedule, Timing

__all__ = ["check_periodic"]

_MOST = 20
_SLACK = 1e-9


def check_periodic(made: PeriodicSchedule) -> list[str]:
    """Return findings; an empty list proves the schedule and its time for every number of periods.

    O(sends of a period · log of them), and for reducing collectives times ranks / 64.
    """
    problems = made.problems()
    if problems:
        return problems
    found = check(made.body, Timing(made.start_s, floats(made.arrival_s), made.latency_s))
    network = made.network
    hold_s = network.hold_s(made.chunk_bytes)[made.link]
    found += _overlaps(made, np.arange(len(made.link)), made.link, hold_s, "link")
    rows, port = network.ports_along(made.link)
    port_hold_s = network.port_hold_s(made.chunk_bytes)[network.port_entries(made.link)]
    return found + _overlaps(made, rows, port, port_hold_s, "port")


def _overlaps(
    made: PeriodicSchedule, rows: Indices, resource: Indices, hold_s: Floats, noun: str
) -> list[str]:
    """Return pairs of sends, each in any period, that hold one link, or one port, at the same time."""
    place_s = np.mod(made.start_s[rows], made.period_s)
    order = np.lexsort((place_s, resource))
    row, held, begin_s = rows[order], resource[order], place_s[order]
    end_s = begin_s + hold_s[order]
    # The send after the last of a resource is its first one, a period later.
    first = np.flatnonzero(np.diff(held, prepend=-1))
    follower = np.arange(1, len(held) + 1)
    last = np.append(first[1:], len(held)) - 1 if len(held) else first
    follower[last] = first
    next_s = begin_s[follower]
    next_s[last] += made.period_s
    # A start is as exact as a float of its size.
    slack_s = _SLACK * made.period_s + 1e-12 * made.start_s[row]
    found = []
    for at in np.flatnonzero(next_s < end_s - slack_s)[:_MOST].tolist():
        network = made.network
        name = (
            f"{network.src[held[at]]}→{network.dst[held[at]]}" if noun == "link" else network.ports[held[at]]
        )
        found.append(
            f"{noun} {name} carries sends {row[at]} and {row[follower[at]]} of two periods at "
            f"{next_s[at] % made.period_s:.9g} s of the period"
        )
    return found
