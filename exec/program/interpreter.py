"""The reference executor: all ranks of a program in one process, on NumPy.

The other executors must give the same results.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from exec.program.dtypes import Array, combine_of, divided
from exec.program.layout import Layout, count_fitting
from exec.program.move import Move, Span, moves
from probes.base import UsageError
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["interpret"]

Seen: TypeAlias = Callable[[Move, int, Array | None, Array | None], None]


def interpret(
    program: Program,
    inputs: Sequence[Array],
    redop: str = "sum",
    *,
    in_place: bool = False,
    see: Seen | None = None,
) -> list[Array]:
    """Return the output of every rank; ``inputs``, one flat array for each rank, are not changed.

    In place, input and output of a rank share memory as the collective defines it. Raises UsageError if
    the inputs do not fit the collective, and DataError if the program deadlocks with at most ``FIFO_DEPTH``
    messages under way in each connection. ``see`` is called for each part of each step, with the number of
    elements before the part, the received part of the message, and the result; None stands for no message or
    no result.
    """
    layout = Layout(program, _count(program, inputs))
    ranks = _Ranks(layout, inputs, in_place)
    combine = combine_of(redop, inputs[0].dtype)
    fifos: defaultdict[int, deque[Array]] = defaultdict(deque)
    for move in moves(layout):
        first = 0
        for part in move.parts:
            received, value = None, ranks.view(move.rank, part.src) if part.src else None
            if move.op == "glre":
                value = reduce(combine, (ranks.view(member, part.src) for member in move.members))
            if move.op == "re" and value is not None:
                value = combine(ranks.view(move.rank, part.dst), value)
            if move.from_ >= 0:
                received = fifos[move.from_].popleft()
                value = received if value is None else combine(received, value)
            if part.dst is not None and value is not None:
                for rank in move.members if move.op == "gstore" else (move.rank,):
                    ranks.view(rank, part.dst)[:] = value
            if move.to >= 0 and value is not None:
                fifos[move.to].append(value.copy())
            if see is not None:
                see(move, first, received, value)
            first += part.length
    outputs = [ranks.buffers[rank][OUTPUT] for rank in range(program.ranks)]
    for rank, output in enumerate(outputs if redop == "avg" else ()):
        for start, stop, summands in layout.sums(rank):
            output[start:stop] = divided(output[start:stop], summands)
    return outputs


class _Ranks:
    """The three buffers of every rank."""

    def __init__(self, layout: Layout, inputs: Sequence[Array], in_place: bool) -> None:
        self.buffers: list[tuple[Array, Array, Array]] = []
        for rank, given in enumerate(inputs):
            scratch = np.empty(layout.elements(rank, SCRATCH), given.dtype)
            if in_place:
                total, where_in, where_out = layout.in_place(rank)
                whole = np.zeros(total, given.dtype)
                whole[where_in] = given
                self.buffers.append((whole[where_in], whole[where_out], scratch))
            else:
                output = np.zeros(layout.elements(rank, OUTPUT), given.dtype)
                self.buffers.append((given.copy(), output, scratch))

    def view(self, rank: int, span: Span | None) -> Array:
        assert span is not None
        return self.buffers[rank][span.buffer][span.start : span.stop]


def _count(program: Program, inputs: Sequence[Array]) -> int:
    """Return the number of elements of a block; raise UsageError if the inputs do not fit."""
    if len(inputs) != program.ranks:
        raise UsageError(f"inputs: expected one for each of {program.ranks} ranks, found {len(inputs)}")
    elements = [given.size for given in inputs]
    count = count_fitting(program, elements)
    if count is None or any(given.ndim != 1 or given.dtype != inputs[0].dtype for given in inputs):
        layout = Layout(program, 1)
        least = ", ".join(str(layout.elements(rank, INPUT)) for rank in range(min(8, program.ranks)))
        raise UsageError(
            f"inputs: expected flat arrays of one type with k · ({least}) elements "
            f"for {program.collective.label}, found {', '.join(map(str, elements[:8]))} elements"
        )
    return count
