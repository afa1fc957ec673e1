"""The breakdown of one measured run: the predicted time, and the parts of the measured time.

The parts follow the critical path: the waits that delayed the slowest rank, from its end back to its start.
Their sum is the time of the run. The parts of a forecast add up to the predicted time in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "GROUPS",
    "Breakdown",
    "Busy",
    "Forecast",
    "Part",
    "PartKind",
    "Placement",
    "RankTimes",
    "link_name",
    "parts_of",
]

Placement = Literal["out of place", "in place"]
PartKind = Literal["late", "link", "port", "memory", "copy", "add", "core", "step", "rest"]
# Groups of kinds to compare between prediction and measurement. A prediction does not distinguish copies from
# sums.
GROUPS: dict[str, tuple[PartKind, ...]] = {
    "late ranks": ("late",),
    "links": ("link",),
    "ports": ("port",),
    "memory": ("memory", "copy", "add"),
    "cores": ("core",),
    "steps": ("step",),
    "rest": ("rest",),
}


@dataclass(frozen=True)
class Part:
    """Seconds of one kind in one place.

    *late*: until rank ``where`` began. *link*: the link carries the awaited message. *port*: other links use
    a port of that link. *copy*, *add*: the rank moves or adds bytes in memory; *memory*: both. *core*: the
    rank could go on but has no core. *step*: the rank passes from step to step, and notices messages. *rest*:
    none of these.
    """

    kind: PartKind
    where: str
    time_s: float


def parts_of(spent: Mapping[tuple[PartKind, str], float]) -> tuple[Part, ...]:
    """Return seconds by kind and place as parts, the longest first."""
    found = (Part(kind, where, time_s) for (kind, where), time_s in spent.items() if time_s)
    return tuple(sorted(found, key=lambda part: (-part.time_s, part.kind, part.where)))


def link_name(source: int, target: int) -> str:
    """Return the name of a link in reports."""
    return f"{source} -> {target}"


@dataclass(frozen=True)
class Forecast:
    """The predicted time and its terms, beside the proven bound; ``parts`` add up to ``time_s``.

    ``schedule_s`` counts transfers alone, one at a time at each port. ``steps_s`` is the cost of steps at the
    ranks. ``sharing_s`` is the effect of concurrent transfers at shared ports, negative where they are
    faster. ``memory_s`` is the time of copies and sums, 0 if they were not measured.
    """

    network: str
    bound: str
    bound_s: float
    schedule_s: float
    steps_s: float
    sharing_s: float
    memory_s: float
    parts: tuple[Part, ...]

    @property
    def time_s(self) -> float:
        """The predicted seconds."""
        return self.schedule_s + self.steps_s + self.sharing_s + self.memory_s


@dataclass(frozen=True)
class Busy:
    """A link between hosts, or a port: the bytes that it carried, and its seconds at the network's rates."""

    kind: Literal["link", "port"]
    where: str
    carried_bytes: int
    needed_s: float


@dataclass(frozen=True)
class RankTimes:
    """The time of one rank, from the start of the first rank to its own end; the fields add up to it.

    ``late_s``: it began later than the first. ``waiting_s``: it waited for messages, or until its own were
    read. ``core_s``: it could go on but had no core. ``other_s``: steps that move nothing, and polling.
    """

    rank: int
    late_s: float
    waiting_s: float
    copying_s: float
    adding_s: float
    core_s: float
    other_s: float

    @property
    def time_s(self) -> float:
        """The seconds from the start of the first rank to the end of this one."""
        return sum((self.late_s, self.waiting_s, self.copying_s, self.adding_s, self.core_s, self.other_s))


@dataclass(frozen=True)
class Breakdown:
    """The parts of the time of one run, whose slowest rank took the time nearest to the median.

    ``parts`` add up to ``time_s``. They are empty if the executor keeps no log; ``why_empty`` then says why.
    Clocks of different hosts may differ by ``clock_error_s``, so parts that span two hosts may be wrong by as
    much. ``busy`` lists links and ports between hosts, the busiest first. Without a network ``forecast`` is
    None and ``busy`` is empty.
    """

    placement: Placement
    iteration: int
    time_s: float
    slowest_rank: int
    forecast: Forecast | None
    parts: tuple[Part, ...]
    ranks: tuple[RankTimes, ...]
    busy: tuple[Busy, ...] = ()
    clock_error_s: float = 0.0
    why_empty: str = ""
