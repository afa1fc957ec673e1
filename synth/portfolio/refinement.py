"""Refinement of the best schedules: justified orders of sends, mixtures, and smaller chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from synth.check import check
from synth.collective import Collective
from synth.portfolio.attempts import Plan, smallest_bytes
from synth.portfolio.request import Request, cut, cut_again
from synth.schedules import Schedule
from synth.scheduling import gossip, justified, least_s, mixed_by_owner, mixtures, pipelined
from synth.simulation import replay

__all__ = ["Refinement"]

# Justify at most _JUSTIFIED schedules of at most _MOST_SENDS sends, within the factor _NEAR of the best.
_NEAR, _MOST_SENDS, _JUSTIFIED = 1.3, 150_000, 8
# Chunks are cut into at most _MOST_PARTS parts, each at least 1 / _FINER of the smallest chunk of a search.
# All schedules are tried with chunks in two parts, and the best _IN_PARTS with more parts. Mixtures have fine
# chunks already.
_MOST_PARTS, _FINER, _IN_PARTS = 16, 8, 3
# The number of parts is doubled again while a doubling reduces the time to this fraction or less.
_WORTH = 0.99
# Within _TOO_NEAR_FOR_PARTS of the bound, smaller chunks gain less than their sends cost; within
# _ON_THE_BOUND, the search ends.
_TOO_NEAR_FOR_PARTS, _ON_THE_BOUND = 1.03, 1.0005

# Better orders make mixtures up to 7 % faster: those above this factor of the best time are dropped.
_NEAR_MIXED = 1.1

# Mixtures also take the plans of all attempts of gossip, in these numbers of chunks, if chunks times ranks
# times links are at most _MOST_WORK: half a second.
_VARIED, _MOST_WORK = (1, 4, 16), 60_000

# Collectives whose chunks all have the same sources and targets, and those whose chunks have owners.
_MIXED = ("all_reduce", "broadcast", "reduce")
_MIXED_BY_OWNER = ("all_gather", "reduce_scatter", "all_to_all")
# The most chunks of an owner, and the most sends of a mixture by owner. Mixtures by owner are made only above
# _FAR times the bound, of schedules of up to _OWNED chunks a rank, or one an owner. The best _BEST are kept.
_MOST_OF_OWNER, _MOST_BY_OWNER, _FAR, _OWNED, _BEST = 64, 66_000, 1.05, 16, 3

# A schedule with its time and its plan.
Found = tuple[float, Plan, Schedule]


class Refinement:
    """Collects the schedules of attempts, and improves the best of them.

    Nothing is refined on networks with queues (Ethernet): CPUs do not keep the order of sends exactly enough
    for a better order to pay.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._found: dict[tuple[str, bool, int], Found] = {}

    def take(self, plan: Plan, schedule: Schedule, time_s: float) -> None:
        """Keep ``schedule`` if it is the fastest of its method in that many chunks.

        Searches whose sums are at a few centres count as another method: mixtures take plans of both.
        """
        if self._request.network.queues or schedule.sends > _MOST_SENDS:
            return
        if len(schedule.stream) or schedule.uses_switches:
            return
        key = plan.name, "centres" in plan.options, schedule.collective.chunks
        if key not in self._found or time_s < self._found[key][0]:
            self._found[key] = time_s, plan, schedule

    def refined(self, best_s: float, target_s: float) -> Iterator[Found]:
        """Yield improved versions of the schedules near the best one; ``target_s`` is the bound.

        The request's ``jobs`` is the number of threads; the results do not depend on it.
        """
        # Methods may find the same schedule: of schedules with equal chunks and time, keep one.
        unlike = {(one[2].collective.chunks, f"{_time_s(one):.6g}"): one for one in self._found.values()}
        near = sorted((one for one in unlike.values() if _time_s(one) <= _NEAR * best_s), key=_time_s)
        request = self._request
        with _threads(request.jobs) as each:
            whole = []
            for one in each(partial(_justified, below_s=self._worth_s(best_s)), near[:_JUSTIFIED]):
                whole.append(one)
                yield one
            best_s = min([best_s, *map(_time_s, whole)])
            if request.chunk_bytes is not None or best_s < target_s * _TOO_NEAR_FOR_PARTS:
                return
            yield from each(_justified, self._mixed(best_s))
            if best_s > _FAR * target_s:
                yield from each(_justified, self._mixed_by_owner(best_s))
            worth_s = self._worth_s(best_s)
            divisible = [one for one in whole if self._may_gain_in_parts(one[2], worth_s)]
            halved = sorted(
                zip(each(self._halved, divisible), divisible, strict=True),
                key=lambda pair: _time_s(pair[0]),
            )
            for finer in each(self._in_more_parts, halved[:_IN_PARTS]):
                yield from finer
                if finer and min(map(_time_s, finer)) < target_s * _ON_THE_BOUND:
                    return

    def _mixed(self, best_s: float) -> list[Found]:
        """Return mixtures of the plans of all schedules, if all chunks go from and to the same ranks.

        There are none for some of the ranks, because they would fill the links of the others, which have
        groups of their own.
        """
        request, whole = self._request, self._request.whole
        alike = whole is not None and whole.kind in _MIXED
        if not alike or request.trees or request.sweeping or not self._found:
            return []
        found = sorted(self._found.values(), key=_time_s)
        schedules = [schedule for _, _, schedule in found]
        work = request.network.ranks * request.network.links
        for count in sorted(set(_VARIED).intersection(gossip.chunk_counts(request.network))):
            if count * work > _MOST_WORK:
                continue
            shape, chunk_bytes = self._cut(count)
            schedules += gossip.varied(request.network, shape, chunk_bytes, request.seed)
        cuts = list(map(self._cut, mixtures.chunk_counts(request.network)))
        least_bytes = smallest_bytes(request.network) / _FINER
        cuts = [one for one in cuts if one[1] >= least_bytes]
        plan = replace(found[0][1], name="mixture")
        # A mixture of plans with a fixed order of sums need not keep that order.
        return [
            (replay(one).time_s, replace(plan, shape=one.collective, chunk_bytes=one.chunk_bytes), one)
            for one in mixtures.mixed(schedules, cuts, best_s)
            if replay(one).time_s <= _NEAR_MIXED * best_s and not check(one)
        ]

    def _mixed_by_owner(self, best_s: float) -> list[Found]:
        """Return the best mixtures by owner of all schedules, for collectives whose chunks have owners."""
        request, whole = self._request, self._request.whole
        by_owner = whole is not None and whole.kind in _MIXED_BY_OWNER
        if not by_owner or request.trees or request.sweeping:
            return []
        few = sorted((one for one in self._found.values() if _is_for_owners(one[2])), key=_time_s)
        if not few:
            return []
        schedules = [schedule for _, _, schedule in few]
        each = schedules[0].sends / schedules[0].collective.chunks
        least_bytes, split, cuts = smallest_bytes(request.network) / _FINER, 1, list[tuple[Collective, int]]()
        while split <= _MOST_OF_OWNER:
            shape, chunk_bytes = cut(request, split)
            if each * shape.chunks > _MOST_BY_OWNER or (split > 1 and chunk_bytes < least_bytes):
                break
            cuts.append((shape, chunk_bytes))
            split *= 2
        plan, found = replace(few[0][1], name="mixture"), list[Found]()
        # The most chunks, and a quarter of them.
        for shape, chunk_bytes in cuts[-1:-4:-2]:
            for one in mixed_by_owner(schedules, shape, chunk_bytes, best_s, request.seed):
                made = replace(plan, shape=shape, chunk_bytes=chunk_bytes)
                if replay(one).time_s <= _NEAR_MIXED * best_s and not check(one):
                    found.append((replay(one).time_s, made, one))
        return sorted(found, key=_time_s)[:_BEST]

    def _cut(self, chunks: int) -> tuple[Collective, int]:
        return cut(replace(self._request, chunks=chunks), 1)

    def _halved(self, one: Found) -> Found:
        return self._in_parts(one, 2)

    def _in_more_parts(self, pair: tuple[Found, Found]) -> list[Found]:
        """Return justified schedules with chunks in 2, 4, 8 … parts, until a doubling gains too little."""
        in_two, whole = pair
        found, best, parts = [], whole, 2
        while parts <= self._most_parts(whole[2]):
            found.append(_justified(in_two if parts == 2 else self._in_parts(whole, parts)))
            if _time_s(found[-1]) > _WORTH * _time_s(best):
                break
            best, parts = found[-1], 2 * parts
        return found

    def _worth_s(self, best_s: float) -> float:
        """Return the time that a schedule must come below to be of use."""
        return best_s if self._request.decided_over_links else math.inf

    def _may_gain_in_parts(self, schedule: Schedule, worth_s: float) -> bool:
        """Return whether some number of parts has a lower bound below ``worth_s``."""
        parts = self._most_parts(schedule)
        while parts > 1:
            if least_s(schedule, parts) < worth_s:
                return True
            parts //= 2
        return False

    def _most_parts(self, schedule: Schedule) -> int:
        """Return the largest power of two into which each chunk may be cut; 1 if none."""
        parts, least_bytes = _MOST_PARTS, smallest_bytes(self._request.network) / _FINER
        while parts > 1:
            _, chunk_bytes = cut_again(self._request, schedule.collective, parts)
            if schedule.sends * parts <= _MOST_SENDS and chunk_bytes >= least_bytes:
                break
            parts //= 2
        return parts

    def _in_parts(self, found: Found, parts: int) -> Found:
        """Return the schedule pipelined, each chunk in ``parts`` parts."""
        _, plan, schedule = found
        shape, chunk_bytes = cut_again(self._request, schedule.collective, parts)
        finer = pipelined(schedule, shape, chunk_bytes)
        return replay(finer).time_s, replace(plan, shape=shape, chunk_bytes=chunk_bytes), finer


@contextmanager
def _threads(count: int) -> Iterator[Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]]:
    """Yield a ``map`` whose calls run on ``count`` threads, so that compiled loops run side by side."""
    if count <= 1:
        yield map
        return
    executor = ThreadPoolExecutor(count)
    try:
        yield executor.map
    finally:
        executor.shutdown(cancel_futures=True)


def _is_for_owners(schedule: Schedule) -> bool:
    """Return whether mixtures by owner take the plans of a schedule: its chunks are few."""
    shape = schedule.collective
    return not schedule.exchanges and (shape.chunks <= _OWNED * shape.ranks or shape.share == 1)


def _justified(found: Found, below_s: float = math.inf) -> Found:
    _, plan, schedule = found
    better = justified(schedule, below_s)
    return replay(better).time_s, plan, better


def _time_s(found: Found) -> float:
    return found[0]
