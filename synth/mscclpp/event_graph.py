"""A graph of a plan's events: the order that holds in every run, and the data that each event surely sees.

Events are numbers, and each follows lower numbers only. Most pairs are ordered by their places: events of one
threadblock by its nops and threads, events of one rank by the ends of its launches. For all other pairs the
graph is searched, for many pairs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from probes.base import Indices, Mask, offsets
from synth.kernels import compiled

__all__ = ["EventGraph", "weakly"]

# The words of marks that each event has in one pass through the graph: a cache line, with a bit for each of
# 512 earlier events.
_WORDS = 8


def weakly(event: int) -> int:
    """Return the number by which an event is followed without its data being seen."""
    return ~event


class EventGraph:
    """The events so far, with the place, base and thread of each.

    A place is a threadblock or a rank's proxy in a launch, or the caller of a rank between launches. An event
    follows all events of its place up to its ``base``, and the earlier events of its thread (≥ 0).
    """

    def __init__(self) -> None:
        self.follows: list[Sequence[int]] = []
        self.place: list[int] = []
        self.base: list[int] = []
        self.thread: list[int] = []
        # Place 0 is for events that only join others.
        self.rank_of, self.turn_of = [-1], [0]

    def new_place(self, rank: int, turn: int) -> int:
        """Return the number of a new place; all that a rank does in a turn precedes its later turns."""
        self.rank_of.append(rank)
        self.turn_of.append(turn)
        return len(self.rank_of) - 1

    def add(self, follows: Sequence[int], place: int = 0, base: int = -1, thread: int = -1) -> int:
        """Return the number of a new event that follows others, of some only ``weakly``."""
        self.follows.append(follows)
        self.place.append(place)
        self.base.append(base)
        self.thread.append(thread)
        return len(self.follows) - 1

    def surely(self, earlier: int, later: int) -> bool:
        """Return whether the places of two events already order them, so that the later sees all data."""
        early, late = self.place[earlier], self.place[later]
        if early == late:
            thread = self.thread[earlier]
            same = thread >= 0 and thread == self.thread[later] and earlier < later
            return early > 0 and (earlier <= self.base[later] or same)
        rank = self.rank_of[early]
        return rank >= 0 and rank == self.rank_of[late] and self.turn_of[early] < self.turn_of[late]

    def precedes(self, earlier: int, later: int) -> bool:
        """Return whether one event precedes another in every run; O(events between the two)."""
        if self.surely(earlier, later):
            return True
        left, met = [later], {later}
        while left:
            for found in self.follows[left.pop()]:
                one = found if found >= 0 else ~found
                if one == earlier:
                    return True
                if one > earlier and one not in met:
                    met.add(one)
                    left.append(one)
        return False

    def orders(self, earlier: Indices, later: Indices, *, data: bool) -> Mask:
        """Return for each pair of events whether they are ordered; with ``data``, data must be seen, too.

        No event may be added afterwards. O(pairs + passes · events between the first and last of a pass).
        """
        found = self._surely(earlier, later)
        open_pairs = np.flatnonzero(~found & (earlier < later))
        if len(open_pairs):
            pair = earlier[open_pairs] * len(self.place) + later[open_pairs]
            pairs, number = np.unique(pair, return_inverse=True)
            found[open_pairs] = self._searched(*np.divmod(pairs, len(self.place)), data=data)[number]
        return found

    def _surely(self, earlier: Indices, later: Indices) -> Mask:
        place, base, thread, rank, turn = self._columns
        early, late = place[earlier], place[later]
        alone = (thread[earlier] >= 0) & (thread[earlier] == thread[later]) & (earlier < later)
        within = (early == late) & (early > 0) & ((earlier <= base[later]) | alone)
        turns = (rank[early] >= 0) & (rank[early] == rank[late]) & (turn[early] < turn[late])
        found: Mask = within | ((early != late) & turns)
        return found

    @cached_property
    def _columns(self) -> tuple[Indices, ...]:
        """The place, base and thread of each event, and the rank and turn of each place."""
        lists = (self.place, self.base, self.thread, self.rank_of, self.turn_of)
        return tuple(np.array(one, dtype=np.int64) for one in lists)

    @cached_property
    def _edges(self) -> tuple[Indices, Indices]:
        """(start, follows): event n follows the events ``follows[start[n]:start[n + 1]]``."""
        start = offsets(np.fromiter(map(len, self.follows), dtype=np.int64, count=len(self.follows)))
        follows = chain.from_iterable(self.follows)
        return start, np.fromiter(follows, dtype=np.int64, count=int(start[-1]))

    def _searched(self, earlier: Indices, later: Indices, *, data: bool) -> Mask:
        """Search the graph for pairs that are sorted by the earlier event."""
        start, follows = self._edges
        # A search for data leaves out events that are followed weakly: -1 is no event.
        follows = np.maximum(follows, -1) if data else np.where(follows < 0, ~follows, follows)
        found = np.zeros(len(earlier), dtype=bool)
        number = np.cumsum(np.diff(earlier, prepend=earlier[:1]) > 0)
        for begin in range(0, int(number[-1]) + 1, 64 * _WORDS):
            low, high = np.searchsorted(number, (begin, begin + 64 * _WORDS))
            by_later = low + np.argsort(later[low:high], kind="stable")
            found[by_later] = _reached(
                start,
                follows,
                earlier[low:high],
                number[low:high] - begin,
                later[by_later],
                number[by_later] - begin,
            )
        return found


@compiled
def _reached(
    start: Indices, follows: Indices, earlier: Indices, mark: Indices, later: Indices, wanted: Indices
) -> Mask:
    """Return for each later event whether the earlier event with the mark ``wanted`` precedes it.

    ``earlier`` is sorted, and ``mark`` has the number of each; ``later`` is sorted.
    """
    low, high = earlier[0], later[-1] + 1
    marks = np.zeros((high - low, mark[-1] // 64 + 1), dtype=np.uint64)
    found = np.zeros(len(later), dtype=np.bool_)
    at, asked = 0, 0
    for event in range(low, high):
        row = marks[event - low]
        for edge in range(start[event], start[event + 1]):
            if follows[edge] >= low:
                other = marks[follows[edge] - low]
                for word in range(len(row)):
                    row[word] |= other[word]
        while asked < len(later) and later[asked] == event:
            bit = np.uint64(1) << np.uint64(wanted[asked] % 64)
            found[asked] = row[wanted[asked] // 64] & bit != 0
            asked += 1
        while at < len(earlier) and earlier[at] == event:
            row[mark[at] // 64] |= np.uint64(1) << np.uint64(mark[at] % 64)
            at += 1
    return found
