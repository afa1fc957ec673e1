"""The fastest schedules that a runtime can load: MSCCL's or RCCL's interpreter, or MSCCL++'s executor.

The planner's schedules are compiled one after the other, the fastest first, until one is within all limits of
the runtime and proven by its rules. A sweep does so at each size and makes a file for each range of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import numpy as np

from probes.base import SILENT, Progress, UsageError, first_of, gc_paused, plural
from synth.collective import collective
from synth.compiler import lower
from synth.errors import NotApplicableError
from synth.methods import host_halving
from synth.msccl import TARGETS
from synth.portfolio.plain import fastest_plain, library_schedules
from synth.portfolio.proof import proven_with
from synth.portfolio.request import Request
from synth.portfolio.runtime_limits import chunk_limit, early_limit, grid_of, require_runtime
from synth.portfolio.runtime_sizes import runtime_sweep
from synth.portfolio.runtime_variants import INSTANCES, Variant, variant_of, variant_of_schedule, variants_of
from synth.portfolio.size_sweep import Candidates, candidates_of
from synth.portfolio.synthesis import Loaded, LoadedPoint, LoadedRange, Synthesis
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.program import SENDS, Program
from synth.schedules import Schedule, Selection, UnsizedSchedule
from synth.simulation import Costs, replay, simulate_program

__all__ = ["fastest_loadable", "loadable_among", "loadable_sweep"]

# Compiling and judging more sends takes many seconds for each candidate.
_MOST_SENDS = 40_000
# The first _MOST_RUN schedules, and later ones with fewer sends, are compared by the costs of a runtime. Over
# links alone, each takes at most _NEAR times as long as the fastest, those with fewer sends _NEAR_IN_FEWER.
# On dgx-1 at 64 KiB a schedule with fewer sends took 22 instead of 116 us, and 75 instead of 282 one that was
# 17 % slower over links (benchmarks/loadable.py). A schedule that is only compared has at most
# _MOST_RUN_SENDS sends: more take seconds to compile.
_MOST_RUN, _NEAR, _NEAR_IN_FEWER, _MOST_RUN_SENDS = 6, 1.125, 1.25, 10_000
# The most sends of a schedule whose messages are merged. A schedule of this size (512 ranks, one lap) takes
# two seconds to compile and two to check.
_MOST_MERGED_SENDS = 600_000
# A plan takes O(messages²) bits of memory: more messages would take gigabytes.
_MOST_MESSAGES = 40_000
# The numbers of overlapping laps to try with merged messages (`synth.methods.host_halving`). On dgx-h100:4 at
# 64 MiB, 1 lap reached 50 % of the bound, 4 laps 77 %; more laps take more operations.
_LAPS = (8, 4, 2, 1)
_T = TypeVar("_T")
# A plan of 10,000 sends takes 10 s to make, and a sweep makes those of several sizes.
_MOST_SWEPT_PLAN_SENDS = 4_000
_NO_RANGES = "plans in which switches sum and copy are made for one size, not for ranges"


def fastest_loadable(
    request: Request, progress: Progress = SILENT, pools: WorkerPools = ProcessPool
) -> Synthesis:
    """Return the fastest schedule for one size that the request's runtime can load, proven and compiled.

    Raises UsageError for an unknown runtime, and if no schedule fits: the message then names the limits.
    """
    require_runtime(request.runtime)
    kept: list[Schedule] = []
    fastest = fastest_plain(request, progress, kept.append, pools=pools)
    return loadable_among(request, fastest, kept, progress)


@gc_paused()
def loadable_among(
    request: Request, fastest: Synthesis, kept: Sequence[Schedule], progress: Progress = SILENT
) -> Synthesis:
    """Return the fastest of a search's schedules that the request's runtime can load, proven and compiled.

    ``kept`` are all schedules that the search found. They must load at the request's size; without one, each
    at as many bytes as its chunks have. If none of them loads, messages are merged, or one of the libraries'
    algorithms is taken, which have fewer peers. Raises UsageError if none of these loads.
    """
    best, runtime, size_bytes = fastest.listed, request.runtime, request.size_bytes
    # The best is proven, and so no longer the object that was kept.
    others = [(_time_s(one), number, one) for number, one in enumerate(kept) if one.link is not best.link]
    candidates = [best, *(one for *_, one in sorted(others))]
    # The search may prefer another schedule to the fastest over links alone.
    free_s = min([_time_s(best), *(time_s for time_s, *_ in others)])
    limits: dict[str, str] = {}
    for tried, (schedule, merging, slower) in enumerate(_to_compile(request, candidates), start=1):
        verb = "merging the messages of" if merging else "compiling"
        progress.update(tried, max(tried, len(candidates)), f"{verb} {schedule.method} for {runtime}")
        made = _compiled(schedule, runtime, _size_of(schedule, size_bytes), merging=merging)
        if made.variant is not None:
            limit = next(iter(limits.values()), "")
            found = _synthesis(fastest, schedule, runtime, made.variant, free_s, limit, tried)
            if merging:
                return _timed_as_merged(found, made.variant)
            return _as_run(found, made.variant, slower, size_bytes, progress)
        limits.setdefault(f"{_named(schedule)}{' in merged messages' if merging else ''}", made.limit)
    raise _none_loads(runtime, len(candidates), limits)


def _to_compile(
    request: Request, candidates: Sequence[Schedule]
) -> Iterator[tuple[Schedule, bool, Sequence[Schedule]]]:
    """Yield (schedule, whether its messages are merged, the slower schedules of its kind) to try in turn."""
    for at, schedule in enumerate(candidates, start=1):
        yield schedule, False, candidates[at:]
    for schedule in _in_few_messages(candidates[0]):
        yield schedule, True, ()
    if request.method != "auto":
        return
    # The search ends at the bound, often with sends to more peers than a runtime takes.
    libraries = sorted(library_schedules(request, merging=True), key=_time_s)
    for merging in (False, True):
        for at, schedule in enumerate(libraries, start=1):
            yield schedule, merging, libraries[at:]


def _size_of(schedule: Schedule, size_bytes: int | None) -> int:
    """Return the size that was asked for; without one, the bytes of a schedule's chunks."""
    return schedule.collective.total_bytes(schedule.chunk_bytes) if size_bytes is None else size_bytes


def _as_run(
    found: Synthesis,
    only: Variant,
    others: Sequence[Schedule],
    asked_bytes: int | None,
    progress: Progress,
) -> Synthesis:
    """Return the result with the program that its runtime carries out fastest, by the runtime's costs.

    A threadblock moves less than a link carries, so a schedule of fewer chunks in several instances is often
    faster. ``only`` is the loaded schedule in one instance. ``others`` ascend by time over links alone; those
    that take hardly longer are compared with the loaded schedule.
    """
    loaded, schedule = found.loaded, found.listed
    assert loaded is not None
    tried = _compared(schedule, others)
    runs: list[_Run] = []
    for number, one in enumerate(tried):
        progress.update(number + 1, len(tried), f"timing {one.method} by the costs of {loaded.runtime}")
        known = [only] if number == 0 else []
        counts = INSTANCES[1:] if number == 0 else INSTANCES
        at_bytes = _size_of(one, asked_bytes)
        variants = chain(known, variants_of(one, loaded.runtime, at_bytes, counts, _MOST_RUN_SENDS))
        runs += _runs(number, one, variants, at_bytes)
    fastest = _fastest_proven(runs)
    if fastest is None:
        return found
    time_s, number, count, variant = fastest
    made = replace(loaded, program=variant.program, plan=variant.plan, instances=count, time_s=time_s)
    if number == 0:
        return replace(found, loaded=made)
    assert schedule.outcome is not None
    proven = proven_with(replace(tried[number], seed=schedule.seed), schedule.outcome.bounds)
    return replace(found, schedule=proven, why=f"the fastest in {loaded.runtime}", loaded=made)


def _compared(schedule: Schedule, others: Sequence[Schedule]) -> list[Schedule]:
    """Return the schedules whose runs are compared: those near in time, and one that switches carry out.

    An operation of a switch costs a runtime no more than one of the sends that it replaces. On two hosts one
    that takes 1.8 times as long over links does 1 MiB in 77 instead of 110 us by the costs of MSCCL++.
    """
    tried = _worth_running([schedule, *others], lambda one: (_time_s(one), one.sends))
    by_switches = [one for one in others if one.uses_switches and all(one is not other for other in tried)]
    return tried + sorted(by_switches, key=lambda one: one.sends)[:1]


_Run = tuple[float, int, int, Variant]
"""(seconds by the runtime's costs, number of the schedule, instances, the variant with its protocol)."""


def _runs(number: int, schedule: Schedule, variants: Iterable[Variant], at_bytes: int) -> Iterator[_Run]:
    """Yield the run of each variant of a schedule that loads at a size, with its fastest protocol."""
    size_bytes, links_s = schedule.collective.total_bytes(schedule.chunk_bytes), _time_s(schedule)
    for variant in variants:
        if not variant.limit_at(at_bytes):
            times = variant.times_s(schedule.network, size_bytes)
            protocol = min(times, key=times.__getitem__)
            # A runtime takes no less time than the links, but its costs were fitted apart.
            yield max(times[protocol], links_s), number, variant.instances, variant.by(protocol)


def _fastest_proven(runs: Iterable[_Run]) -> _Run | None:
    """Return the fastest run whose variant its judge accepts; None if there is none."""
    ascending = sorted(runs, key=lambda run: run[:3])
    return next((run for run in ascending if not run[-1].findings), None)


def _worth_running(ascending: Sequence[_T], cost: Callable[[_T], tuple[float, int]]) -> list[_T]:
    """Return the fastest schedule, the next ones near it, and each later one with fewer sends than these.

    ``ascending`` is ordered by time over links; ``cost`` is (this time, sends). A schedule that takes longer
    over links and saves no sends is seldom faster in a run.
    """
    kept = [ascending[0]]
    least_s, fewest = cost(kept[0])
    for one in ascending[1:]:
        time_s, sends = cost(one)
        if time_s > _NEAR_IN_FEWER * least_s:
            break
        if (len(kept) < _MOST_RUN and time_s <= _NEAR * least_s) or sends < fewest:
            kept.append(one)
            fewest = min(fewest, sends)
    return kept[: 2 * _MOST_RUN]


def _in_few_messages(best: Schedule) -> Iterator[Schedule]:
    """Yield all_reduces whose messages can be merged, with most laps first; none for other requests."""
    shape, network = best.collective, best.network
    if shape.kind != "all_reduce" or not shape.whole:
        return
    size_bytes = shape.total_bytes(best.chunk_bytes)
    each = 2 * (network.ranks - 1) * network.ranks
    for laps in sorted({max(1, min(most, _MOST_MERGED_SENDS // each)) for most in _LAPS}, reverse=True):
        whole = collective("all_reduce", network.ranks, network.ranks * laps)
        with suppress(NotApplicableError):
            yield host_halving.synthesize(network, whole, -(-size_bytes // whole.chunks), seed=best.seed)


def _timed_as_merged(found: Synthesis, made: Variant) -> Synthesis:
    """Return the result with the time of merged messages, which arrive as a whole."""
    loaded, schedule = found.loaded, found.listed
    outcome = schedule.outcome
    assert outcome is not None
    assert loaded is not None
    assert made.program is not None
    time_s = _merged_time_s(made.program, schedule)
    if made.plan is not None:
        size_bytes = schedule.collective.total_bytes(schedule.chunk_bytes)
        (run_s,) = made.times_s(schedule.network, size_bytes).values()
        loaded = replace(loaded, time_s=max(run_s, time_s))
    timed = replace(schedule, outcome=replace(outcome, time_s=time_s, status="feasible"))
    return replace(found, schedule=timed, why=f"{found.why}, in merged messages", loaded=loaded)


def _merged_time_s(program: Program, schedule: Schedule) -> float:
    """Return the time of a schedule whose messages a program merges."""
    return simulate_program(program, schedule.network, schedule.chunk_bytes, Costs(step_s=0.0)).time_s


def loadable_sweep(
    request: Request, progress: Progress = SILENT, pools: WorkerPools = ProcessPool
) -> Synthesis:
    """Return the fastest loadable schedules for the sizes of a request, compiled for ranges of sizes.

    They also get the best number of instances and, for an interpreter of MSCCL XML, the best protocol. Raises
    UsageError for an unknown runtime, and if no schedule fits: the message then names the limits.
    """
    runtime = request.runtime
    require_runtime(runtime)
    found = candidates_of(request, progress, pools=pools)
    compiled = _Compiled(found, runtime)
    for at, size in enumerate(found.sizes):
        progress.update(at, len(found.sizes), f"compiling for {runtime}")
        compiled.fastest(size)
    if not compiled.usable:
        return compiled.merged(progress)
    winners = []
    for at, own in enumerate(found.own):
        progress.update(at, len(found.sizes), f"timing by the costs of {runtime}")
        winners.append((compiled.winner(found.sizes[at], own), "", None))
    swept = found.decided(winners)
    selection = swept.schedule
    assert isinstance(selection, Selection)
    return replace(swept, ranges=tuple(compiled.timed(selection, progress)))


@dataclass(frozen=True)
class _Attempt:
    """A schedule as a runtime loads it, or the limit that forbids it."""

    variant: Variant | None
    limit: str = ""


def _compiled(
    schedule: Schedule, runtime: str, size_bytes: int | None = None, *, merging: bool = False
) -> _Attempt:
    """Compile a schedule for the runtime, at a size if one is given, or return the limit that forbids it.

    With ``merging``, messages of adjacent chunks become one.
    """
    grid = 0
    if size_bytes is not None and (limit := chunk_limit(schedule.collective, runtime, size_bytes)):
        grid = grid_of(schedule.collective, runtime, size_bytes)
        if not grid:
            return _Attempt(None, limit)
    if merging:
        # No receive is fused with the next send: they seldom have the same number of chunks.
        chunks = schedule.collective.chunks
        most = TARGETS[runtime].chunks_a_step if runtime in TARGETS else chunks
        most = max(1, most // -(-grid // chunks)) if grid else most
        program = lower(schedule, most_chunks=most, fuse=False, grid=grid)
        messages = int(np.array(SENDS)[program.op].sum())
        if messages > _MOST_MESSAGES:
            return _Attempt(None, f"{messages} messages, and at most {_MOST_MESSAGES} are compiled")
        variant, limit = variant_of(program, schedule.network, runtime)
    else:
        limit = early_limit(schedule, runtime)
        if not limit and schedule.sends > _MOST_SENDS:
            limit = f"{schedule.sends} sends, and at most {_MOST_SENDS} are compiled"
        if limit:
            return _Attempt(None, limit)
        variant, limit = variant_of_schedule(schedule, runtime, grid=grid)
    if variant is not None:
        limit = variant.limit_at(size_bytes) if size_bytes is not None else ""
        limit = limit or next(iter(variant.findings), "")
    return _Attempt(None, limit) if limit else _Attempt(variant)


@dataclass(frozen=True, eq=False)
class _Compiled:
    """The candidates of a sweep as a runtime loads them; each is compiled once, when it is first needed."""

    found: Candidates
    runtime: str
    # The keys are the number of the candidate, and the number of chunks that a size asks for, or 0.
    attempts: dict[tuple[int, int], _Attempt] = field(default_factory=dict)
    # The keys are the number of the candidate, and the grid of each number of instances.
    _variants: dict[tuple[int, ...], list[Variant]] = field(default_factory=dict)

    @property
    def usable(self) -> list[int]:
        """The numbers of the candidates that were compiled and load."""
        return sorted({number for (number, _), one in self.attempts.items() if one.variant is not None})

    def usable_at(self, size_bytes: int) -> list[int]:
        """Return those of ``usable`` that load at a size; if none does, all, as other sizes are near."""
        return [number for number in self.usable if not self.limit(number, size_bytes)] or self.usable

    def winner(self, size_bytes: int, own: Sequence[int]) -> int:
        """Return the candidate that the runtime carries out fastest at a size, of those found for it.

        As for one size alone, those that take hardly longer over links than the fastest that loads are
        compared. If none of ``own`` loads, the fastest that does is returned.
        """
        race = self.found.race
        loads = [one for one in own if not self._never(one)]
        order = sorted(loads, key=lambda one: race.time_s(one, size_bytes))
        first = next((at for at, one in enumerate(order) if not self.limit(one, size_bytes)), None)
        fallback, _ = self.fastest(size_bytes)
        assert fallback is not None  # some candidate loads
        if first is None:
            return fallback
        tried = _worth_running(
            order[first:], lambda one: (race.time_s(one, size_bytes), race.candidates[one].sends)
        )
        runs: list[_Run] = []
        for number in tried:
            schedule = race.scheduled(number, size_bytes)
            runs += _runs(number, schedule, self.variants(number, schedule, size_bytes), size_bytes)
        fastest = _fastest_proven(runs)
        return fallback if fastest is None else fastest[1]

    def variants(self, number: int, schedule: Schedule, size_bytes: int) -> list[Variant]:
        """Return a candidate in each number of instances, in the chunks that suit a size."""
        grids = (grid_of(schedule.collective.cut(count), self.runtime, size_bytes) for count in INSTANCES)
        key = (number, *grids)
        if key not in self._variants:
            most = _MOST_SWEPT_PLAN_SENDS if self.runtime == "mscclpp" else _MOST_RUN_SENDS
            made = variants_of(schedule, self.runtime, size_bytes, INSTANCES, most)
            self._variants[key] = list(made)
        return self._variants[key]

    def _never(self, number: int) -> bool:
        """Return whether no range of sizes can have the candidate: switches carry it out."""
        return len(self.found.race.candidates[number].multimem) > 0

    def fastest(self, size_bytes: int) -> tuple[int | None, str]:
        """Return (the fastest candidate that loads at a size, the limit of the fastest of all, or "").

        If none loads at this size, it is the fastest that loads at others.
        """
        limit, race = "", self.found.race
        order = sorted(range(len(race.candidates)), key=lambda one: race.time_s(one, size_bytes))
        for at_bytes in (size_bytes, None):
            for number in order:
                forbids = self.limit(number, at_bytes)
                if not forbids:
                    return number, limit
                limit = limit or forbids
        return None, limit

    def limit(self, number: int, size_bytes: int | None) -> str:
        """Return the limit that forbids a candidate, at a size if one is given; "" if none."""
        race, grid = self.found.race, 0
        if size_bytes is not None:
            shape = race.candidates[number].collective
            grid = grid_of(shape, self.runtime, size_bytes)
            if not grid and (limit := chunk_limit(shape, self.runtime, size_bytes)):
                return limit
        if (number, grid) not in self.attempts:
            schedule, at_bytes = race.scheduled(number, self.found.sizes[-1]), size_bytes if grid else None
            self.attempts[number, grid] = (
                _Attempt(None, _NO_RANGES)
                if schedule.uses_switches
                else _compiled(schedule, self.runtime, at_bytes)
            )
        made = self.attempts[number, grid]
        if made.variant is None or size_bytes is None:
            return made.limit
        return made.variant.limit_at(size_bytes)

    def limits(self) -> Mapping[str, str]:
        """Return the limit of each candidate that does not load, by its name."""
        return {
            _named(self.found.race.candidates[number]): one.limit
            for (number, _), one in self.attempts.items()
            if one.limit
        }

    def merged(self, progress: Progress) -> Synthesis:
        """Return one schedule in merged messages for all sizes; raises UsageError if none loads."""
        found, limits = self.found, dict(self.limits())
        race, largest = found.race, found.sizes[-1]
        fastest = min(range(len(race.candidates)), key=lambda one: race.time_s(one, largest))
        for tried, schedule in enumerate(_in_few_messages(race.scheduled(fastest, largest)), start=1):
            progress.update(tried, len(_LAPS) + 1, f"merging the messages of {schedule.method}")
            made = _compiled(schedule, self.runtime, merging=True)
            if made.variant is not None:
                number = race.add(schedule)
                self.attempts[number, 0] = made
                swept = found.chosen(self.usable_at)
                selection = swept.schedule
                assert isinstance(selection, Selection)
                return replace(swept, ranges=(self._merged_range(selection, made.variant),))
            limits.setdefault(f"{_named(schedule)} in merged messages", made.limit)
        raise _none_loads(self.runtime, len(race.candidates), limits)

    def _merged_range(self, selection: Selection, made: Variant) -> LoadedRange:
        """Return the range of all sizes of a selection, with its only program."""
        (one,) = selection.ranges
        sizes = [point.size_bytes for point in selection.points]
        ranged = made.within(one.from_bytes, one.to_bytes)
        assert ranged.program is not None
        return LoadedRange(
            one.from_bytes,
            one.to_bytes,
            selection.algorithms[one.algorithm].method,
            1,
            ranged.program,
            ranged.plan,
            tuple(self._point(selection, one.algorithm, size, made.program) for size in sizes),
        )

    def timed(self, selection: Selection, progress: Progress) -> list[LoadedRange]:
        """Return the program of each range, with the protocol and instances that suit its sizes."""
        found = []
        for entry in runtime_sweep(selection, self.runtime, instances=INSTANCES, progress=progress):
            assert entry.program is not None  # one instance of each of these schedules loads
            points = [
                self._point(selection, entry.algorithm, one.size_bytes, run_s=one.time_s)
                for one in entry.points
            ]
            found.append(
                LoadedRange(
                    entry.from_bytes,
                    entry.to_bytes,
                    entry.method,
                    entry.instances,
                    entry.program,
                    entry.plan,
                    tuple(points),
                )
            )
        return found

    def _point(
        self,
        selection: Selection,
        algorithm: int,
        size_bytes: int,
        merged: Program | None = None,
        run_s: float = 0.0,
    ) -> LoadedPoint:
        """Return how near to the bound a schedule of the selection is at a size, and the best schedule."""
        race = self.found.race
        bound_s = next(one.bound_s for one in selection.points if one.size_bytes == size_bytes)
        schedule = selection.algorithms[algorithm].scheduled(selection.network, size_bytes)
        time_s = replay(schedule).time_s if merged is None else _merged_time_s(merged, schedule)
        least_s = min(race.time_s(number, size_bytes) for number in range(len(race.candidates)))
        percent, free = (100 * min(1.0, bound_s / each) if each else 100.0 for each in (time_s, least_s))
        # The runtime's costs may have chosen a schedule that is not in the race and is faster.
        limit, run_s = self.fastest(size_bytes)[1], max(run_s, time_s) if run_s else 0.0
        return LoadedPoint(size_bytes, percent, max(percent, free), limit, run_s)


def _named(one: Schedule | UnsizedSchedule) -> str:
    return f"{one.method} with {plural(one.collective.chunks, 'chunk')}"


def _none_loads(runtime: str, candidates: int, limits: Mapping[str, str]) -> UsageError:
    reasons = [f"{name}: {limit}" for name, limit in limits.items()]
    return UsageError([f"{runtime} can load none of {candidates} schedules", *first_of(reasons, 4, "limit")])


def _synthesis(
    fastest: Synthesis,
    schedule: Schedule,
    runtime: str,
    made: Variant,
    free_s: float,
    limit: str,
    tried: int,
) -> Synthesis:
    """Return the search result with the program; if the fastest does not load, ``schedule`` replaces it.

    ``free_s`` is the least time of all schedules, whether they load or not.
    """
    outcome = fastest.listed.outcome
    assert outcome is not None
    free = replace(outcome, time_s=free_s).percent_of_optimal
    proven = (
        proven_with(replace(schedule, seed=fastest.listed.seed), outcome.bounds) if limit else fastest.listed
    )
    assert proven.outcome is not None
    by_links = proven.outcome.percent_of_optimal
    loaded = Loaded(runtime, made.program, made.plan, free, limit, by_links, tried)
    if not limit:
        return replace(fastest, loaded=loaded)
    why = f"the fastest that {runtime} can load"
    return replace(fastest, schedule=proven, why=why, loaded=loaded)


def _time_s(schedule: Schedule) -> float:
    return replay(schedule).time_s
