"""Checksums of each step of a program, which show the rank or the link that corrupts data.

A step has two checksums: one of the message it received, and one of the result it wrote or sent. The
reference interpreter computes the right values. An executor that keeps checksums on every rank records the
actual values. A wrong result spreads to later steps. The culprit is where right data went in and wrong data
came out.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exec.program.dtypes import Array
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from exec.program.move import Move, Span, moves
from probes.base import Indices
from synth.program import OUTPUT, Program

__all__ = ["CHECKSUM_FACTOR", "Corruption", "StepSums", "checksum", "corruptions", "expected_sums"]

# The factor is odd, so that a change of any one byte changes the sum: the difference of two bytes times an
# odd number is no multiple of 2^64. The digits come from the golden ratio (Knuth, The Art of Computer
# Programming 3, Sec. 6.4) and spread the bits of neighbouring positions.
CHECKSUM_FACTOR = 0x1E3779B97F4A7C15
# The bytes that are summed at once, which limits the memory of the weights to eight times as much.
_BLOCK_BYTES = 1 << 20

_Slots = set[tuple[int, int, int]]


@dataclass(frozen=True, eq=False)
class StepSums:
    """The checksums of what each step ``received`` and of its ``result``, by row of the program.

    0 stands for steps that receive nothing or move nothing. ``output`` has the checksum of each rank's output
    after the last step.
    """

    received: Indices
    result: Indices
    output: Indices


@dataclass(frozen=True)
class Corruption:
    """A place where right data became wrong.

    *rank*: ``rank`` got the right data and made a wrong result of it, so its memory or processor is at fault.
    *link*: rank ``peer`` sent the right data, and ``rank`` received something else. ``step`` is the first
    wrong step's row in the program, ``op`` its operation, and ``steps`` the number of its wrong steps. If the
    output of a rank changed after all of its steps were right, ``step`` is -1 and ``op`` is "".
    """

    kind: Literal["rank", "link"]
    rank: int
    peer: int
    step: int
    op: str
    steps: int = 1


def checksum(content: Array, first: int = 0) -> int:
    """Return the checksum of the bytes of an array, whose first byte has the position ``first``.

    The checksum is the sum, modulo 2^64, of all bytes, each times an odd number that follows from its
    position. So the checksum of a message is the sum of its parts' checksums, in any order.
    """
    plain = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
    total = np.zeros(1, dtype=np.int64)
    for start in range(0, plain.size, _BLOCK_BYTES):
        block = plain[start : start + _BLOCK_BYTES]
        weights = (2 * np.arange(first + start, first + start + block.size) + 1) * CHECKSUM_FACTOR
        total += (block * weights).sum()
    return int(total[0])


def expected_sums(program: Program, inputs: Sequence[Array]) -> StepSums:
    """Return the checksums of the reference interpreter for these inputs; reductions are sums."""
    received, result = (np.zeros(program.steps, dtype=np.int64) for _ in range(2))

    def see(move: Move, first: int, got: Array | None, made: Array | None) -> None:
        for sums, value in ((received, got), (result, made)):
            if value is not None:
                sums[move.step : move.step + 1] += checksum(value, first * value.itemsize)

    outputs = interpret(program, inputs, see=see)
    return StepSums(received, result, np.array([checksum(output) for output in outputs], dtype=np.int64))


def corruptions(layout: Layout, expected: StepSums, found: StepSums) -> list[Corruption]:
    """Return the ranks and links that corrupted data, in the order in which they first did."""
    got = found.received == expected.received
    made = found.result == expected.result
    kept = found.output == expected.output
    if got.all() and made.all() and kept.all():
        return []
    wrong: _Slots = set()
    under_way: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)
    culprits: dict[tuple[str, int, int], Corruption] = {}
    for move in moves(layout):
        peer, sent = under_way[move.from_].popleft() if move.from_ >= 0 else (-1, True)
        in_wrong = wrong.intersection(_read(move))
        kind: Literal["rank", "link"] | None = None
        if not got[move.step] and sent:
            kind = "link"
        elif not made[move.step] and got[move.step] and not in_wrong:
            kind = "rank"
        if kind is not None:
            key = kind, move.rank, peer if kind == "link" else -1
            before = culprits.get(key, Corruption(*key, move.step, move.op, 0))
            culprits[key] = Corruption(*key, before.step, before.op, before.steps + 1)
        written = _slots(move.rank, [part.dst for part in move.parts])
        wrong = wrong - written if made[move.step] else wrong | written
        if move.to >= 0:
            under_way[move.to].append((move.rank, bool(made[move.step])))
    spoiled = {rank for rank, buffer, _ in wrong if buffer == OUTPUT}
    for rank in np.flatnonzero(~kept).tolist():
        if rank not in spoiled:
            culprits.setdefault(("rank", rank, -1), Corruption("rank", rank, -1, -1, ""))
    return list(culprits.values())


def _read(move: Move) -> _Slots:
    spans = [part.src for part in move.parts]
    return _slots(move.rank, [*spans, *(part.dst for part in move.parts if move.op == "re")])


def _slots(rank: int, spans: Sequence[Span | None]) -> _Slots:
    return {
        (rank, span.buffer, slot)
        for span in spans
        if span is not None
        for slot in range(span.slot, span.slot + span.slots)
    }
