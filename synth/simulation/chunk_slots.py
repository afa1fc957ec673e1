"""The (rank, chunk) slots that sends touch, numbered: few of them where chunks go to few ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probes.base import Indices, Mask
from synth.collective import Collective
from synth.network import Network
from synth.schedules import Schedule

__all__ = ["Touched", "are_few", "dependencies", "numbered", "touched"]

_SPARSE_FROM = 1 << 23


class Touched(NamedTuple):
    """For each send the slot that it leaves and that it enters; for each slot whether it is held at first.

    Where there are not too many slots they are numbered rank · chunks + chunk.
    """

    leaves: Indices
    enters: Indices
    held: Mask


def are_few(network: Network, collective: Collective, sends: int) -> bool:
    """Return whether all slots together take no more memory than the sends do."""
    return network.ranks * collective.chunks < max(_SPARSE_FROM, 4 * sends)


def numbered(
    network: Network, collective: Collective, chunk: Indices, link: Indices
) -> tuple[Indices, Indices]:
    """For each send the slot that it leaves and that it enters, numbered rank · chunks + chunk."""
    slots = network.ranks * collective.chunks
    number: Any = np.int32 if slots < 1 << 31 else np.int64
    leaves = network.src[link].astype(number) * number(collective.chunks) + chunk
    enters = network.dst[link].astype(number) * number(collective.chunks) + chunk
    return leaves, enters


def touched(network: Network, collective: Collective, chunk: Indices, link: Indices) -> Touched:
    """O(sends) where slots are few for the sends, else O(sends · log sends) and no more memory than that."""
    leaves, enters = numbered(network, collective, chunk, link)
    if are_few(network, collective, len(chunk)):
        return Touched(leaves, enters, collective.held().ravel())
    found, inverse = np.unique(np.concatenate((leaves, enters)), return_inverse=True)
    rank, of = np.divmod(found, collective.chunks)
    held = collective.sources.contains(rank, of, network.ranks)
    return Touched(inverse[: len(chunk)], inverse[len(chunk) :], held)


def dependencies(schedule: Schedule) -> tuple[Indices, Indices]:
    """For each send two earlier ones, -1 for none: the last that brings its source what it passes on, and the
    last that enters the same slot.

    What a slot holds is complete with a send when that has arrived and the slot was complete with the one
    before it. O(sends · log sends).
    """
    leaves, enters, _ = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    return _latest_before(leaves, enters), _latest_before(enters, enters)


def _latest_before(wanted: Indices, enters: Indices) -> Indices:
    """For each row the latest row before it that enters the slot ``wanted[row]``; -1 where none does."""
    rows = len(enters)
    order = np.argsort(enters, kind="stable")
    key = enters[order].astype(np.int64) * rows + order
    at = np.searchsorted(key, wanted.astype(np.int64) * rows + np.arange(rows)) - 1
    found = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    return np.where((found >= 0) & (enters[found] == wanted), found, -1)
