"""Input and output of a phase as parts of a rank's own buffers: what goes in, and how results come together.

Chunks must be equal: a buffer is as many slots as its collective has chunks for the rank, each as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exec.program.dtypes import Array, combine_of
from probes.errors import UsageError
from synth.relays.partial import Phase

__all__ = ["input_of", "merged"]


def input_of(phase: Phase, rank: int, whole: Array) -> Array:
    """What ``rank`` gives to a phase, of its input of the ``whole`` collective; a copy, empty for relays.

    Raises UsageError where the buffer is no number of equal slots.
    """
    slots = _slots(whole, int(phase.whole.sources.has(rank).sum()), "whole")
    return slots[phase.input_places(rank)].ravel()


def merged(phases: Sequence[Phase], outputs: Sequence[Array], rank: int, redop: str = "sum") -> Array:
    """The output of the whole collective at ``rank``, of its outputs of all ``phases``.

    Contributions to one slot are combined phase by phase and slot by slot, so that every rank ends with
    the same bits. Raises UsageError where an output does not fit its phase, or a slot is not filled.
    """
    whole = phases[0].whole
    combine = combine_of(redop, outputs[0].dtype)
    chunks = np.flatnonzero(whole.targets.has(rank))
    places = [phase.output_places(rank).tolist() for phase in phases]
    parts = [_slots(output, len(its), "outputs") for output, its in zip(outputs, places, strict=True)]
    elements = max(part.shape[1] for part in parts)
    found = np.empty((len(chunks), elements), outputs[0].dtype)
    filled = np.zeros(len(chunks), dtype=bool)
    for its, part in zip(places, parts, strict=True):
        for place, values in zip(its, part, strict=True):
            found[place] = combine(found[place], values) if filled[place] else values
            filled[place] = True
    if not filled.all():
        raise UsageError(
            f": expected phases that bring all that rank {rank} wants, nothing brings chunk "
            f"{chunks[~filled][0]}",
            argument="phases",
        )
    return found.ravel()


def _slots(buffer: Array, slots: int, name: str) -> Array:
    """(slots, elements): the buffer slot by slot."""
    if buffer.ndim != 1 or (buffer.size % slots if slots else buffer.size):
        raise UsageError(
            f": expected a flat array of {slots} equal slots, found shape {buffer.shape}", argument=name
        )
    return buffer.reshape(slots, buffer.size // slots if slots else 0)
