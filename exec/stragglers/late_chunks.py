"""Late joining: chunks of a late rank join the running first part of a request (AdapCC, Sec. IV-C).

The session's thread carries out the part, and cannot wait for the data, which comes from the caller's thread.
Only the late rank knows which chunks joined. Before a later part the late rank tells the others, and that
part leaves these chunks out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from exec.program import Array, neutral_of
from exec.stragglers.phase_buffers import input_of
from probes.base import Mask
from synth.relays import Phase

__all__ = [
    "Entrance",
    "Offers",
    "covered_slots",
    "joined_elements",
    "left_out",
    "no_offers",
    "without_joined",
]

# A function of a callback that returns a context manager. Within the block, the callback gets this rank's
# data for a part when the data arrives.
Offers = Callable[[Callable[[Array], None]], AbstractContextManager[None]]


@contextmanager
def no_offers(take: Callable[[Array], None]) -> Iterator[None]:
    """Offer nothing."""
    yield


class Entrance:
    """Handover of data from the caller's thread to the part that the session's thread carries out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Hashable = None
        self._take: Callable[[Array], None] = lambda data: None

    @contextmanager
    def open(self, of: Hashable, take: Callable[[Array], None]) -> Iterator[None]:
        """In the block, pass the first data offered for ``of`` (not None) to ``take``."""
        with self._lock:
            self._of, self._take = of, take
        try:
            yield
        finally:
            with self._lock:
                self._of = None

    def offer(self, of: Hashable, data: Array) -> None:
        """Pass ``data`` to the open block of ``of``, if there is one; any thread may call this."""
        with self._lock:
            if self._of == of:
                self._of = None
                self._take(data)


def joined_elements(phase: Phase, rank: int, joined: Mask, count: int) -> Mask:
    """Return for each of the ``count`` elements of a rank's data whether it has joined.

    ``joined`` tells which elements of the rank's input of ``phase`` have joined.
    """
    places = phase.input_places(rank)
    slots = joined.reshape(len(places), -1)
    found = np.zeros((phase.whole.share, slots.shape[1]), dtype=bool)
    found[places] = slots
    return found.reshape(-1)[:count]


def covered_slots(phase: Phase, rank: int, joined: Mask, padded_count: int) -> Mask:
    """Return for each slot of a rank's input of a later phase whether all its elements have joined."""
    covered = np.ones(padded_count, dtype=bool)
    covered[: len(joined)] = joined
    slots = len(phase.input_places(rank))
    return np.asarray(input_of(phase, rank, covered).reshape(slots, -1).all(axis=1))


def left_out(phase: Phase, covered: Mapping[int, Mask]) -> Mask:
    """Return for each chunk of a later phase whether all its data has joined.

    ``covered`` maps a rank to the mask of its input slots that have joined.
    """
    sources = phase.schedule.collective.sources
    left = sources.sizes().copy()
    for rank, slots in covered.items():
        left[np.flatnonzero(sources.has(rank))[slots]] -= 1
    return np.asarray(left == 0)


def without_joined(data: Array, joined: Mask, op: str) -> Array:
    """Return ``data`` with neutral elements in place of those that have joined an earlier part."""
    left = data.copy()
    left[joined] = neutral_of(op, data.dtype)
    return left
