"""Numbers for (rank, chunk) slots: for all slots or, if they are too many, for the slots that sends touch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probes.base import Indices, Mask
from synth.collective import Collective
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Touched", "are_few", "dependencies", "numbered", "touched"]

# An array over all slots is too large from _SPARSE_FROM slots on (64 MiB at 8 bytes a slot), unless the
# columns of the sends are as large. A send takes about as much as _PER_SEND slots (chunk, link, op, both
# slots, start and arrival: 33 bytes).
_SPARSE_FROM, _PER_SEND = 1 << 23, 4


class Touched(NamedTuple):
    """The slots that each send leaves and enters, and whether each slot holds its chunk at first.

    If `are_few` holds, slot numbers are rank · chunks + chunk. Otherwise the touched slots are numbered from
    0 in that order.
    """

    leaves: Indices
    enters: Indices
    held: Mask


def are_few(network: Network, collective: Collective, sends: int) -> bool:
    """Return whether slots are few enough to number all: fewer than 8 Mi or than four per send."""
    return network.ranks * collective.chunks < max(_SPARSE_FROM, _PER_SEND * sends)


def numbered(
    network: Network, collective: Collective, chunk: Indices, link: Indices
) -> tuple[Indices, Indices]:
    """Return the slots that each send leaves and enters, numbered rank · chunks + chunk."""
    slots = network.ranks * collective.chunks
    number: Any = np.int32 if slots < 1 << 31 else np.int64
    leaves = network.src[link].astype(number) * number(collective.chunks) + chunk
    enters = network.dst[link].astype(number) * number(collective.chunks) + chunk
    return leaves, enters


def touched(network: Network, collective: Collective, chunk: Indices, link: Indices) -> Touched:
    """Return the touched slots.

    Time is O(sends) if `are_few` holds, else O(sends · log sends); memory is O(sends).
    """
    leaves, enters = numbered(network, collective, chunk, link)
    if are_few(network, collective, len(chunk)):
        return Touched(leaves, enters, collective.held().ravel())
    found, inverse = np.unique(np.concatenate((leaves, enters)), return_inverse=True)
    rank, chunk_of = np.divmod(found, collective.chunks)
    held = collective.sources.contains(rank, chunk_of, network.ranks)
    return Touched(inverse[: len(chunk)], inverse[len(chunk) :], held)


def dependencies(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return for each send the last earlier send into its source slot, and into its target slot.

    A value is -1 if there is none. The slot is up to date once that send and all earlier sends into it have
    arrived. O(sends · log sends).
    """
    leaves, enters, _ = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    return _latest_before(leaves, enters), _latest_before(enters, enters)


def _latest_before(wanted: Indices, enters: Indices) -> Indices:
    """Return for each row the latest earlier row that enters the slot ``wanted[row]``; -1 for none."""
    rows = len(enters)
    order = np.argsort(enters, kind="stable")
    key = enters[order].astype(np.int64) * rows + order
    at = np.searchsorted(key, wanted.astype(np.int64) * rows + np.arange(rows)) - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    return np.where((found >= 0) & (enters[found] == wanted), found, -1)
