"""The result of planning: the best schedule, proven and bounded, and how it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from probes.base import Progress
from synth.portfolio.incumbent import Attempt
from synth.schedules import AnySchedule, Race, Schedule

__all__ = ["RaceRunner", "RaceWinner", "Synthesis"]


@dataclass(frozen=True)
class Synthesis:
    """The best schedule, proven and bounded, and everything that was tried.

    ``synthesis_s`` is what the search took, ``proof_s`` what the bounds and the judge took, ``peak_bytes``
    the most memory that this process held, ``workers_bytes`` what its workers did. ``why`` says why the
    schedule was kept. ``candidates`` counts those that a sweep timed at every size.
    """

    schedule: AnySchedule
    attempts: tuple[Attempt, ...]
    synthesis_s: float
    proof_s: float
    why: str
    peak_bytes: int
    workers_bytes: int = 0
    candidates: int = 0

    @property
    def listed(self) -> Schedule:
        """The table of all its sends: the schedule itself, where such a one was asked for."""
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
    """Runs schedules in turn on ranks, and says which was the fastest."""

    def __call__(
        self, sizes: Sequence[tuple[int, Sequence[Schedule]]], progress: Progress
    ) -> Sequence[RaceWinner]:
        """Return the winner of each size, given in bytes with its schedules."""
