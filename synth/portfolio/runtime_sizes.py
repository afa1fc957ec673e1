"""The best program of a selection for each buffer size, for a runtime that loads schedules.

Each schedule is compiled with 1, 2, 4 and 8 instances. Each variant within the runtime's limits is timed by
the runtime's costs with each protocol, at each size of the selection. Neighbouring sizes with the same winner
become one range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from probes.base import SILENT, Progress
from synth.mscclpp import ExecutionPlan
from synth.portfolio.runtime_limits import grid_of, require_runtime
from synth.portfolio.runtime_variants import INSTANCES, Variant, variants_of
from synth.program import Program, Protocol
from synth.schedules import Selection

__all__ = ["SizedProgram", "Timed", "runtime_sweep"]

# A program that gains less than this does not replace the program of the next smaller size.
_WORTH_A_SWITCH = 0.005


@dataclass(frozen=True)
class Timed:
    """The times at one size: ``time_s`` of the range's program, ``plain_s`` of the fastest plain program.

    A plain program has one instance and the protocol Simple. If there is none, ``plain_s`` is ``time_s``.
    """

    size_bytes: int
    time_s: float
    plain_s: float


@dataclass(frozen=True, eq=False)
class SizedProgram:
    """A range of sizes and its program, which also states the range and the protocol.

    ``plan`` is the program as MSCCL++ loads it, None for other runtimes. ``program`` is None if no schedule
    fits the runtime's limits, or if a library was measured to be faster; ``why`` gives the reason.
    ``algorithm`` is the schedule's number in the selection, -1 for none.
    """

    from_bytes: int
    to_bytes: int
    program: Program | None
    plan: ExecutionPlan | None
    method: str
    instances: int
    points: tuple[Timed, ...]
    algorithm: int = -1
    why: str = ""


@dataclass(frozen=True)
class _Choice:
    """A schedule of the selection, by its number, with instances, chunks and protocol."""

    algorithm: int
    instances: int
    chunks: int
    protocol: Protocol


_Variants = dict[tuple[int, int, int], Variant]
"""The variants of schedules, by (schedule, instances, chunks)."""


def runtime_sweep(
    selection: Selection,
    target: str = "msccl",
    *,
    instances: Sequence[int] = INSTANCES,
    progress: Progress = SILENT,
) -> list[SizedProgram]:
    """Return the entries for all sizes of a selection, ascending.

    O(sizes · schedules · instances · steps). ``instances`` must ascend. Raises UsageError if ``target`` is no
    known runtime.
    """
    require_runtime(target)
    variants = _variants(selection, target, instances)
    found: list[tuple[int, _Choice | None, Timed | None, str]] = []
    before: _Choice | None = None
    for at, point in enumerate(selection.points):
        progress.update(at, len(selection.points), f"{point.size_bytes} bytes")
        library = selection.library(point.size_bytes)
        loading = {key: one for key, one in variants.items() if not one.limit_at(point.size_bytes)}
        # If no plan has a chunk size for this size, the range may still have other sizes that load.
        best = None if library else _best(selection, loading or dict(variants), point.size_bytes, before)
        if best is None:
            why = f"{library} is faster" if library else f"no schedule fits {target}"
            found.append((point.size_bytes, None, None, why))
            before = None
            continue
        before, timed = best
        found.append((point.size_bytes, before, timed, ""))
    return list(_entries(selection, variants, found))


def _variants(selection: Selection, target: str, instances: Sequence[int]) -> _Variants:
    """Return the variants of all schedules that load, for each number of chunks that some size asks for."""
    sizes, found = [point.size_bytes for point in selection.points], _Variants()
    for number, algorithm in enumerate(selection.algorithms):
        schedule = algorithm.scheduled(selection.network, sizes[-1])
        cut = [schedule.collective.cut(count) for count in instances]
        examples = {tuple(grid_of(shape, target, size) for shape in cut): size for size in sizes}
        for size_bytes in examples.values():
            for variant in variants_of(schedule, target, size_bytes, instances):
                chunks = 0 if variant.program is None else variant.program.collective.chunks
                found[number, variant.instances, chunks] = variant
    return found


def _best(
    selection: Selection, variants: _Variants, size_bytes: int, before: _Choice | None
) -> tuple[_Choice, Timed] | None:
    """Return the fastest choice at one size that its judge accepts; None if there is none.

    The choice for the next smaller size, ``before``, stays if it is hardly slower.
    """
    while variants:
        choice, timed = _fastest(selection, variants, size_bytes, before)
        key = choice.algorithm, choice.instances, choice.chunks
        if not variants[key].findings:
            return choice, timed
        del variants[key]
    return None


def _fastest(
    selection: Selection, variants: _Variants, size_bytes: int, before: _Choice | None
) -> tuple[_Choice, Timed]:
    """Return the fastest choice at one size, or ``before`` if ``before`` is hardly slower."""
    times = {
        _Choice(number, count, chunks, protocol): time_s
        for (number, count, chunks), variant in variants.items()
        for protocol, time_s in variant.times_s(selection.network, size_bytes).items()
    }
    best = min(times, key=lambda one: (times[one], one.instances, one.algorithm, one.protocol))
    if before in times and times[before] * (1 - _WORTH_A_SWITCH) <= times[best]:
        best = before
    plain_s = min(
        (time_s for one, time_s in times.items() if (one.instances, one.protocol) == (1, "Simple")),
        default=times[best],
    )
    return best, Timed(size_bytes, times[best], plain_s)


def _entries(
    selection: Selection,
    variants: _Variants,
    found: Sequence[tuple[int, _Choice | None, Timed | None, str]],
) -> Iterator[SizedProgram]:
    """Yield one entry for each run of sizes with the same choice; ranges meet at geometric means."""
    runs = [list(run) for _, run in groupby(found, key=lambda one: (one[1], one[3]))]
    starts = [found[0][0]]
    for one, other in pairwise(runs):
        starts.append(math.isqrt(one[-1][0] * other[0][0]))
    ends = [*(start - 1 for start in starts[1:]), found[-1][0]]
    for start, end, run in zip(starts, ends, runs, strict=True):
        choice, why = run[0][1], run[0][3]
        points = tuple(timed for _, _, timed, _ in run if timed is not None)
        if choice is None:
            yield SizedProgram(start, end, None, None, "", 0, points, why=why)
            continue
        number, count = choice.algorithm, choice.instances
        made = variants[number, count, choice.chunks].by(choice.protocol).within(start, end)
        method = selection.algorithms[number].method
        yield SizedProgram(start, end, made.program, made.plan, method, count, points, number)
