"""Refinement of the best schedules that attempts found: pipelined in finer chunks, then justified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from synth.portfolio.attempts import Plan, Request, cut_again, smallest_bytes
from synth.schedule import Schedule
from synth.scheduling.justification import justified
from synth.scheduling.pipelining import pipelined
from synth.simulation.schedule import replay

__all__ = ["Refinement"]

# Of the schedules that take up to so many times the best, and have so few sends, so many are justified.
_NEAR, _MOST_SENDS, _JUSTIFIED = 1.3, 150_000, 8
# Into how many parts chunks are cut at most, and how many times smaller than chunks worth trying they may be.
# What is best in two parts is tried in more.
_MOST_PARTS, _FINER, _IN_PARTS = 16, 8, 3
# So near the bound finer chunks gain less than they cost; and so near, nothing is left to gain.
_AT_THE_BOUND, _ON_THE_BOUND = 1.03, 1.0005


Found = tuple[float, Plan, Schedule]


class Refinement:
    """Collects the schedules of attempts, and makes better ones of the best of them.

    On networks that queue, ranks are CPUs, which do not keep so fine an order; there nothing is refined.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._found: dict[tuple[str, int], Found] = {}

    def take(self, plan: Plan, schedule: Schedule, time_s: float) -> None:
        """Remember the fastest schedule of each method in so many chunks."""
        if self._request.network.queues or schedule.sends > _MOST_SENDS or len(schedule.stream):
            return
        key = plan.name, schedule.collective.chunks
        if key not in self._found or time_s < self._found[key][0]:
            self._found[key] = time_s, plan, schedule

    def refined(self, best_s: float, target_s: float) -> Iterator[Found]:
        """What becomes of the schedules near the best one, each with its time; none beats ``target_s``."""
        # Methods often come to the same in as many chunks.
        unlike = {(one[2].collective.chunks, f"{_time_s(one):.6g}"): one for one in self._found.values()}
        near = sorted((one for one in unlike.values() if one[0] <= _NEAR * best_s), key=_time_s)
        whole = []
        for one in near[:_JUSTIFIED]:
            whole.append(_justified(one))
            yield whole[-1]
        best_s = min([best_s, *map(_time_s, whole)])
        if self._request.chunk_bytes is not None or best_s < target_s * _AT_THE_BOUND:
            return
        halved = [(one, in_two) for one in whole for in_two in self._in_parts(one, 2)]
        halved.sort(key=lambda pair: _time_s(pair[1]))
        for one, _ in halved[:_IN_PARTS]:
            for finer in map(_justified, self._in_parts(one, _MOST_PARTS)):
                yield finer
                best_s = min(best_s, _time_s(finer))
            if best_s < target_s * _ON_THE_BOUND:
                return

    def _in_parts(self, found: Found, most: int) -> Iterator[Found]:
        """The schedule in as many parts as chunks may have, up to ``most``; none where they may have one."""
        _, plan, schedule = found
        parts = most
        while parts > 1:
            shape, chunk_bytes = cut_again(self._request, schedule.collective, parts)
            large = schedule.sends * parts > _MOST_SENDS
            if not large and chunk_bytes >= smallest_bytes(self._request.network) / _FINER:
                finer = pipelined(schedule, shape, chunk_bytes)
                yield replay(finer).time_s, replace(plan, shape=shape, chunk_bytes=chunk_bytes), finer
                return
            parts //= 2


def _justified(found: Found) -> Found:
    _, plan, schedule = found
    better = justified(schedule)
    return replay(better).time_s, plan, better


def _time_s(found: Found) -> float:
    return found[0]
