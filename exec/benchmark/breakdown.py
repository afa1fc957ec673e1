"""The breakdown of one measured run: what was predicted, and what each part of its time went to.

The parts are those of the critical path: whatever the slowest rank waited for last, back to its start.
Together they are the time of the run, as those of a forecast are the predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
# What belongs together where predicted is compared with measured: a prediction knows memory as a whole.
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

    *late*: until the rank ``where`` began. *link*: the link carries what is waited for. *port*: others use
    a port of that link. *copy*, *add*: the rank moves or adds bytes in memory; *memory*: both. *core*: it has
    no core while it could go on. *step*: it passes from step to step, and notices messages. *rest*: none of
    these.
    """

    kind: PartKind
    where: str
    time_s: float


def parts_of(spent: Mapping[tuple[PartKind, str], float]) -> tuple[Part, ...]:
    """Return seconds by kind and place as parts, the longest first."""
    found = (Part(kind, where, time_s) for (kind, where), time_s in spent.items() if time_s)
    return tuple(sorted(found, key=lambda part: (-part.time_s, part.kind, part.where)))


def link_name(source: int, target: int) -> str:
    """Return a link as reports name it."""
    return f"{source} -> {target}"


@dataclass(frozen=True)
class Forecast:
    """The predicted time, from the proven bound on; ``parts`` are it.

    ``schedule_s`` are transfers alone, of which a port carries one at a time; ``steps_s`` comes with what a
    step costs a rank, ``sharing_s`` (less than 0 where that is faster) with transfers that slow each other
    down at ports, ``memory_s`` with copies and sums, 0 where they were not measured.
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
    """A link between hosts, or a port: what it carried, and the seconds that takes by the network's rates."""

    kind: Literal["link", "port"]
    where: str
    carried_bytes: int
    needed_s: float


@dataclass(frozen=True)
class RankTimes:
    """What one rank did from when the first one began until it was through itself: these seconds together.

    ``late_s`` it began later than the first; ``waiting_s`` it waited for messages, or until they were read;
    ``core_s`` it had no core while it could go on; ``other_s`` are steps that move nothing, and polling.
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
        """From when the first rank began until this one was through."""
        return sum((self.late_s, self.waiting_s, self.copying_s, self.adding_s, self.core_s, self.other_s))


@dataclass(frozen=True)
class Breakdown:
    """Where the time of one run went: that whose slowest rank took the time nearest to the median of all.

    ``parts`` add up to ``time_s``. Where the executor keeps no log there are none; ``why_empty`` says so.
    Clocks of different hosts may be ``clock_error_s`` apart, and parts between them wrong by as much.
    ``busy`` are links and ports between hosts, the busiest first. Without a network there is no ``forecast``,
    and ``busy`` is empty.
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

    def problems(self) -> Iterator[tuple[str, float]]:
        """Yield (path, value) of every time that is not finite."""
        for path, value in self._seconds():
            if not math.isfinite(value):
                yield path, value

    def _seconds(self) -> Iterator[tuple[str, float]]:
        yield "time_s", self.time_s
        yield "clock_error_s", self.clock_error_s
        for at, part in enumerate(self.parts):
            yield f"parts[{at}].time_s", part.time_s
        for at, own in enumerate(self.ranks):
            for name in sorted({*RankTimes.__dataclass_fields__} - {"rank"}):
                yield f"ranks[{at}].{name}", getattr(own, name)
        for at, one in enumerate(self.busy):
            yield f"busy[{at}].needed_s", one.needed_s
        if (told := self.forecast) is not None:
            for name in ("bound_s", "schedule_s", "steps_s", "sharing_s", "memory_s"):
                yield f"forecast.{name}", getattr(told, name)
            for at, part in enumerate(told.parts):
                yield f"forecast.parts[{at}].time_s", part.time_s
