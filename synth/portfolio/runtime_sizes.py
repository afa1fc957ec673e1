"""The best program of a selection for each buffer size, for a runtime that executes MSCCL's XML.

Each schedule is compiled with 1, 2, 4 and 8 instances, which have their own channels. Each program within the
runtime's limits is simulated with each protocol at each size of the selection (GC3 Sec. 4.3 and 5.3.2; costs
in ``synth.simulation.protocols``). Neighbouring sizes with the same winner become one range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from probes.base import SILENT, Progress
from synth.compiler import lower
from synth.msccl import beyond
from synth.program import Program, Protocol
from synth.schedules import Schedule, Selection
from synth.simulation import PROTOCOLS, time_by

__all__ = ["INSTANCES", "SizedProgram", "Timed", "programs_of", "runtime_sweep"]

# The numbers of instances to try.
INSTANCES = (1, 2, 4, 8)
# A V100, the smallest GPU of such runtimes, has this many multiprocessors (GC3 Sec. 4.4).
_MOST_THREADBLOCKS = 80
# Programs of more steps are left out: simulating one takes seconds for each size.
_MOST_STEPS = 200_000
# A program that gains less than this does not replace that of the next smaller size.
_WORTH_A_SWITCH = 0.005


@dataclass(frozen=True)
class Timed:
    """The times at one size: of the range's program, and of the fastest with Simple and one instance."""

    size_bytes: int
    time_s: float
    plain_s: float


@dataclass(frozen=True, eq=False)
class SizedProgram:
    """A range of sizes and its program, which also states the range and the protocol.

    ``program`` is None if no schedule fits the runtime's limits, or if a library was measured to be faster;
    ``why`` gives the reason. ``algorithm`` is the schedule's number in the selection, -1 for none.
    """

    from_bytes: int
    to_bytes: int
    program: Program | None
    method: str
    instances: int
    points: tuple[Timed, ...]
    algorithm: int = -1
    why: str = ""


@dataclass(frozen=True)
class _Choice:
    """A schedule of the selection, by its number, with instances and protocol."""

    algorithm: int
    instances: int
    protocol: Protocol


def runtime_sweep(
    selection: Selection,
    target: str = "msccl",
    *,
    instances: Sequence[int] = INSTANCES,
    as_selected: bool = False,
    progress: Progress = SILENT,
) -> list[SizedProgram]:
    """Return the entries for all sizes of a selection, ascending.

    O(sizes · schedules · instances · steps). ``instances`` must ascend. With ``as_selected`` each size keeps
    the schedule that the selection has for it, and only protocol and instances are chosen. Raises UsageError
    if ``target`` is no known runtime.
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
        able = {
            key: program for key, program in programs.items() if not as_selected or key[0] == point.algorithm
        }
        choice, timed = _best(selection, able, point.size_bytes, before)
        found.append((point.size_bytes, choice, timed, ""))
        before = choice
    return list(_entries(selection, programs, found))


def _programs(selection: Selection, target: str, instances: Sequence[int]) -> dict[tuple[int, int], Program]:
    """Return the programs within the runtime's limits, by (schedule, instances).

    Programs of more than one instance also fit the smallest GPU.
    """
    return {
        (number, count): program
        for number, algorithm in enumerate(selection.algorithms)
        for count, program in programs_of(
            algorithm.scheduled(selection.network, selection.points[-1].size_bytes), target, instances
        )
    }


def programs_of(
    schedule: Schedule, target: str, instances: Sequence[int] = INSTANCES, most_steps: int = _MOST_STEPS
) -> Iterator[tuple[int, Program]]:
    """Yield (instances, program) of a schedule within the runtime's limits, in ascending order."""
    for count in instances:
        if schedule.sends * count > most_steps:
            return
        program = lower(schedule, instances=count)
        if beyond(program, target) or (count > 1 and program.threadblocks_max > _MOST_THREADBLOCKS):
            return
        yield count, program


def _best(
    selection: Selection,
    programs: dict[tuple[int, int], Program],
    size_bytes: int,
    before: _Choice | None,
) -> tuple[_Choice, Timed]:
    """Return the fastest choice at one size; that of the smaller size, ``before``, if it is hardly slower."""
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
            yield SizedProgram(start, end, None, "", 0, points, why=why)
            continue
        program = programs[choice.algorithm, choice.instances]
        named = f"{program.name} {choice.protocol} x{choice.instances}"
        program = replace(program, protocol=choice.protocol, min_bytes=start, max_bytes=end, name=named)
        method = selection.algorithms[choice.algorithm].method
        yield SizedProgram(start, end, program, method, choice.instances, points, choice.algorithm)
