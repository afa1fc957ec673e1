"""Pruning removes the sends of a schedule that serve nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.base import bytes_of, ints
from synth.schedules import REDUCE, Schedule
from synth.scheduling.list_scheduling import in_order
from synth.streams import streams_of

__all__ = ["pruned"]


def pruned(schedule: Schedule) -> Schedule:
    """Return the schedule without copies that no rank needs, and without reductions that carry nothing.

    The other sends keep their order. O(sends).
    """
    if schedule.exchanges:
        return _pruned_exchange(schedule)
    network, collective = schedule.network, schedule.collective
    src, dst = network.src[schedule.link].tolist(), network.dst[schedule.link].tolist()
    chunk, is_sum = schedule.chunk.tolist(), (schedule.op == REDUCE).tolist()
    held, needed = collective.held(), collective.wanted()
    keep = np.zeros(schedule.sends, dtype=bool)
    for row in range(schedule.sends):
        if is_sum[row] and held[src[row], chunk[row]]:
            keep[row] = held[dst[row], chunk[row]] = True
    for row in reversed(range(schedule.sends)):
        if not is_sum[row] and needed[dst[row], chunk[row]]:
            keep[row] = needed[src[row], chunk[row]] = True
    return replace(
        schedule,
        chunk=ints(schedule.chunk[keep]),
        link=ints(schedule.link[keep]),
        op=bytes_of(schedule.op[keep]),
        stream=streams_of(schedule, keep),
    )


def _pruned_exchange(schedule: Schedule) -> Schedule:
    """Return an exchange without sends to ranks that neither want them nor send them on."""
    network, wanted = schedule.network, schedule.collective.wanted()
    src, dst, chunk = network.src[schedule.link], network.dst[schedule.link], schedule.chunk
    start, addend = schedule.addend_start, schedule.addend
    keep, needed = wanted[dst, chunk], np.zeros_like(wanted)
    for row in reversed(range(schedule.sends)):
        keep[row] |= needed[dst[row], chunk[row]]
        if keep[row]:
            parts = addend[start[row] : start[row + 1]]
            keep[parts[parts >= 0]] = True
            # A send without addends carries everything that its source has.
            needed[src[row], chunk[row]] |= not len(parts)
    return in_order(schedule, np.flatnonzero(keep))
