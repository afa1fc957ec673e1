"""The precedence graph of sends: the sends that must have arrived before each one may start.

It is an activity-on-node network. Its nodes are the sends, and milestones, which take no time. A milestone is
the arrival of the first n sends into a slot (a chunk at a rank). If m sends bring a sum and k sends forward
it, the graph has about m + k edges instead of m · k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices, offsets, spans
from synth.collective import Collective
from synth.network import Network
from synth.schedules import COPY, Schedule, Timing
from synth.simulation import touched

__all__ = ["Precedence", "copies_wait", "of_schedule", "of_turns"]

# Sums of floats round.
_SLACK = 1e-12


@dataclass(frozen=True, eq=False)
class Precedence:
    """Edges ``before[i] → after[i]`` between nodes: the ``sends``, then the ``milestones``.

    Sends in ``missing`` wait for data that never arrives.
    """

    sends: int
    milestones: int
    before: Indices
    after: Indices
    missing: Indices

    @property
    def waits(self) -> Indices:
        """The number of nodes that each node waits for."""
        counts = np.bincount(self.after, minlength=self.sends + self.milestones)
        counts[self.missing] += 1
        return counts.astype(np.int64)

    @property
    def successors(self) -> tuple[Indices, Indices]:
        """(start, nodes): ``nodes[start[n]:start[n + 1]]`` wait for node n."""
        order = np.argsort(self.before, kind="stable")
        start = offsets(np.bincount(self.before, minlength=self.sends + self.milestones))
        return start, self.after[order]

    def reversed(self) -> Precedence:
        """Return the same sends backwards in time."""
        return Precedence(self.sends, self.milestones, self.after, self.before, self.missing)


def of_turns(
    network: Network, collective: Collective, chunk: Indices, link: Indices, turn: Indices
) -> Precedence:
    """Return the graph in which each send waits for its chunk's earlier sends into its source.

    O(sends · log sends).
    """
    return _of_slots(network, collective, chunk, link, turn, np.arange(len(chunk)))


def of_schedule(schedule: Schedule) -> Precedence:
    """Return the graph in which each send waits for its addends, or without any for sends into its source.

    In an exchange a copy also waits for its chunk's earlier sends from and to the rank that it overwrites.
    O((sends + addends) · log sends).
    """
    rows = np.arange(schedule.sends)
    columns = schedule.network, schedule.collective, schedule.chunk, schedule.link, rows
    if not schedule.exchanges:
        return _of_slots(*columns, rows)
    counts = np.diff(schedule.addend_start)
    bare = _of_slots(*columns, rows[counts == 0])
    brought = schedule.addend >= 0
    before, copy = _overwritten(schedule)
    return Precedence(
        schedule.sends,
        bare.milestones,
        np.concatenate((bare.before, schedule.addend[brought], before)),
        np.concatenate((bare.after, np.repeat(rows, counts)[brought], copy)),
        bare.missing,
    )


def copies_wait(schedule: Schedule, timing: Timing, *, start_later: bool = False) -> bool:
    """Return whether copies in an exchange arrive after what they overwrite has been sent, and is complete.

    A list of sends has no such waits: each copy starts once its addends are there and its link is free. With
    ``start_later`` copies must also start after these sends, so that an order by starts keeps them behind.
    """
    before, copy = _overwritten(schedule)
    if start_later and (timing.start_s[copy] < timing.start_s[before]).any():
        return False
    network, link = schedule.network, schedule.link
    leaves = network.src[link[before]] == network.dst[link[copy]]
    left_s = timing.start_s[before] + network.hold_s(schedule.chunk_bytes)[link[before]]
    until_s = np.where(leaves, left_s, timing.arrival_s[before])
    return bool((timing.arrival_s[copy] >= until_s * (1 - _SLACK)).all())


def _overwritten(schedule: Schedule) -> tuple[Indices, Indices]:
    """Return (send, copy) for each earlier send from or to the slot that a copy overwrites."""
    leaves, enters, _ = touched(schedule.network, schedule.collective, schedule.chunk, schedule.link)
    rows, copies = np.arange(schedule.sends), np.flatnonzero(schedule.op == COPY)
    send, slot = np.tile(rows, 2), np.concatenate((leaves, enters)).astype(np.int64)
    order = np.argsort(slot * schedule.sends + send, kind="stable")
    key, into = (slot * schedule.sends + send)[order], enters[copies].astype(np.int64) * schedule.sends
    first, counts = np.searchsorted(key, into), np.searchsorted(key, into + copies)
    counts -= first
    return send[order][spans(first, counts)], np.repeat(copies, counts)


def _of_slots(
    network: Network, collective: Collective, chunk: Indices, link: Indices, turn: Indices, waiting: Indices
) -> Precedence:
    """Return the graph in which the sends ``waiting`` wait for earlier sends into their source."""
    sends = len(chunk)
    leaves, enters, held = touched(network, collective, chunk, link)
    # Only the order of turns matters, so integers in the same order replace them: these compare exactly.
    place = np.unique(turn, return_inverse=True)[1].astype(np.int64)
    places = int(place.max(initial=0)) + 1
    # All sends by the slot that they enter, in the order of their turns.
    key = enters.astype(np.int64) * places + place
    brought = np.argsort(key, kind="stable")
    key = key[brought]
    slot = leaves[waiting].astype(np.int64)
    first = np.searchsorted(key, slot * places)
    past = np.searchsorted(key, slot * places + place[waiting])
    # An empty slot waits for the first send into it.
    empty = (past == first) & ~held[slot]
    there = np.searchsorted(key, (slot + 1) * places) > first
    past = past + (empty & there)
    missing = waiting[empty & ~there]
    waits = past > first
    # One milestone for each number of sends that some send waits for; milestones of a slot form a chain.
    marks, mark = np.unique(past[waits], return_inverse=True)
    start = np.zeros(len(marks), np.int64)
    start[mark] = first[waits]
    earlier = np.concatenate(([0], marks[:-1]))
    chained = np.flatnonzero(earlier > start)
    low = np.maximum(start, earlier)
    milestone = sends + np.arange(len(marks))
    return Precedence(
        sends,
        len(marks),
        np.concatenate((brought[spans(low, marks - low)], milestone[chained - 1], milestone[mark])),
        np.concatenate((np.repeat(milestone, marks - low), milestone[chained], waiting[waits])),
        missing,
    )
