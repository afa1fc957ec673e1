"""A selection for a runtime that runs MSCCL's XML: for each size the schedule, protocol and instances.

Every schedule of a selection is compiled in so many instances, each with channels of its own, and every
program that the runtime takes is timed by every protocol at every size of the sweep (GC3 Sec. 4.3 and 5.3.2;
costs in ``synth.simulation.protocols``). Sizes next to each other with the same winner become one range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from probes.progress import SILENT, Progress
from synth.compiler.lower import lower
from synth.msccl.limits import beyond
from synth.program import Program, Protocol
from synth.selection import Selection
from synth.simulation.protocols import PROTOCOLS, time_by

__all__ = ["INSTANCES", "Entry", "Timed", "runtime_sweep"]

INSTANCES = (1, 2, 4, 8)
# As many as the smallest GPU of such runtimes, a V100, has multiprocessors (GC3 Sec. 4.4).
_MOST_THREADBLOCKS = 80
# Simulating more steps takes seconds a size.
_MOST_STEPS = 200_000
# Below this gain a runtime keeps the program of the sizes before.
_WORTH_A_SWITCH = 0.005


@dataclass(frozen=True)
class Timed:
    """One size: what the range's program takes by its protocol, and the best by Simple with one instance."""

    size_bytes: int
    time_s: float
    plain_s: float


@dataclass(frozen=True, eq=False)
class Entry:
    """A range of sizes and its program, which names it (``min_bytes`` … ``max_bytes``) and its protocol.

    ``program`` is None where the runtime takes none of the schedules, or a library was measured to be
    faster, and ``why`` says so.
    """

    from_bytes: int
    to_bytes: int
    program: Program | None
    method: str
    instances: int
    points: tuple[Timed, ...]
    why: str = ""


@dataclass(frozen=True)
class _Choice:
    """A schedule of the selection, so many instances of it, and a protocol."""

    algorithm: int
    instances: int
    protocol: Protocol


def runtime_sweep(
    selection: Selection,
    target: str = "msccl",
    *,
    instances: Sequence[int] = INSTANCES,
    progress: Progress = SILENT,
) -> list[Entry]:
    """The entries for all sizes of a selection, rising; O(sizes · schedules · instances · steps).

    Raises UsageError for a runtime that is not known.
    """
    programs = _programs(selection, target, instances)
    found: list[tuple[int, _Choice | None, Timed | None, str]] = []
    before: _Choice | None = None
    for at, point in enumerate(selection.points):
        progress.update(at, len(selection.points), f"{point.size_bytes} bytes")
        library = selection.library(point.size_bytes)
        if library or not programs:
            why = f"{library} is faster" if library else f"no schedule fits {target}"
            found.append((point.size_bytes, None, None, why))
            before = None
            continue
        choice, timed = _best(selection, programs, point.size_bytes, before)
        found.append((point.size_bytes, choice, timed, ""))
        before = choice
    return list(_entries(selection, programs, found))


def _programs(selection: Selection, target: str, instances: Sequence[int]) -> dict[tuple[int, int], Program]:
    """By (schedule, instances) the programs that the runtime takes."""
    found = {}
    for number, algorithm in enumerate(selection.algorithms):
        schedule = algorithm.scheduled(selection.network, selection.points[-1].size_bytes)
        for count in instances:
            if schedule.sends * count > _MOST_STEPS:
                break
            program = lower(schedule, instances=count)
            if beyond(program, target) or program.threadblocks_max > _MOST_THREADBLOCKS:
                break
            found[number, count] = program
    return found


def _best(
    selection: Selection,
    programs: dict[tuple[int, int], Program],
    size_bytes: int,
    before: _Choice | None,
) -> tuple[_Choice, Timed]:
    """The fastest choice at one size, or that of the size before where another gains next to nothing."""
    network = selection.network
    times = {
        _Choice(number, count, protocol): time_by(protocol, program, network, size_bytes)
        for (number, count), program in programs.items()
        for protocol in PROTOCOLS
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
    programs: dict[tuple[int, int], Program],
    found: Sequence[tuple[int, _Choice | None, Timed | None, str]],
) -> Iterator[Entry]:
    """One entry for each run of the same choice; two meet at the geometric mean of their sizes."""
    runs = [list(run) for _, run in groupby(found, key=lambda one: (one[1], one[3]))]
    starts = [found[0][0]]
    for one, other in pairwise(runs):
        starts.append(math.isqrt(one[-1][0] * other[0][0]))
    ends = [*(start - 1 for start in starts[1:]), found[-1][0]]
    for start, end, run in zip(starts, ends, runs, strict=True):
        choice, why = run[0][1], run[0][3]
        points = tuple(timed for _, _, timed, _ in run if timed is not None)
        if choice is None:
            yield Entry(start, end, None, "", 0, points, why)
            continue
        program = programs[choice.algorithm, choice.instances]
        named = f"{program.name} {choice.protocol} x{choice.instances}"
        program = replace(program, protocol=choice.protocol, min_bytes=start, max_bytes=end, name=named)
        method = selection.algorithms[choice.algorithm].method
        yield Entry(start, end, program, method, choice.instances, points)
