"""Programs for the parts of requests, compiled once for all ranks: by rank 0, or beside the job.

In: schedules. Out: phases and proven programs, keyed by request, part, and whether the part is the first.
Ranks are numbered as in the schedules. Parts are compressed before they are sent to all ranks, because the
columns of programs are repetitive.

Compiling the parts for late ranks keeps a core busy and slows the runs beside it. Until a version of the
schedules has contexts for late ranks, parts wait for all ranks: if a part started without a late rank, all
ranks would wait for the compilation. `LateContexts` tracks which versions have them.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.adaptive.messages import JOINABLE, CollectiveCall
from exec.records import decode, encode
from exec.stragglers import late_bases
from synth import compile as compile_
from synth.program import Program
from synth.relays import Phase, fastest_late_phase, partial_phase
from synth.schedules import Schedule

__all__ = [
    "CompiledPart",
    "LateContexts",
    "PartKey",
    "compiled_part",
    "late_parts",
    "packed",
    "part_key",
    "unpacked",
    "whole_parts",
]

# A request, the ranks of a part, and whether it is the first part.
PartKey = tuple[CollectiveCall, tuple[int, ...], bool]

# A short message can inflate without end; a larger value is refused before it fills the memory.
_MOST_PART_BYTES = 1 << 30
# Up to this many ranks and bytes, contexts are also made in advance for each pair of late ranks.
_MOST_FOR_PAIRS, _MOST_BYTES_FOR_PAIRS = 8, 4 << 20
# Delay before a failed compilation is tried again: its process has died and restarts meanwhile.
_REST_S = 10.0


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """The share of the collective that a part carries out, and its program."""

    phase: Phase
    program: Program


def part_key(request: CollectiveCall, part: Sequence[int], ranks: int, *, first: bool) -> PartKey:
    """Return the key of a part; a part of all ranks has the same key whether it is the first or not."""
    return request, tuple(part), first or len(part) == ranks


def compiled_part(
    schedule: Schedule, part: Sequence[int], bases: Sequence[Schedule] = (), *, first: bool
) -> CompiledPart:
    """Compile the part for the data of the ranks ``part``: phase 1 if ``first``, else a phase 2.

    The other ranks may join phase 1 of an all_reduce with the chunks that they pass on. A phase 2 follows the
    fastest of ``bases`` (`late_bases` of the schedule if none are given).
    """
    if first:
        phase = partial_phase(schedule, part, late_may_join=schedule.collective.kind in JOINABLE)
    else:
        phase = fastest_late_phase(bases or late_bases(schedule, late=len(part)), part)
    return CompiledPart(phase, compile_(phase.schedule))


def whole_parts(schedules: Mapping[CollectiveCall, Schedule]) -> dict[PartKey, CompiledPart]:
    """Compile the parts in which all ranks are ready."""
    found = {}
    for request, schedule in schedules.items():
        every = range(schedule.network.ranks)
        found[part_key(request, every, len(every), first=True)] = compiled_part(schedule, every, first=True)
    return found


def late_parts(schedules: Mapping[CollectiveCall, Schedule]) -> Iterator[tuple[PartKey, CompiledPart]]:
    """Compile and yield the parts with one or two late ranks; all others are compiled when they occur.

    Pairs of late ranks are left out for many ranks or large blocks.
    """
    for request, schedule in schedules.items():
        ranks = schedule.network.ranks
        if not request.partial or ranks < 3:
            continue
        pairs = ranks <= _MOST_FOR_PAIRS and request.block_bytes <= _MOST_BYTES_FOR_PAIRS
        for count in range(1, 3 if pairs else 2):
            bases = late_bases(schedule, late=count)
            for late in itertools.combinations(range(ranks), count):
                ready = [rank for rank in range(ranks) if rank not in late]
                if len(ready) > 1:
                    key = part_key(request, ready, ranks, first=True)
                    yield key, compiled_part(schedule, ready, first=True)
                yield (
                    part_key(request, late, ranks, first=False),
                    compiled_part(schedule, late, bases, first=False),
                )


def packed(value: Any) -> bytes:
    """Return ``value`` as compressed bytes, to be sent to all ranks."""
    return zlib.compress(encode(value), 1)


def unpacked(content: bytes) -> Any:
    """Return the value that `packed` packed; raises ValueError for other bytes."""
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(content, _MOST_PART_BYTES)
    except zlib.error as error:
        raise ValueError(f"expected packed parts: {error}") from error
    if not inflating.eof:
        raise ValueError(f"more than {_MOST_PART_BYTES} bytes, or cut off")
    return decode(plain)


class LateContexts:
    """The versions that have contexts for late ranks, and the version that is about to get them.

    The versions ``made`` have contexts from the start. Times are by the monotonic clock. Each request has a
    number of its own, by which late answers to earlier requests are recognized.
    """

    def __init__(self, made: Iterable[int] = ()) -> None:
        self._made = set(made)
        self._version: int | None = None
        self._number = 0
        self._rested_s = 0.0

    @property
    def under_way(self) -> bool:
        """Whether requested parts, or the contexts made of them, are pending."""
        return self._version is not None

    def begin_anew(self) -> None:
        """Forget all contexts, as a new epoch has none."""
        self._made.clear()
        self.cancel()

    def exist(self, version: int) -> bool:
        """Return whether all ranks have made the contexts of ``version``."""
        return version in self._made

    def are_due(self, version: int, now_s: float) -> bool:
        """Return whether to request the contexts of ``version`` now."""
        return not self.exist(version) and self._version != version and now_s >= self._rested_s

    def ask(self, version: int) -> int:
        """Note that the contexts of ``version`` alone are requested; return the number of the request."""
        self._version, self._number = version, self._number + 1
        return self._number

    def version_of(self, number: int) -> int | None:
        """Return the version of request ``number``; None if its answer is no longer awaited."""
        return self._version if number == self._number else None

    def cancel(self) -> None:
        """Note that nothing is requested any more."""
        self._version = None

    def failed(self, now_s: float) -> None:
        """Note that the request failed, so that it is repeated later."""
        self._version, self._rested_s = None, now_s + _REST_S

    def made(self, version: int) -> None:
        """Note that all ranks have made the contexts of ``version``."""
        self._made.add(version)
        if self._version == version:
            self._version = None
