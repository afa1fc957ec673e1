"""Plans of single chunks: the sends of a chunk, and the sends that each of them waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, floats, offsets, spans
from synth.schedules import Schedule
from synth.scheduling.justification import heads_and_tails_s
from synth.scheduling.precedence import of_schedule

__all__ = ["ChunkPlan", "plans_of"]


class ChunkPlan(NamedTuple):
    """The sends of a chunk in order; ``part`` has the addends of each, as places in the plan, -1 for own.

    ``head_s`` is the least time from the start of the plan to the send, ``length_s`` the time of the plan
    without queueing.
    """

    link: Indices
    op: Bytes
    part_start: Indices
    part: Indices
    head_s: Floats
    length_s: float


def plans_of(schedule: Schedule, chunk_bytes: int) -> Iterator[ChunkPlan]:
    """Yield the plan of each chunk, with times for chunks of ``chunk_bytes``."""
    sends = schedule.sends
    head_s, left_s = heads_and_tails_s(schedule, of_schedule(schedule), chunk_bytes)
    start = schedule.addend_start if schedule.exchanges else np.zeros(sends + 1, np.int64)
    order = np.argsort(schedule.chunk, kind="stable")
    place = np.empty(sends, np.int64)
    for rows in np.split(order, np.cumsum(np.bincount(schedule.chunk))[:-1]):
        if not len(rows):
            continue
        place[rows] = np.arange(len(rows))
        counts = np.diff(start)[rows]
        part = schedule.addend[spans(start[:-1][rows], counts)].astype(np.int64)
        yield ChunkPlan(
            schedule.link[rows].astype(np.int64),
            schedule.op[rows],
            offsets(counts),
            np.where(part < 0, -1, place[part]),
            floats(head_s[rows]),
            float((head_s + left_s)[rows].max()),
        )
