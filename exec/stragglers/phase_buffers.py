"""Inputs and outputs of a phase as parts of a rank's own buffers, and how results are merged.

Chunks must be equal: a buffer has a slot for each chunk of the rank, all equally long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from exec.program import Array, combine_of
from probes.base import UsageError
from synth.relays import Phase

__all__ = ["input_of", "merged"]


def input_of(phase: Phase, rank: int, whole: Array) -> Array:
    """Return a copy of the part of ``rank``'s input ``whole`` that goes into a phase; empty for relays.

    Raises UsageError if the buffer cannot be divided into equal slots.
    """
    slots = _slots(whole, int(phase.whole.sources.has(rank).sum()), "whole")
    return slots[phase.input_places(rank)].ravel()


def merged(phases: Sequence[Phase], outputs: Sequence[Array], rank: int, redop: str = "sum") -> Array:
    """Return the output of the whole collective at ``rank``, merged from the outputs of all ``phases``.

    Phases may cut the buffer into coarser or finer chunks. Contributions are combined phase by phase and slot
    by slot, so that every rank ends with the same bits. Raises UsageError if an output does not fit its
    phase, if phases are of different collectives, or if a phase has too little data.
    """
    combine = combine_of(redop, outputs[0].dtype)
    places = [phase.output_places(rank).tolist() for phase in phases]
    parts = [_slots(output, len(its), "outputs") for output, its in zip(outputs, places, strict=True)]
    sizes = {
        int(phase.whole.targets.has(rank).sum()) * part.shape[1]
        for phase, part in zip(phases, parts, strict=True)
        if len(part)
    }
    if len(sizes) > 1 or not all(phase.whole.same_but_for_chunks(phases[0].whole) for phase in phases):
        raise UsageError(": expected parts of one collective, of one buffer", argument="phases")
    elements = max(sizes, default=0)
    found = np.zeros(elements, outputs[0].dtype)
    step = math.gcd(*(part.shape[1] for part in parts)) or 1
    filled = np.zeros(elements // step, dtype=bool)
    for phase, its, part in zip(phases, places, parts, strict=True):
        length = part.shape[1]
        adds = phase.whole.reduced[phase.chunk[phase.schedule.collective.targets.has(rank)]].tolist()
        for place, values, adding in zip(its, part, adds, strict=True):
            here = slice(place * length, (place + 1) * length)
            there = slice(here.start // step, here.stop // step)
            if adding and filled[there].all():
                found[here] = combine(found[here], values)
            elif adding and filled[there].any():
                before = np.repeat(filled[there], step)
                found[here] = np.where(before, combine(found[here], values), values)
            else:
                found[here] = values
            filled[there] = True
    wanted = bool(phases[0].whole.targets.has(rank).any())
    if not filled.all() or (wanted and not elements):
        raise UsageError(
            f": expected phases that bring all the data of rank {rank}'s output, found none for element "
            f"{int(np.argmin(filled)) * step if elements else 0}",
            argument="phases",
        )
    return found


def _slots(buffer: Array, slots: int, name: str) -> Array:
    """Return the buffer as (slots, elements)."""
    if buffer.ndim != 1 or (buffer.size % slots if slots else buffer.size):
        raise UsageError(
            f": expected a flat array of {slots} equal slots, found shape {buffer.shape}", argument=name
        )
    return buffer.reshape(slots, buffer.size // slots if slots else 0)
