"""The (rank, chunk) slots that sends touch, numbered: few of them where chunks go to few ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probes.columns import Indices, Mask
from synth.collective import Collective
from synth.network import Network

__all__ = ["Touched", "are_few", "numbered", "touched"]

_SPARSE_FROM = 1 << 23


class Touched(NamedTuple):
    """For each send the slot that it leaves and that it enters; for each slot whether it is held at first.

    Where there are not too many slots they are numbered rank · chunks + chunk.
    """

    leaves: Indices
    enters: Indices
    held: Mask


def are_few(network: Network, collective: Collective, sends: int) -> bool:
    """Whether all slots together take no more memory than the sends do."""
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
