"""The selection artifact: the best schedule for each range of sizes.

A schedule is an order of sends, which is valid for chunks of any number of bytes. So the selection keeps each
order once, and ``choose`` sets the bytes of a chunk for a size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from probes.base import Bytes, Floats, Ints, ints, plural
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.schedules.protocol import Obligation, Workload
from synth.schedules.schedule import MOST_CHUNK_BYTES, Outcome, Race, Schedule, Timing, claims

__all__ = ["Point", "Range", "Selection", "UnsizedSchedule"]


@dataclass(frozen=True, eq=False)
class UnsizedSchedule:
    """A schedule without its network and the bytes of its chunks, with the columns of `Schedule`."""

    method: str
    seed: int
    collective: Collective
    chunk: Ints
    link: Ints
    op: Bytes
    stream: Ints = field(default_factory=lambda: ints([]))
    addend_start: Ints = field(default_factory=lambda: ints([]))
    addend: Ints = field(default_factory=lambda: ints([]))
    multimem: Ints = field(default_factory=lambda: ints([]))

    @property
    def sends(self) -> int:
        return len(self.chunk)

    def scheduled(self, network: Network, size_bytes: int) -> Schedule:
        """Return the schedule for a buffer of ``size_bytes``, rounded up to whole bytes a chunk."""
        return Schedule(
            network=network,
            collective=self.collective,
            chunk_bytes=max(1, -(-size_bytes // self.collective.total_bytes(1))),
            method=self.method,
            seed=self.seed,
            chunk=self.chunk,
            link=self.link,
            op=self.op,
            stream=self.stream,
            addend_start=self.addend_start,
            addend=self.addend,
            multimem=self.multimem,
        )


@dataclass(frozen=True)
class Range:
    """The sizes from ``from_bytes`` to ``to_bytes``, both included, and the number of their algorithm.

    If ``library`` is set, such as "mpi", that library's own collective was measured to be faster. It is
    called if the ranks have the library; otherwise ``algorithm`` serves.
    """

    from_bytes: int
    to_bytes: int
    algorithm: int
    library: str = ""


@dataclass(frozen=True)
class Point:
    """The choice at one simulated size: the algorithm, its time, and the proven bound on any algorithm.

    ``race`` is the measurement by which it was chosen, None if there was none.
    """

    size_bytes: int
    algorithm: int
    time_s: float
    bound_s: float
    bound: str
    race: Race | None = None

    @property
    def percent_of_optimal(self) -> float:
        return 100.0 * min(1.0, self.bound_s / self.time_s) if self.time_s else 100.0


@dataclass(frozen=True, eq=False)
class Selection:
    """The algorithm for every size of a collective on a network.

    ``ranges`` follow one another without gaps; ``points`` are the simulated sizes, ascending. All algorithms
    do the same collective, in different numbers of chunks.
    """

    network: Network
    algorithms: tuple[UnsizedSchedule, ...]
    ranges: tuple[Range, ...]
    points: tuple[Point, ...]

    kind: ClassVar[str] = "selection"
    noun: ClassVar[str] = "selection"
    is_listed: ClassVar[bool] = False
    is_sized: ClassVar[bool] = False

    @property
    def method(self) -> str:
        return self.expanded().method

    @property
    def seed(self) -> int:
        return self.expanded().seed

    @property
    def chunk_bytes(self) -> int:
        return self.expanded().chunk_bytes

    @property
    def sends(self) -> int:
        return self.expanded().sends

    def listed_network(self) -> Network:
        return self.network

    @property
    def whole(self) -> Collective:
        return self.expanded().collective

    @property
    def race(self) -> Race | None:
        """None: a race belongs to one of ``points``."""
        return None

    @property
    def busy_s(self) -> Floats:
        return self.expanded().busy_s

    @property
    def facts(self) -> Mapping[str, float]:
        """The smallest and the largest size that a range covers."""
        return {"from_bytes": self.ranges[0].from_bytes, "to_bytes": self.ranges[-1].to_bytes}

    def remark(self, seconds: Callable[[float], str]) -> str:
        """Return how many schedules there are for how many ranges of sizes, in words."""
        count = plural(len(self.algorithms), "schedule")
        return f"selection: {count} for {plural(len(self.ranges), 'range')} of sizes"

    @property
    def proof(self) -> str:
        schedules = f"{plural(len(self.algorithms), 'schedule')} for {plural(len(self.ranges), 'range')}"
        return f"{schedules} of sizes do {self.collective.label} on {self.collective.ranks_in_words}"

    def of_size(self, size_bytes: int) -> Schedule:
        return self.choose(size_bytes)

    def expanded(self) -> Schedule:
        """Return the schedule for the largest size."""
        return self.choose(self.ranges[-1].to_bytes)

    def obligations(self, timing: Timing | None = None) -> Sequence[Obligation]:
        """Return the schedule of each range, which must be right for all sizes of the range."""
        found = []
        for row, one in enumerate(self.ranges):
            least, most = self.choose(one.from_bytes), self.choose(one.to_bytes)
            found.append(Obligation(least, most_chunk_bytes=most.chunk_bytes, place=f"ranges[{row}]"))
        return found

    @property
    def workload(self) -> Workload:
        return self.expanded().workload

    @property
    def excerpt(self) -> Schedule | None:
        return self.expanded()

    def timing(self, excerpt: Timing | None) -> Timing:
        assert excerpt is not None
        return excerpt

    @property
    def collective(self) -> Collective:
        return self.algorithms[0].collective

    @property
    def outcome(self) -> Outcome | None:
        """None: each of ``points`` has a time and a bound of its own."""
        return None

    def choose(self, size_bytes: int) -> Schedule:
        """Return the schedule for ``size_bytes``; beyond either end, the schedule of the nearest range.

        O(log ranges). Raises NotApplicableError for less than one byte.
        """
        if size_bytes < 1:
            raise NotApplicableError(f"expected a size of at least 1 byte, found {size_bytes}")
        return self.algorithms[self._range(size_bytes).algorithm].scheduled(self.network, size_bytes)

    def library(self, size_bytes: int) -> str:
        """Return the library whose own collective beats every schedule at ``size_bytes``; "" for none."""
        return self._range(size_bytes).library

    def _range(self, size_bytes: int) -> Range:
        row = bisect_right(self.ranges, size_bytes, key=lambda one: one.from_bytes) - 1
        return self.ranges[max(0, row)]

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``; ``synth.check`` judges feasibility."""
        found = [f"{name}: empty" for name in ("algorithms", "ranges") if not getattr(self, name)]
        for row, algorithm in enumerate(self.algorithms):
            wrong = algorithm.scheduled(self.network, 1).problems() if _counted(algorithm) else ["collective"]
            found += [
                f"algorithms[{row}].{problem}" for problem in wrong if not problem.startswith("network")
            ]
        found += [f"network.{problem}" for problem in self.network.problems()]
        for name in ("ranges", "points"):
            for row, one in enumerate(getattr(self, name)):
                if not 0 <= one.algorithm < len(self.algorithms):
                    found.append(f"{name}[{row}].algorithm: there is no algorithm {one.algorithm}")
        for row, one in enumerate(self.ranges):
            after = self.ranges[row - 1].to_bytes + 1 if row else max(1, one.from_bytes)
            if one.from_bytes != after:
                found.append(f"ranges[{row}].from_bytes: expected {after}, found {one.from_bytes}")
            if one.to_bytes < one.from_bytes:
                found.append(f"ranges[{row}].to_bytes: expected at least {one.from_bytes}")
        for row, one in enumerate(self.ranges if not found else ()):
            most = MOST_CHUNK_BYTES * self.algorithms[one.algorithm].collective.total_bytes(1)
            if one.to_bytes > most:
                found.append(f"ranges[{row}].to_bytes: expected at most {most}, found {one.to_bytes}")
        return found or self._contradictions()

    def _contradictions(self) -> list[str]:
        """Return findings on algorithms of another collective and on inconsistent points."""
        found = [
            f"algorithms[{row}].collective: expected {self.collective.label} as algorithms[0] does, with the "
            f"same ranks and root, found {algorithm.collective.label}"
            for row, algorithm in enumerate(self.algorithms)
            if not algorithm.collective.same_but_for_chunks(self.collective)
        ]
        least = 1
        for row, point in enumerate(self.points):
            if point.size_bytes < least:
                found.append(f"points[{row}].size_bytes: expected at least {least}, found {point.size_bytes}")
            elif (chosen := self._range(point.size_bytes).algorithm) != point.algorithm:
                found.append(
                    f"points[{row}].algorithm: expected {chosen}, which the ranges "
                    f"choose for {point.size_bytes} bytes, found {point.algorithm}"
                )
            least = max(least, point.size_bytes + 1)
            found += claims(f"points[{row}].time_s", point.time_s, float("inf"))
            found += claims(f"points[{row}].bound_s", point.bound_s, point.time_s)
            found += [
                f"points[{row}].race.{problem}" for problem in (point.race.problems() if point.race else ())
            ]
        return found


def _counted(algorithm: UnsizedSchedule) -> bool:
    """Return whether the collective is consistent and moves bytes, so that its chunks can be sized."""
    return not algorithm.collective.problems() and algorithm.collective.total_bytes(1) > 0
