"""The result of planning: the best schedule, proven and bounded, and how it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from probes.base import Progress
from synth.msccl import granule_bytes
from synth.mscclpp import ExecutionPlan
from synth.portfolio.incumbent import Attempt
from synth.program import Program
from synth.schedules import AnySchedule, Race, Schedule

__all__ = ["Loaded", "LoadedPoint", "LoadedRange", "RaceRunner", "RaceWinner", "Synthesis"]


@dataclass(frozen=True, eq=False)
class Loaded:
    """The program, or the plan of MSCCL++, of a schedule that ``runtime`` can load.

    ``unrestricted_percent`` is how near the fastest schedule of all is to the bound; ``limit`` says why the
    runtime cannot load it ("" if it can). ``links_percent`` is how near the fastest schedule that loads is to
    the bound; by the costs of the runtime another one may be faster, which then is taken. ``tried`` counts
    the schedules that were compiled. ``instances`` parallel copies share each chunk. ``time_s`` is the time
    by the costs of the runtime (0 if unknown). Only a plan in which switches sum and copy has no program.
    """

    runtime: str
    program: Program | None
    plan: ExecutionPlan | None
    unrestricted_percent: float
    limit: str
    links_percent: float
    tried: int
    instances: int = 1
    time_s: float = 0.0

    @property
    def granule_bytes(self) -> int:
        """The bytes of which a buffer must have a multiple."""
        return _granule_bytes(self.plan, self.program)


@dataclass(frozen=True)
class LoadedPoint:
    """One size: percent of the bound as loaded and without the runtime's limits.

    ``limit`` and ``time_s`` are as in Loaded.
    """

    size_bytes: int
    percent_of_optimal: float
    unrestricted_percent: float
    limit: str
    time_s: float = 0.0


@dataclass(frozen=True, eq=False)
class LoadedRange:
    """A range of sizes, and the program, or the plan of MSCCL++, that a runtime loads for it.

    Both state the range. ``instances`` is the number of parallel copies that share each chunk.
    """

    from_bytes: int
    to_bytes: int
    method: str
    instances: int
    program: Program
    plan: ExecutionPlan | None
    points: tuple[LoadedPoint, ...]

    @property
    def granule_bytes(self) -> int:
        """The bytes of which a buffer must have a multiple."""
        return _granule_bytes(self.plan, self.program)


def _granule_bytes(plan: ExecutionPlan | None, program: Program | None) -> int:
    """Return the granule of a plan, or of a program that has no plan."""
    if plan is not None:
        return plan.granule_bytes
    assert program is not None
    return granule_bytes(program)


@dataclass(frozen=True)
class Synthesis:
    """The best schedule, proven and bounded, and everything that was tried.

    ``synthesis_s`` is the time of the search, ``proof_s`` the time of the bounds and the checker.
    ``peak_bytes`` is the peak memory of this process, ``workers_bytes`` the peak memory of its workers.
    ``why`` says why the schedule was kept. ``candidates`` counts the schedules that a sweep timed at every
    size. ``loaded`` is what a runtime loads, if the request names one; for a sweep, ``ranges`` are what it
    loads for each range. ``any_order_s`` is the time of the best schedule that may add up in any order, if
    the request fixes one.
    """

    schedule: AnySchedule
    attempts: tuple[Attempt, ...]
    synthesis_s: float
    proof_s: float
    why: str
    peak_bytes: int
    workers_bytes: int = 0
    candidates: int = 0
    loaded: Loaded | None = None
    ranges: tuple[LoadedRange, ...] = ()
    any_order_s: float | None = None

    @property
    def listed(self) -> Schedule:
        """The schedule as a table of all sends."""
        return self.schedule.expanded()


@dataclass(frozen=True)
class RaceWinner:
    """The fastest schedule of one size, by its number, and the race that it won.

    ``library`` names the library whose own collective was faster, "" for none.
    """

    number: int
    library: str
    race: Race


class RaceRunner(Protocol):
    """Runs schedules in turn on ranks, and finds the fastest."""

    def __call__(
        self, sizes: Sequence[tuple[int, Sequence[Schedule]]], progress: Progress
    ) -> Sequence[RaceWinner]:
        """Return the winner of each of ``sizes``, which are (bytes, schedules)."""
