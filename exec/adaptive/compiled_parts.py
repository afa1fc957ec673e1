"""Programs of the parts of requests, made once for all ranks: beside the job, or by one rank.

In go schedules, out come phases and proven programs by request, part, and whether the part is the first;
ranks are those of the schedules. What is sent to all ranks is packed: columns of programs repeat themselves.
"""

from __future__ import annotations

import itertools
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.adaptive.messages import JOINABLE, Request
from exec.relays.late_bases import late_bases
from synth.program import Program
from synth.relays.partial import Phase, fastest_late_phase, partial_phase
from synth.schedule import Schedule
from synth.stages import compile as compile_

__all__ = [
    "CompiledPart",
    "PartKey",
    "compiled_part",
    "late_parts",
    "packed",
    "part_key",
    "unpacked",
    "whole_parts",
]

# A request, the ranks of a part, and whether it is the first part.
PartKey = tuple[Request, tuple[int, ...], bool]

# Of so many ranks, contexts of such requests are made beforehand for each pair that may be late.
_MOST_FOR_PAIRS, _MOST_BYTES_FOR_PAIRS = 8, 4 << 20


@dataclass(frozen=True, eq=False)
class CompiledPart:
    """What of the whole collective a part does, and its program."""

    phase: Phase
    program: Program


def part_key(request: Request, part: Sequence[int], ranks: int, *, first: bool) -> PartKey:
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


def whole_parts(schedules: Mapping[Request, Schedule]) -> dict[PartKey, CompiledPart]:
    """The parts of all ranks."""
    found = {}
    for request, schedule in schedules.items():
        every = range(schedule.network.ranks)
        found[part_key(request, every, len(every), first=True)] = compiled_part(schedule, every, first=True)
    return found


def late_parts(schedules: Mapping[Request, Schedule]) -> Iterator[tuple[PartKey, CompiledPart]]:
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
    return zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), 1)


def unpacked(content: bytes) -> Any:
    """What was packed, by a rank of this job: its messages are authenticated before."""
    return pickle.loads(zlib.decompress(content))
