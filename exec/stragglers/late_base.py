"""Base schedules for phase 2: the best schedule for all data is seldom the best for the data of few ranks."""

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

# With finer pieces a pipeline fills sooner, but each piece costs a start-up.
PIECES = 16
# Pieces hold whole elements of every data type; the longest has 8 bytes.
_ELEMENT_BYTES = 8
# With more ranks there would be too many rings to simulate.
_MOST_FOR_NEIGHBOURS = 8
_RING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def late_bases(schedule: Schedule, *, late: int = 1) -> tuple[Schedule, ...]:
    """Return ``schedule``, its copy in finer pieces, and a ring in such pieces if the network has one.

    If two or more ranks are ``late``, and there are up to eight ranks, several rings are returned. Any two
    ranks are neighbours in one of these rings. In that ring the first hop adds the data of both, and one sum
    goes around. Each base cuts the same buffers into equal chunks of whole elements; bases that cannot are
    left out.
    """
    found = [schedule]
    # Cutting gains nothing if the transfer of a piece takes less time than its start-up.
    network, size_bytes = schedule.network, schedule.chunk_bytes
    pays = size_bytes > PIECES * np.min(network.alpha_s / network.beta_s_per_byte, initial=np.inf)
    if pays and size_bytes % (PIECES * _ELEMENT_BYTES) == 0:
        found.append(cut(schedule, PIECES))
    whole = schedule.collective
    if whole.kind not in _RING or whole.members:
        return tuple(found)
    # One chunk for each rank; an all_gather needs only one, because each rank starts with its own.
    chunks = 1 if whole.kind == "all_gather" else whole.ranks
    shape = collective(whole.kind, whole.ranks, chunks, root=whole.root)
    total_bytes = whole.total_bytes(schedule.chunk_bytes)
    if total_bytes % (shape.total_bytes(1) * PIECES * _ELEMENT_BYTES):
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
    """Return the fewest cycles through all ranks in which every two are neighbours at least once.

    The construction is Walecki's (1892). Each cycle alternates between ranks on both sides of its first rank.
    If the number of ranks is odd, the last rank closes each cycle.
    """
    even = ranks - ranks % 2
    steps = [(at + 1) // 2 * (1 if at % 2 else -1) for at in range(even)]
    return [[(first + step) % even for step in steps] + [even] * (ranks % 2) for first in range(even // 2)]
