"""Justification (Wiest; Valls, Ballestín, Quintanilla): list scheduling, forwards and backwards.

The sends that end last in one pass go first in the next pass, which runs in the other direction. So sends
that others wait for go early, and sends that no other waits for go late. Only the order changes, not the
links.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, floats, spans
from synth.kernels import compiled
from synth.schedules import Schedule
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.precedence import Precedence, of_schedule
from synth.simulation import replay

__all__ = ["heads_and_tails_s", "justified", "least_s"]

# The most passes, and the most passes in a row without gain.
_MOST_PASSES, _MOST_IN_VAIN = 8, 3
# A pass must come below this share of the best time to count as a gain.
_GAIN = 0.999
# The most sends for which a second starting order is tried.
_FEW_SENDS = 10_000
# A time is at its lower bound within this share: sums of floats round.
_ROUNDED = 1e-9


def justified(schedule: Schedule, below_s: float = np.inf) -> Schedule:
    """Return the same sends in the best order found; ``schedule`` itself if none is faster.

    It is also returned unchanged if it has streams, or if no order can take less than ``below_s``.
    O(passes · (sends + addends) · log sends).
    """
    if len(schedule.stream) or not schedule.sends:
        return schedule
    forwards = of_schedule(schedule)
    heads_s, tails_s = heads_and_tails_s(schedule, forwards, schedule.chunk_bytes)
    bound_s = _least_s(schedule, heads_s, tails_s, 1)
    if bound_s >= min(below_s, replay(schedule).time_s * (1 - _ROUNDED)):
        return schedule
    backwards = forwards.reversed()
    # Start from the given order, and from the longest path after each send.
    begun = [_back_s(schedule, backwards, replay(schedule).arrival_s)]
    if schedule.sends <= _FEW_SENDS:
        begun.append(tails_s)
    best, best_s = schedule, replay(schedule).time_s
    for left_s in begun:
        if bound_s < best_s * (1 - _ROUNDED):
            best, best_s = _improved(schedule, forwards, backwards, left_s, best, best_s)
    return best


def least_s(schedule: Schedule, parts: int = 1) -> float:
    """Return a lower bound on the time of the sends in any order, with each chunk in ``parts`` parts.

    It is the longest path of sends, or the load of a link or port with the shortest paths before and after.
    O((sends + addends) · log sends).
    """
    chunk_bytes = schedule.chunk_bytes // parts
    return _least_s(schedule, *heads_and_tails_s(schedule, of_schedule(schedule), chunk_bytes), parts)


def _least_s(schedule: Schedule, heads_s: Floats, tails_s: Floats, parts: int) -> float:
    network, chunk_bytes = schedule.network, schedule.chunk_bytes // parts
    start, resource = network.link_resources
    counts = np.diff(start)[schedule.link]
    at, send = spans(start[schedule.link], counts), np.repeat(np.arange(schedule.sends), counts)
    load_s = parts * network.busy_s(schedule.link, chunk_bytes)
    before_s, after_s = np.full(len(load_s), np.inf), np.full(len(load_s), np.inf)
    np.minimum.at(before_s, resource[at], heads_s[send])
    np.minimum.at(after_s, resource[at], tails_s[send] - network.held_s(chunk_bytes)[at])
    used = np.isfinite(before_s)
    return max(float((heads_s + tails_s).max()), float((before_s + load_s + after_s)[used].max()))


def heads_and_tails_s(schedule: Schedule, forwards: Precedence, chunk_bytes: int) -> tuple[Floats, Floats]:
    """Return the longest paths before each send, and from its start to the last arrival it affects.

    Chunks have ``chunk_bytes``, and no send queues.
    """
    travel_s = np.zeros(schedule.sends + forwards.milestones)
    travel_s[: schedule.sends] = schedule.network.travel_s(chunk_bytes)[schedule.link]
    ends_s, tails_s = (
        _longest_paths_s(floats(travel_s), one.waits, *one.successors)[: schedule.sends]
        for one in (forwards, forwards.reversed())
    )
    return ends_s - travel_s[: schedule.sends], tails_s


def _improved(
    schedule: Schedule,
    forwards: Precedence,
    backwards: Precedence,
    left_s: Floats,
    best: Schedule,
    best_s: float,
) -> tuple[Schedule, float]:
    """Return (best order, its time) of passes forwards and backwards; sends with most time left go first."""
    vain, link = 0, schedule.link.astype(np.int64)
    for _ in range(_MOST_PASSES):
        order, arrival_s = line_up(schedule.network, schedule.chunk_bytes, link, forwards, floats(-left_s))
        found_s = float(arrival_s.max())
        vain = 0 if found_s < _GAIN * best_s else vain + 1
        if found_s < best_s:
            best, best_s = in_order(schedule, order), found_s
        if vain == _MOST_IN_VAIN:
            break
        left_s = _back_s(schedule, backwards, arrival_s)
    return best, best_s


def _back_s(schedule: Schedule, backwards: Precedence, arrival_s: Floats) -> Floats:
    """Return the time from each send's start to the end, by list scheduling backwards in time."""
    link, network = schedule.link.astype(np.int64), schedule.network.transposed()
    return line_up(network, schedule.chunk_bytes, link, backwards, floats(-arrival_s))[1]


@compiled
def _longest_paths_s(duration_s: Floats, waits: Indices, after_start: Indices, after: Indices) -> Floats:
    """Return for each node the longest path that ends with it, as a sum of durations (Kahn's order)."""
    end_s = duration_s.copy()
    ready = np.empty(len(waits), np.int64)
    count = 0
    for node in range(len(waits)):
        if waits[node] == 0:
            ready[count] = node
            count += 1
    done = 0
    while done < count:
        node = ready[done]
        done += 1
        for at in range(after_start[node], after_start[node + 1]):
            later = after[at]
            end_s[later] = max(end_s[later], end_s[node] + duration_s[later])
            waits[later] -= 1
            if waits[later] == 0:
                ready[count] = later
                count += 1
    return end_s
