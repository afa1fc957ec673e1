"""How chunks of a late rank join the first part of a request while it is under way (AdapCC, Sec. IV-C).

The part is carried out by the session's thread, which cannot wait for the caller; the caller's thread brings
the data. What joined is known to the late rank alone until a later part: then it tells the others which
chunks that part leaves out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from exec.program import Array, neutral_of
from exec.relays.phase_buffers import input_of
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

# Within the block of ``offers(take)`` the data that this rank has, or gets, for a part is given to ``take``.
Offers = Callable[[Callable[[Array], None]], AbstractContextManager[None]]


@contextmanager
def no_offers(take: Callable[[Array], None]) -> Iterator[None]:
    """Nothing comes."""
    yield


class Entrance:
    """Where the caller's thread hands over data for the part that the session's thread carries out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Hashable = None
        self._take: Callable[[Array], None] = lambda data: None

    @contextmanager
    def open(self, of: Hashable, take: Callable[[Array], None]) -> Iterator[None]:
        """Within the block give what is offered for ``of``, not None, to ``take``, once."""
        with self._lock:
            self._of, self._take = of, take
        try:
            yield
        finally:
            with self._lock:
                self._of = None

    def offer(self, of: Hashable, data: Array) -> None:
        """Let ``data`` join, where a part of ``of`` is under way that it may join; on any thread."""
        with self._lock:
            if self._of == of:
                self._of = None
                self._take(data)


def joined_elements(phase: Phase, rank: int, joined: Mask, count: int) -> Mask:
    """For each of ``count`` elements of a rank's data whether it is in: ``joined`` says so of its input."""
    places = phase.input_places(rank)
    slots = joined.reshape(len(places), -1)
    found = np.zeros((phase.whole.share, slots.shape[1]), dtype=bool)
    found[places] = slots
    return found.reshape(-1)[:count]


def covered_slots(phase: Phase, rank: int, joined: Mask, padded_count: int) -> Mask:
    """For each slot of a rank's input of a later phase whether all of its elements are in."""
    covered = np.ones(padded_count, dtype=bool)
    covered[: len(joined)] = joined
    slots = len(phase.input_places(rank))
    return np.asarray(input_of(phase, rank, covered).reshape(slots, -1).all(axis=1))


def left_out(phase: Phase, covered: Mapping[int, Mask]) -> Mask:
    """For each chunk of a later phase whether all that it brings is in: ``covered`` are slots by rank."""
    sources = phase.schedule.collective.sources
    left = sources.sizes().copy()
    for rank, slots in covered.items():
        left[np.flatnonzero(sources.has(rank))[slots]] -= 1
    return np.asarray(left == 0)


def without_joined(data: Array, joined: Mask, op: str) -> Array:
    """``data`` with what changes no result in place of what is in by an earlier part."""
    left = data.copy()
    left[joined] = neutral_of(op, data.dtype)
    return left
