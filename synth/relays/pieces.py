"""Schedules whose chunks are cut into pieces, which pipeline better through their trees."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from probes.base import UsageError, bytes_of, ints
from synth.schedules import Schedule

__all__ = ["cut"]


@lru_cache(maxsize=16)
def cut(schedule: Schedule, pieces: int) -> Schedule:
    """Return ``schedule`` with every chunk as ``pieces`` consecutive chunks on the same links.

    The pieces of chunk c are numbered from c · pieces, so the layout of every buffer stays the same. Raises
    UsageError if the bytes of a chunk are no multiple of ``pieces``. O(sends · pieces).
    """
    if schedule.exchanges:
        raise UsageError(f": {schedule.method} exchanges partial sums, which are not cut", argument="pieces")
    if pieces < 1 or schedule.chunk_bytes % pieces:
        raise UsageError(
            f": expected a divisor of the {schedule.chunk_bytes} bytes of a chunk, found {pieces}",
            argument="pieces",
        )
    if pieces == 1:
        return schedule
    chunk = schedule.chunk.astype(np.int64)[:, None] * pieces + np.arange(pieces)
    return replace(
        schedule,
        collective=schedule.collective.cut(pieces),
        chunk_bytes=schedule.chunk_bytes // pieces,
        chunk=ints(chunk.ravel()),
        link=ints(np.repeat(schedule.link, pieces)),
        op=bytes_of(np.repeat(schedule.op, pieces)),
        stream=ints(np.repeat(schedule.stream, pieces)),
        outcome=None,
    )
