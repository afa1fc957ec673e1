"""Schedules along which phase 2 may go: what is best for the data of all is seldom best for those of few."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from synth.collective import collective
from synth.errors import NotApplicableError
from synth.methods import ring
from synth.relays import cut
from synth.schedules import Schedule

__all__ = ["PIECES", "late_bases", "neighbours"]

PIECES = 16
# Of the longest data type.
_ELEMENT_BYTES = 8
# Of more ranks there would be many rings to simulate.
_MOST_FOR_NEIGHBOURS = 8
_RING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def late_bases(schedule: Schedule, *, late: int = 1) -> tuple[Schedule, ...]:
    """``schedule``, the same in finer pieces, and in such pieces a ring on its network where there is one.

    With ``late`` of two or more, and up to eight ranks, there are several rings, so that any two ranks are
    neighbours in one: the first hop then adds the data of both, and one sum goes round. Each base cuts the
    same buffers into equal chunks of whole elements; those that cannot are left out.
    """
    found = [schedule]
    # What is sent in less time than a send takes to start gains nothing from being cut.
    network, size_bytes = schedule.network, schedule.chunk_bytes
    pays = size_bytes > PIECES * np.min(network.alpha_s / network.beta_s_per_byte, initial=np.inf)
    if pays and _divides(size_bytes, PIECES * _ELEMENT_BYTES):
        found.append(cut(schedule, PIECES))
    whole = schedule.collective
    if whole.kind not in _RING or whole.members:
        return tuple(found)
    # A chunk for each rank, of which one of all_gather starts with its own alone.
    chunks = 1 if whole.kind == "all_gather" else whole.ranks
    shape = collective(whole.kind, whole.ranks, chunks, root=whole.root)
    total_bytes = whole.total_bytes(schedule.chunk_bytes)
    if not _divides(total_bytes, shape.total_bytes(1) * PIECES * _ELEMENT_BYTES):
        return tuple(found)
    orders: list[Sequence[int] | None] = [None]
    if late > 1 and whole.ranks <= _MOST_FOR_NEIGHBOURS:
        orders += neighbours(whole.ranks)
    for order in orders:
        with contextlib.suppress(NotApplicableError):
            around = ring.synthesize(network, shape, total_bytes // shape.total_bytes(1), order=order)
            found.append(cut(around, PIECES))
    return tuple(found)


def neighbours(ranks: int) -> list[list[int]]:
    """The fewest cycles through all ranks in which every two are neighbours at least once (Walecki 1892).

    Each goes from one rank to those on both sides of it in turn; the last of an odd number closes it.
    """
    even = ranks - ranks % 2
    steps = [(at + 1) // 2 * (1 if at % 2 else -1) for at in range(even)]
    return [[(first + step) % even for step in steps] + [even] * (ranks % 2) for first in range(even // 2)]


def _divides(whole_bytes: int, parts: int) -> bool:
    return whole_bytes % parts == 0
