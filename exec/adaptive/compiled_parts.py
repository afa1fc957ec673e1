"""Programs of the parts of requests, made once for all ranks: beside the job, or by one rank.

In go schedules, out come phases and proven programs by request, part, and whether the part is the first;
ranks are those of the schedules. What is sent to all ranks is packed: columns of programs repeat themselves.

To compile the parts for late ranks takes a core for a while, and so time from the runs beside it. Before a
version of the schedules has contexts for them, nobody goes on without a late rank: all would wait while each
rank compiled what that takes. `LateContexts` follows which versions have.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.adaptive.messages import JOINABLE, CollectiveCall
from exec.records import decode, encode
from exec.relays import late_bases
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

# Of so many ranks, contexts of such requests are made beforehand for each pair that may be late.
_MOST_PART_BYTES = 1 << 30
_MOST_FOR_PAIRS, _MOST_BYTES_FOR_PAIRS = 8, 4 << 20
# What failed to be compiled is tried again after so long: the process for it has died, and is started again.
_REST_S = 10.0


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """What of the whole collective a part does, and its program."""

    phase: Phase
    program: Program


def part_key(request: CollectiveCall, part: Sequence[int], ranks: int, *, first: bool) -> PartKey:
    """A part of all ranks is the same whether it is the first or not."""
    return request, tuple(part), first or len(part) == ranks


def compiled_part(
    schedule: Schedule, part: Sequence[int], bases: Sequence[Schedule] = (), *, first: bool
) -> CompiledPart:
    """The part of a collective with the data of ``part``: phase 1 if it is the first, else a phase 2.

    The other ranks may join phase 1 of an all_reduce with the chunks that they pass on.
    A phase 2 goes along whichever of ``bases`` is fastest (`late_bases` of the schedule if none are given).
    """
    if first:
        phase = partial_phase(schedule, part, late_may_join=schedule.collective.kind in JOINABLE)
    else:
        phase = fastest_late_phase(bases or late_bases(schedule, late=len(part)), part)
    return CompiledPart(phase, compile_(phase.schedule))


def whole_parts(schedules: Mapping[CollectiveCall, Schedule]) -> dict[PartKey, CompiledPart]:
    """The parts of all ranks."""
    found = {}
    for request, schedule in schedules.items():
        every = range(schedule.network.ranks)
        found[part_key(request, every, len(every), first=True)] = compiled_part(schedule, every, first=True)
    return found


def late_parts(schedules: Mapping[CollectiveCall, Schedule]) -> Iterator[tuple[PartKey, CompiledPart]]:
    """The parts where few ranks are late, which are made beforehand; others are as they occur."""
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
    """A value that is sent to all ranks, in few bytes."""
    return zlib.compress(encode(value), 1)


def unpacked(content: bytes) -> Any:
    """Return what was packed; raises ValueError for bytes that nobody packed."""
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(content, _MOST_PART_BYTES)
    except zlib.error as error:
        raise ValueError(f"nobody packed this: {error}") from error
    if not inflating.eof:
        raise ValueError(f"more than {_MOST_PART_BYTES} bytes, or cut off")
    return decode(plain)


class LateContexts:
    """Which versions have contexts for late ranks, and for which one they are asked for. Times are monotonic.

    ``made`` have them from the start. Each question has a number of its own, by which late answers to
    earlier ones are known.
    """

    def __init__(self, made: Iterable[int] = ()) -> None:
        self._made = set(made)
        self._version: int | None = None
        self._number = 0
        self._rested_s = 0.0

    @property
    def under_way(self) -> bool:
        """Whether an answer, or the contexts after it, are waited for."""
        return self._version is not None

    def begin_anew(self) -> None:
        """Other members have none."""
        self._made.clear()
        self.cancel()

    def exist(self, version: int) -> bool:
        """Whether all ranks have made those of ``version``."""
        return version in self._made

    def are_due(self, version: int, now_s: float) -> bool:
        """Whether those of ``version`` are to be asked for."""
        return not self.exist(version) and self._version != version and now_s >= self._rested_s

    def ask(self, version: int) -> int:
        """Note that those of ``version`` are asked for, and of no other; the number of the question."""
        self._version, self._number = version, self._number + 1
        return self._number

    def version_of(self, number: int) -> int | None:
        """The version that question ``number`` was about; None where nobody waits for its answer any more."""
        return self._version if number == self._number else None

    def cancel(self) -> None:
        """Note that nothing is asked for any more."""
        self._version = None

    def failed(self, now_s: float) -> None:
        """Note that there is no answer: it is asked again later."""
        self._version, self._rested_s = None, now_s + _REST_S

    def made(self, version: int) -> None:
        """Note that all ranks have made those of ``version``."""
        self._made.add(version)
        if self._version == version:
            self._version = None
