"""The size sweep: it finds candidates at each size, times all at every size, and keeps the fastest.

Neighbouring sizes with the same winner become one range. Between two winners, a bisection finds the size at
which their times cross.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from probes.base import SILENT, Progress, UsageError, plural
from synth.check import check
from synth.compiler import lower
from synth.network import Network
from synth.portfolio.memory_limits import peak_bytes
from synth.portfolio.plain import bounds_of, fastest_plain, library_schedules
from synth.portfolio.request import Request
from synth.portfolio.runtime_limits import early_limit
from synth.portfolio.synthesis import RaceRunner, Synthesis
from synth.portfolio.variants import RequestVariant, in_regular_order
from synth.portfolio.worker_pool import ProcessPool, WorkerPools
from synth.prediction import MOST_SENDS, predicted_s
from synth.program import Program
from synth.schedules import Bound, Point, Race, Range, Schedule, Selection, UnsizedSchedule
from synth.simulation import replay

__all__ = ["Candidates", "candidates_of", "sizes_between", "sweep", "timed"]

# Candidates are sought at each size, so a factor close to 1 would take too long.
_MOST_SIZES = 1000
# A candidate that takes more than this many times as long as the best of its own size is dropped.
_HOPELESS = 2.0
# An algorithm that saves less than this share of the time does not replace the last size's algorithm.
_WORTH_A_SWITCH = 0.005
# The crossing of two winners is found to within 1 / _CROSSING of the size.
_CROSSING = 64
# Less work than this stays in this process, because a new process takes more than a second to start.
_WORTH_PROCESSES_S = 4.0


def sizes_between(low_bytes: int, high_bytes: int, factor: float = 2.0) -> tuple[int, ...]:
    """Return the sizes ``low · factor^n`` below ``high``, then ``high``.

    Raises UsageError if the arguments do not ascend or make too many sizes.
    """
    if not 1 <= low_bytes <= high_bytes:
        raise UsageError(f": expected FROM:TO that rises, found {low_bytes}:{high_bytes}", argument="sizes")
    if not factor > 1:
        raise UsageError(f": expected more than 1, found {factor:g}", argument="factor")
    if math.log(high_bytes / low_bytes) / math.log(factor) > _MOST_SIZES:
        raise UsageError(f"factor {factor:.10g} makes more than the {_MOST_SIZES} sizes that fit in a sweep")
    found, size = [], float(low_bytes)
    while size < high_bytes:
        found.append(int(size))
        size = max(size * factor, size + 1)
    return (*found, high_bytes)


def sweep(
    request: Request,
    progress: Progress = SILENT,
    race: RaceRunner | None = None,
    pools: WorkerPools = ProcessPool,
) -> Synthesis:
    """Return the selection for the sizes of a request, by predicted times or by the times of a ``race``.

    Timing is O(sizes · candidates · sends). If ``time_limit_s`` ends before a size is searched, that size
    uses the candidates found at other sizes. Methods that solve integer programs take part only if requested
    by name. Raises as ``fastest_plain`` does, and RuntimeError if the checker refuses a winner, which is a
    bug.
    """
    found = candidates_of(request, progress, library=race is not None, pools=pools)
    if race is not None:
        won = race([(size, found.at(size)) for size in found.sizes], progress)
        return found.decided([(one.number, one.library, one.race) for one in won])
    return found.chosen(lambda _: range(len(found.race.candidates)))


@dataclass(frozen=True, eq=False)
class Candidates:
    """The schedules found at every size of a sweep, and the proven bound of each size.

    ``own`` are the numbers of those that were found at each size.
    """

    sizes: tuple[int, ...]
    bounds: tuple[Bound, ...]
    own: tuple[tuple[int, ...], ...]
    race: _Race
    begun_s: float
    workers_bytes: int

    def at(self, size_bytes: int) -> list[Schedule]:
        """Return every candidate as a schedule for this size, in the order of their numbers."""
        return [self.race.scheduled(number, size_bytes) for number in range(len(self.race.candidates))]

    def chosen(self, among: Callable[[int], Collection[int]]) -> Synthesis:
        """Return the checked selection of the fastest at each size, among the candidates given for it."""
        winners = self.race.winners(self.sizes, among)
        ranges = tuple(_ranges(self.race, self.sizes, winners))
        points = [(*each, None) for each in zip(self.sizes, winners, self.bounds, strict=True)]
        return self.swept(_selection(self.race, ranges, points))

    def decided(self, winners: Sequence[tuple[int, str, Race | None]]) -> Synthesis:
        """Return the checked selection of each size's winner: (number, faster library or "", race).

        Ranges meet at the geometric mean of two sizes, because nothing was timed between them.
        """
        sizes, chosen = self.sizes, [(number, library) for number, library, _ in winners]
        switches = [0, *(at for at in range(1, len(chosen)) if chosen[at] != chosen[at - 1])]
        starts = [sizes[0], *(math.isqrt(sizes[at - 1] * sizes[at]) + 1 for at in switches[1:])]
        ends = [*(start - 1 for start in starts[1:]), sizes[-1]]
        ranges = tuple(
            Range(start, end, *chosen[at]) for start, end, at in zip(starts, ends, switches, strict=True)
        )
        points = [
            (size, number, bound, race)
            for size, (number, _, race), bound in zip(sizes, winners, self.bounds, strict=True)
        ]
        return self.swept(_selection(self.race, ranges, points))

    def swept(self, selection: Selection) -> Synthesis:
        """Return the checked selection as a Synthesis, with the time and memory that it took."""
        found_s = time.perf_counter()
        proven, count = _require_proof(selection), len(self.race.candidates)
        proof_s = time.perf_counter() - found_s
        why = f"the fastest at each size of {plural(count, 'candidate')}"
        return Synthesis(
            proven, (), found_s - self.begun_s, proof_s, why, peak_bytes(), self.workers_bytes, count
        )


def candidates_of(
    request: Request,
    progress: Progress = SILENT,
    *,
    library: bool = False,
    pools: WorkerPools = ProcessPool,
) -> Candidates:
    """Return the candidates of every size; with ``library``, the algorithms of libraries, too.

    They are planned with the ranks in a regular order, if the network has one.
    """
    begun_s = time.perf_counter()
    sizes = tuple(sorted(request.sizes))
    here = request.method == "auto" and request.network.is_measured_host
    at_each_size = replace(request, sizes=(), solving=False, sweeping=True, predicted=here)
    variant = in_regular_order(at_each_size)
    inner = at_each_size if variant is None else variant.request
    explored, workers_bytes = _all_explored(inner, sizes, progress, pools)
    if variant is not None:
        explored = [_restored(one, variant, request.network) for one in explored]
    found = [[(_digest(one), one) for one in each.found] for each in explored]
    pool = dict(chain.from_iterable(found))
    if library:
        libraries = library_schedules(replace(at_each_size, size_bytes=sizes[-1]))
        algorithms = [_algorithm(replace(one, seed=request.seed)) for one in libraries]
        pool |= {_digest(one): one for one in algorithms}
    if here:
        # Runs of thousands of messages are not predicted, as in `soonest`: they cost more than they gain.
        pool = {digest: one for digest, one in pool.items() if one.sends <= MOST_SENDS} or pool
    number = {digest: place for place, digest in enumerate(pool)}
    own = tuple(tuple(dict.fromkeys(number[key] for key, _ in each if key in number)) for each in found)
    race = _Race(request.network, tuple(pool.values()), predicted=here)
    progress.update(len(sizes), len(sizes))
    return Candidates(sizes, tuple(one.bound for one in explored), own, race, begun_s, workers_bytes)


def _restored(explored: _Explored, variant: RequestVariant, network: Network) -> _Explored:
    """Return what was found for a variant of a request as found on the request's network."""
    found = tuple(
        _algorithm(variant.restored(one.scheduled(variant.request.network, 1), network))
        for one in explored.found
    )
    return replace(explored, found=found, bound=variant.named_back(explored.bound))


def timed(selection: Selection) -> Selection:
    """Return the same selection with the time of each point simulated again."""
    points = tuple(
        replace(
            one,
            time_s=replay(
                selection.algorithms[one.algorithm].scheduled(selection.network, one.size_bytes)
            ).time_s,
        )
        for one in selection.points
    )
    return replace(selection, points=points)


@dataclass(frozen=True)
class _Explored:
    """The search at one size: its bound, the candidates found, and the peak memory of the workers."""

    bound: Bound
    found: tuple[UnsizedSchedule, ...] = ()
    workers_bytes: int = 0


def _all_explored(
    request: Request, sizes: Sequence[int], progress: Progress, pools: WorkerPools
) -> tuple[list[_Explored], int]:
    """Search at each size; return the results and the peak memory of the workers.

    The largest size is searched first, to estimate how long the others take.
    """
    begun_s, worked_before_s = time.perf_counter(), time.thread_time()
    limit_s = request.time_limit_s
    deadline_s = float("inf") if limit_s is None else begun_s + limit_s
    requests = [replace(request, size_bytes=size, time_limit_s=None, jobs=0) for size in sizes]
    last = replace(requests[-1], jobs=request.jobs, time_limit_s=limit_s and limit_s / 2)
    found = {len(sizes) - 1: _explored(last, pools)}
    rest = range(len(sizes) - 1)
    workers_bytes = found[len(sizes) - 1].workers_bytes
    # Processor time counts, as on a busy machine little work takes long; that of workers is not known here.
    each_s = time.perf_counter() - begun_s if workers_bytes else time.thread_time() - worked_before_s
    if request.jobs and (each_s * len(rest) > _WORTH_PROCESSES_S and (request.jobs > 1 or limit_s)):
        with pools(request.jobs, _explored) as pool:
            for at in rest:
                pool.submit(requests[at])
            while len(pool.finished) < len(rest) and time.perf_counter() < deadline_s:
                progress.update(len(pool.finished) + 1, len(sizes), f"{request.jobs} sizes at once")
                pool.wait(deadline_s)
            found |= pool.finished
        workers_bytes = max(workers_bytes, pool.peak_bytes)
    else:
        for at in rest:
            if time.perf_counter() < deadline_s:
                progress.update(at + 1, len(sizes), f"{sizes[at]} bytes")
                found[at] = _explored(requests[at])
    explored = [found[at] if at in found else _Explored(_bound(one)) for at, one in enumerate(requests)]
    return explored, workers_bytes


def _bound(request: Request) -> Bound:
    return max(bounds_of(request), key=lambda bound: bound.time_s)


def _explored(request: Request, pools: WorkerPools = ProcessPool) -> _Explored:
    """Search at the request's size; candidates slower than ``_HOPELESS`` times the best are dropped.

    For a runtime, slow candidates are kept, because the runtime may load none of the fast ones. Candidates
    that it clearly cannot load are dropped, except the best.
    """
    kept: list[Schedule] = []
    synthesis = fastest_plain(request, keep=kept.append, pools=pools)
    best = synthesis.schedule.outcome
    assert best is not None
    if request.runtime:
        hopeful = [synthesis.listed, *(one for one in kept if not early_limit(one, request.runtime))]
    else:
        hopeful = [one for one in kept if replay(one).time_s <= best.time_s * _HOPELESS]
    found = tuple(_algorithm(replace(one, seed=request.seed)) for one in hopeful)
    return _Explored(best.binding, found, synthesis.workers_bytes)


def _algorithm(one: Schedule) -> UnsizedSchedule:
    columns = (one.chunk, one.link, one.op, one.stream, one.addend_start, one.addend, one.multimem)
    return UnsizedSchedule(one.method, one.seed, one.collective, *columns)


class _Race:
    """Compares candidates at any size by simulated time; if ``predicted``, by the predicted time of a run."""

    def __init__(
        self, network: Network, candidates: tuple[UnsizedSchedule, ...], *, predicted: bool = False
    ) -> None:
        self.network = network
        self._predicted = predicted
        self._programs: dict[int, Program] = {}
        self._predictions: dict[tuple[int, int], float] = {}
        self._known: dict[tuple[int, int], float] = {}
        self.candidates = candidates

    def add(self, schedule: Schedule) -> int:
        """Add a candidate; return its number."""
        self.candidates = (*self.candidates, _algorithm(schedule))
        return len(self.candidates) - 1

    def time_s(self, candidate: int, size_bytes: int) -> float:
        key = (candidate, size_bytes)
        if key not in self._known:
            self._known[key] = replay(self.scheduled(candidate, size_bytes)).time_s
        return self._known[key]

    def cost_s(self, candidate: int, size_bytes: int) -> float:
        """Return the seconds that decide: predicted if possible, else simulated."""
        if not self._predicted or self.candidates[candidate].sends > MOST_SENDS:
            return self.time_s(candidate, size_bytes)
        key = (candidate, size_bytes)
        if key not in self._predictions:
            schedule = self.scheduled(candidate, size_bytes)
            if candidate not in self._programs:
                self._programs[candidate] = lower(schedule)
            program = self._programs[candidate]
            self._predictions[key] = predicted_s(program, self.network, schedule.chunk_bytes)
        return self._predictions[key]

    def scheduled(self, candidate: int, size_bytes: int) -> Schedule:
        return self.candidates[candidate].scheduled(self.network, size_bytes)

    def winners(self, sizes: Sequence[int], among: Callable[[int], Collection[int]]) -> list[int]:
        """Return the winner at each size; the last size's winner stays unless another is notably faster."""
        found: list[int] = []
        for size in sizes:
            able = among(size)
            before = found[-1] if found and found[-1] in able else None
            found.append(self.winner(size, able, before))
        return found

    def winner(self, size_bytes: int, among: Collection[int], before: int | None) -> int:
        best = min(among, key=lambda one: (self.cost_s(one, size_bytes), self.candidates[one].sends, one))
        if before is None:
            return best
        worth_s = self.cost_s(before, size_bytes) * (1 - _WORTH_A_SWITCH)
        return best if self.cost_s(best, size_bytes) < worth_s else before


def _ranges(race: _Race, sizes: Sequence[int], winners: Sequence[int]) -> Iterator[Range]:
    """Yield one range for each run of the same winner, from one crossing to the next."""
    finalists = tuple(dict.fromkeys(winners))
    switches = [(sizes[0], winners[0])]
    for at in range(1, len(sizes)):
        low, high = (sizes[at - 1], winners[at - 1]), (sizes[at], winners[at])
        switches += _crossings(race, finalists, low, high, max(1, sizes[at - 1] // _CROSSING))
    ends = [size - 1 for size, _ in switches[1:]]
    for (start, winner), end in zip(switches, [*ends, sizes[-1]], strict=True):
        yield Range(start, end, winner)


def _crossings(
    race: _Race, finalists: Sequence[int], low: tuple[int, int], high: tuple[int, int], step: int
) -> list[tuple[int, int]]:
    """Return (size, winner) of each change of winner after ``low`` and up to ``high``, by bisection.

    ``low`` and ``high`` are (size, winner), too. Crossings closer than ``step`` bytes are merged.
    """
    if low[1] == high[1]:
        return []
    if high[0] - low[0] <= step:
        return [high]
    size = (low[0] + high[0]) // 2
    middle = (size, race.winner(size, finalists, low[1]))
    below = _crossings(race, finalists, low, middle, step)
    return below + _crossings(race, finalists, middle, high, step)


def _selection(
    race: _Race, ranges: tuple[Range, ...], points: Sequence[tuple[int, int, Bound, Race | None]]
) -> Selection:
    """Return the selection of the algorithms that win somewhere, numbered in the order of their ranges."""
    used = dict.fromkeys(one.algorithm for one in ranges)
    number = {candidate: place for place, candidate in enumerate(used)}
    return Selection(
        network=race.network,
        algorithms=tuple(race.candidates[candidate] for candidate in used),
        ranges=tuple(replace(one, algorithm=number[one.algorithm]) for one in ranges),
        points=tuple(
            Point(size, number[winner], race.time_s(winner, size), bound.time_s, bound.name, measurement)
            for size, winner, bound, measurement in points
        ),
    )


def _require_proof(selection: Selection) -> Selection:
    for one in selection.ranges:
        schedule = selection.choose(one.from_bytes)
        if findings := check(schedule):
            raise RuntimeError(f"{schedule.method} made a wrong schedule: {findings[0]}")
    return selection


def _digest(algorithm: UnsizedSchedule) -> str:
    """Return a digest that is equal for equal tables of sends, whichever method made them."""
    found = hashlib.sha256(repr((algorithm.collective.kind, algorithm.collective.chunks)).encode())
    moves = (algorithm.chunk, algorithm.link, algorithm.op, algorithm.stream)
    for column in (*moves, algorithm.addend_start, algorithm.addend, algorithm.multimem):
        found.update(column.tobytes())
    return found.hexdigest()
