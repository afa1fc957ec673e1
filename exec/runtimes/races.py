"""Data races by vector clocks, while a machine runs its threads in one of the orders that they may take.

Each thread has a clock, which counts its releases. A release hands on what the thread knows of all clocks; an
acquire adds it to the knowledge of its thread. Two accesses of different threads, at least one of them a
write, race if the later thread does not know of the earlier access. One run finds the races of every order in
which the threads synchronize as they did in this run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probes.base import Ints

__all__ = ["RacingAccess", "SharedCells", "VectorClocks"]

# Place of an access, as the machine names it: any value that it can turn into words later.
Place = object
# A wrong file may race at every access; more would only fill the memory.
_ENOUGH = 1000
RacingAccess = tuple[int, Place, bool, Place, bool]
"""(cell, place of the earlier access, whether it writes, place of the later one, whether it writes)."""


class VectorClocks:
    """The vector clocks of ``threads`` threads."""

    def __init__(self, threads: int) -> None:
        self._known = np.eye(threads, dtype=np.int32)

    def release(self, thread: int) -> Ints:
        """Return what a thread knows now, and advance its clock for what it does next."""
        known: Ints = self._known[thread].copy()
        self._known[thread, thread] += 1
        return known

    def acquire(self, thread: int, released: Ints) -> None:
        np.maximum(self._known[thread], released, out=self._known[thread])

    def before(self, thread: int) -> Ints:
        """Return what a thread knows, without what it has done since its last release."""
        known: Ints = self._known[thread].copy()
        known[thread] -= 1
        return known

    def now(self, thread: int) -> int:
        return int(self._known[thread, thread])

    def follows(self, thread: int, other: int, clock: int) -> bool:
        """Return whether ``thread`` knows all that ``other`` did up to ``clock``."""
        return bool(self._known[thread, other] >= clock)


class SharedCells:
    """Cells of memory, with the last write of each and the reads since then.

    Without ``in_order``, accesses of one thread from different places are unordered until its next release.
    """

    def __init__(self, clocks: VectorClocks, *, in_order: bool = True) -> None:
        self._clocks, self._in_order = clocks, in_order
        self._writer: dict[int, tuple[int, int, Place]] = {}
        self._readers: dict[int, dict[tuple[int, Place], int]] = {}
        self.racing: list[RacingAccess] = []

    def read(self, cells: Iterable[int], thread: int, place: Place, *, free: bool = False) -> None:
        """Record that a thread reads cells, and its races with writes (none if ``free``)."""
        now = self._clocks.now(thread)
        for cell in cells:
            writer = self._writer.get(cell)
            if writer and not free and self._races(writer, thread, place, None):
                self._note(cell, writer[2], True, place, False)
            readers = self._readers.setdefault(cell, {})
            readers[thread, place] = now

    def write(self, cells: Iterable[int], thread: int, place: Place, known: Ints | None = None) -> None:
        """Record that a thread writes cells, and its races with writes and reads.

        ``known`` is knowledge that counts for this access only, in addition to the thread's knowledge.
        """
        now = self._clocks.now(thread)
        for cell in cells:
            writer = self._writer.get(cell)
            if writer and self._races(writer, thread, place, known):
                self._note(cell, writer[2], True, place, True)
            for (reader, where), clock in self._readers.pop(cell, {}).items():
                if self._races((reader, clock, where), thread, place, known):
                    self._note(cell, where, False, place, True)
            self._writer[cell] = thread, now, place

    def _races(self, earlier: tuple[int, int, Place], thread: int, place: Place, known: Ints | None) -> bool:
        other, clock, where = earlier
        if other == thread and (self._in_order or clock < self._clocks.now(thread) or where == place):
            return False
        if known is not None and known[other] >= clock:
            return False
        return not self._clocks.follows(thread, other, clock) if other != thread else True

    def _note(self, *found: *RacingAccess) -> None:
        if len(self.racing) < _ENOUGH:
            self.racing.append(found)
