"""Pipelining: each chunk of a schedule is cut into parts, which take the same links one after another.

A chunk is forwarded only when all of it has arrived; its parts can travel on several links at once. The sends
are given; the order of the parts is chosen among several priority rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from probes.base import Floats, bytes_of, floats, ints, offsets
from synth.collective import Collective
from synth.schedules import REDUCE, Schedule, Timing
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.precedence import of_schedule
from synth.simulation import replay

__all__ = ["pipelined"]

# The delay of each part after the part before it, as a fraction of (time of the whole / number of parts).
_STAGGERS = (0.0, 0.25, 0.5)


def pipelined(schedule: Schedule, shape: Collective, chunk_bytes: int) -> Schedule:
    """Return the sends of ``schedule`` for every part of its chunks, in the fastest of some orders.

    ``shape`` is the schedule's collective with every chunk cut into the same number of parts, each of
    ``chunk_bytes``. The parts start together or staggered, or all parts are summed one after the other before
    any result is spread. O(sends · parts · log (sends · parts)).
    """
    parts = shape.chunks // schedule.collective.chunks
    timing = replay(schedule)
    many = _in_parts(schedule, parts, shape, chunk_bytes)
    link, precedence = many.link.astype(np.int64), of_schedule(many)
    orders = (
        line_up(many.network, chunk_bytes, link, precedence, urgency)
        for urgency in _rules(schedule, parts, timing)
    )
    order, _ = min(orders, key=lambda found: float(found[1].max()))
    return in_order(many, order)


def _in_parts(schedule: Schedule, parts: int, shape: Collective, chunk_bytes: int) -> Schedule:
    """Return all sends of the first part of each chunk, then all of the second, and so on."""
    part = np.repeat(np.arange(parts), schedule.sends)
    found = replace(
        schedule,
        collective=shape,
        chunk_bytes=chunk_bytes,
        chunk=ints(np.tile(schedule.chunk.astype(np.int64) * parts, parts) + part),
        link=ints(np.tile(schedule.link, parts)),
        op=bytes_of(np.tile(schedule.op, parts)),
        outcome=None,
    )
    if not schedule.exchanges:
        return found
    addend = np.tile(schedule.addend.astype(np.int64), parts)
    later = np.repeat(np.arange(parts) * schedule.sends, len(schedule.addend))
    return replace(
        found,
        addend_start=ints(offsets(np.tile(np.diff(schedule.addend_start), parts))),
        addend=ints(np.where(addend < 0, addend, addend + later)),
    )


def _rules(schedule: Schedule, parts: int, timing: Timing) -> Iterator[Floats]:
    """Yield the urgency of each send by each rule."""
    part = np.repeat(np.arange(parts), schedule.sends)
    start_s = np.tile(timing.start_s, parts)
    for stagger in _STAGGERS:
        yield floats(start_s + part * (timing.time_s * stagger / parts))
    sums = np.tile(schedule.op == REDUCE, parts)
    if sums.any() and not sums.all():
        # The sums of all parts go first, part by part, then the results.
        yield floats(start_s + (part + np.where(sums, 0, parts)) * timing.time_s)
