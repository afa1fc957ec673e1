"""The cost of going without late ranks: the times of both phases (AdapCC, Sec. IV-C).

The paper divides the volume S that a primitive moves by B, the total bandwidth of the links in the
communication graph. With n of N ranks ready and tensors of T bytes:

| collective               | S of phase 1      | S of phase 2                         |
|--------------------------|-------------------|--------------------------------------|
| all_reduce               | 2(n - 1)T         | (N - n)T: each late rank broadcasts  |
| reduce_scatter           | (n - 1)T          | (N - n)T                             |
| reduce                   | T                 | (N - n)T                             |
| all_to_all               | nT                | (N - n)T                             |
| all_gather               | n/N · (N - 1)T    | (N - n)/N · (N - 1)T                 |
| all_to_next              | n/N · (N - 1)T    | (N - n)/N · (N - 1)T                 |
| gather                   | n/N · T           | (N - n)/N · T                        |
| broadcast, scatter       | T                 | nothing                              |

The first, fourth and last rows are the paper's; the others follow from them. T is the larger of a rank's send
and receive buffer. `SimulatedCosts` simulates the schedules of both phases instead. Unlike S/B, a simulation
accounts for latency, how often a byte is forwarded, and which link is the bottleneck.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from exec.stragglers.late_base import late_bases
from probes.base import UsageError
from synth.relays import fastest_late_phase, has_data, late_schedule, partial_schedule, taking_part
from synth.schedules import Schedule
from synth.simulation import replay

__all__ = [
    "CollectiveCosts",
    "ConstantCosts",
    "CostsOfSchedule",
    "PhaseTimes",
    "SimulatedCosts",
    "VolumeCosts",
]

_Share = Callable[[int, int], float]
# For n of N ranks ready: the volumes of phase 1 and phase 2, in tensors.
_VOLUMES: dict[str, tuple[_Share, _Share]] = {
    "all_reduce": (lambda n, of: 2.0 * (n - 1), lambda n, of: of - n),
    "reduce_scatter": (lambda n, of: n - 1.0, lambda n, of: of - n),
    "reduce": (lambda n, of: 1.0, lambda n, of: of - n),
    "all_to_all": (lambda n, of: float(n), lambda n, of: of - n),
    "all_gather": (lambda n, of: n / of * (of - 1), lambda n, of: (of - n) / of * (of - 1)),
    "all_to_next": (lambda n, of: n / of * (of - 1), lambda n, of: (of - n) / of * (of - 1)),
    "gather": (lambda n, of: n / of, lambda n, of: (of - n) / of),
    "broadcast": (lambda n, of: 1.0, lambda n, of: 0.0),
    "scatter": (lambda n, of: 1.0, lambda n, of: 0.0),
}


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of phase 1 with the ready ranks, and of phase 2 with the others."""

    one_s: float
    two_s: float

    @property
    def buy_s(self) -> float:
        """The cost of going on without the late ranks."""
        return self.one_s + self.two_s


class CollectiveCosts(Protocol):
    """The costs of a collective, whole and in phases."""

    @property
    def whole_s(self) -> float:
        """Seconds of the collective of all ranks."""

    @property
    def has_phases(self) -> bool:
        """Whether the times of the two phases are known separately, which the completion needs."""

    def phases(self, ready: frozenset[int]) -> PhaseTimes:
        """Return the times with these ranks ready; phase 1's is infinite if none has data."""


@dataclass(frozen=True)
class ConstantCosts:
    """The costs of textbook ski rental: going always costs ``buy_s``, and the whole collective is free."""

    buy_s: float
    whole_s: float = 0.0
    has_phases: bool = False

    def phases(self, ready: frozenset[int]) -> PhaseTimes:
        return PhaseTimes(self.buy_s, 0.0)


class CostsOfSchedule(ABC):
    """Costs derived from a schedule, cached by ready set."""

    has_phases = True

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.ranks = taking_part(schedule)
        self.whole_s = self._one_s(self.ranks)
        self._known: dict[frozenset[int], PhaseTimes] = {}

    def phases(self, ready: frozenset[int]) -> PhaseTimes:
        if ready not in self._known:
            late = self.ranks - ready
            one_s = self._one_s(ready) if has_data(self.schedule, ready) else math.inf
            two_s = self._two_s(late) if has_data(self.schedule, late) else 0.0
            self._known[ready] = PhaseTimes(one_s, two_s)
        return self._known[ready]

    @abstractmethod
    def _one_s(self, ready: frozenset[int]) -> float:
        """Return the seconds of phase 1 with these ranks ready, at least one of which has data."""

    @abstractmethod
    def _two_s(self, late: frozenset[int]) -> float:
        """Return the seconds of phase 2 with these ranks late, at least one of which has data."""


class SimulatedCosts(CostsOfSchedule):
    """The simulated times of the schedules of both phases.

    Phase 2 uses the fastest of ``bases``. By default these are the schedules of `late_bases` for one late
    rank, or for two if more are late.
    """

    def __init__(self, schedule: Schedule, bases: Sequence[Schedule] | None = None) -> None:
        self._bases = bases
        self._by_count: dict[int, Sequence[Schedule]] = {}
        super().__init__(schedule)

    def _one_s(self, ready: frozenset[int]) -> float:
        return replay(partial_schedule(self.schedule, ready)).time_s

    def _two_s(self, late: frozenset[int]) -> float:
        bases = self._bases
        if bases is None:
            count = min(2, len(late))
            if count not in self._by_count:
                self._by_count[count] = late_bases(self.schedule, late=count)
            bases = self._by_count[count]
        return replay(fastest_late_phase(bases, late).schedule).time_s


class VolumeCosts(CostsOfSchedule):
    """S/B as in the paper, with B over the links that the schedule of a phase uses, relays included.

    Raises UsageError for collectives of unknown volume: custom ones, and several at once.
    """

    def __init__(self, schedule: Schedule) -> None:
        collective = schedule.collective
        if collective.kind not in _VOLUMES:
            raise UsageError(
                f": expected one of {', '.join(_VOLUMES)}, found {collective.label}",
                hint="Simulate its phases instead.",
                argument="schedule",
            )
        self._tensor_bytes = collective.total_bytes(schedule.chunk_bytes)
        super().__init__(schedule)

    def _one_s(self, ready: frozenset[int]) -> float:
        return self._seconds(0, len(ready), partial_schedule(self.schedule, ready))

    def _two_s(self, late: frozenset[int]) -> float:
        return self._seconds(1, len(self.ranks) - len(late), late_schedule(self.schedule, late, "copy"))

    def _seconds(self, phase: int, ready: int, carried_by: Schedule) -> float:
        """Return volume over bandwidth; 0 if no link is needed."""
        tensors = _VOLUMES[self.schedule.collective.kind][phase](ready, len(self.ranks))
        links = np.unique(carried_by.link)
        if not len(links):
            return 0.0
        bytes_per_s = float((1.0 / carried_by.network.beta_s_per_byte[links]).sum())
        return tensors * self._tensor_bytes / bytes_per_s
