"""Packing of chunks into slots of time: each in turn takes the plan and the slots that are cheapest then.

A chunk pays the prices after all earlier chunks (`synth.scheduling.slot_loads`). The sends of one plan are
moved one by one, backwards and forwards in time, between the sends that they wait for and the sends that wait
for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, floats, offsets
from synth.kernels import argsorted, compiled
from synth.network import Network
from synth.schedules import COPY
from synth.scheduling.chunk_plans import ChunkPlan
from synth.scheduling.slot_loads import Held, Load, TimedLinks, add, held_by, slots_s, timed_links, unloaded

__all__ = ["ChunkPacking", "PackedChunks"]

# Every so many chunks all plans are priced; the chunks between choose among the cheapest _NEAR of these, but
# not if chunks have plans of their own.
_FULLY, _NEAR = 8, 100
# If chunks have plans of their own, each is packed so many times, at the prices of all others.
_PASSES = 3
# The sweeps that move the sends of a plan: backwards, then forwards.
_SWEEPS = 2


class PackedChunks(NamedTuple):
    """For each chunk, the plan that it takes; for each of its sends in order, when it is to start.

    ``cost[link, slot]`` is the price of a further send. Slots begin at ``begin_s``, whose last entry is the
    end of the last slot.
    """

    plan: Indices
    start_s: Floats
    cost: Floats
    begin_s: Floats

    @classmethod
    def in_slots(
        cls, plan: Indices, slot: Indices, sends: Indices, cost: Floats, begin_s: Floats
    ) -> PackedChunks:
        """Return the chunks whose sends start in these slots, the n-th chunk n-th in each slot."""
        place = np.repeat((np.arange(len(plan)) + 0.5) / len(plan), sends)
        return cls(plan, floats(begin_s[slot] + np.diff(begin_s)[slot] * place), cost, begin_s)


class _Table(NamedTuple):
    """The sends of all plans; ``before`` and ``after`` are the sends that each waits for, and reverse."""

    start: Indices
    link: Indices
    before_start: Indices
    before: Indices
    after_start: Indices
    after: Indices


class _Windows(NamedTuple):
    """The first and last slot of each send of all plans, and whether all sends of a plan have some."""

    early: Indices
    late: Indices
    short: Mask


@dataclass(frozen=True, eq=False)
class ChunkPacking:
    """Plans for chunks: the n-th chunk takes the n-th row of ``images``, which has a link for each link.

    If plans have owners, in ascending order, a chunk takes a plan of its own owner.
    """

    network: Network
    plans: Sequence[ChunkPlan]
    images: Indices
    owner: Indices | None = None

    def packed(
        self, chunks: int, chunk_bytes: int, within_s: float, among: Indices | None = None
    ) -> PackedChunks | None:
        """Return plans and starts for so many chunks; None if no plan is short enough.

        Only the plans ``among`` are taken, if given.

        O(chunks · sends of all plans · slots that each send may move).
        """
        return self._packed(np.zeros(chunks, np.int64), chunk_bytes, within_s, among, 1)

    def packed_by_owner(self, owner: Indices, chunk_bytes: int, within_s: float) -> PackedChunks | None:
        """Return plans and starts for chunks of these owners; None if an owner has no plan short enough.

        O(chunks · sends of an owner's plans · slots that each send may move).
        """
        return self._packed(owner, chunk_bytes, within_s, None, _PASSES)

    def _packed(
        self, owner: Indices, chunk_bytes: int, within_s: float, among: Indices | None, passes: int
    ) -> PackedChunks | None:
        begin_s = slots_s(self.network, chunk_bytes, within_s)
        links = timed_links(self.network, begin_s, within_s)
        windows = _windows(self._table, links)
        some = np.flatnonzero(windows.short) if among is None else among[windows.short[among]]
        owners = np.zeros(len(some), np.int64) if self.owner is None else self.owner[some]
        each = np.bincount(owners, minlength=owner.max() + 1)
        if not each[owner].all():
            return None
        held = held_by(self.network, chunk_bytes)
        load = unloaded(self.network, begin_s, held)
        plan, slot = _pack(
            owner, some, offsets(each), self._table, links, windows, held, load, self.images, passes
        )
        return PackedChunks.in_slots(plan, slot, np.diff(self._table.start)[plan], load.cost, begin_s)

    @cached_property
    def _table(self) -> _Table:
        plans, network = self.plans, self.network
        start = offsets([len(plan.link) for plan in plans])
        link = np.concatenate([plan.link for plan in plans])
        op = np.concatenate([plan.op for plan in plans])
        part_start = offsets(np.concatenate([np.diff(plan.part_start) for plan in plans]))
        part = np.concatenate([np.where(plan.part < 0, -1, plan.part) for plan in plans])
        ends = network.src[link].astype(np.int64), network.dst[link].astype(np.int64)
        columns = start, *ends, op == COPY, part_start, part.astype(np.int64)
        count = _waits(*columns, np.empty(0, np.int64), np.empty(0, np.int64))
        before, after = np.empty(count, np.int64), np.empty(count, np.int64)
        _waits(*columns, before, after)
        sends = len(link)
        by_before = np.argsort(before, kind="stable")
        return _Table(
            start,
            link.astype(np.int64),
            # `_waits` notes the waits of the first send first.
            offsets(np.bincount(after, minlength=sends)),
            before,
            offsets(np.bincount(before, minlength=sends)),
            after[by_before],
        )


@compiled
def _waits(
    start: Indices,
    src: Indices,
    dst: Indices,
    copies: Mask,
    part_start: Indices,
    part: Indices,
    before: Indices,
    after: Indices,
) -> int:
    """Return how many pairs (before, after) of sends there are, and note them if there is room.

    A send waits for its addends, or for all earlier sends into its source if it names none. If some send of
    its plan names addends, a copy also waits for all earlier sends from and to the rank that it overwrites.
    """
    count, noted = 0, len(before) > 0
    for plan in range(len(start) - 1):
        first, past = start[plan], start[plan + 1]
        exchanges = part_start[past] > part_start[first]
        for send in range(first, past):
            bare = part_start[send] == part_start[send + 1]
            for at in range(part_start[send], part_start[send + 1]):
                if part[at] >= 0:
                    if noted:
                        before[count], after[count] = first + part[at], send
                    count += 1
            overwrites = exchanges and copies[send]
            for other in range(first, send if bare or overwrites else first):
                overwritten = dst[other] == dst[send] or src[other] == dst[send]
                if (bare and dst[other] == src[send]) or (overwrites and overwritten):
                    if noted:
                        before[count], after[count] = other, send
                    count += 1
    return count


@compiled
def _windows(table: _Table, links: TimedLinks) -> _Windows:
    """Return the slots that each send may take."""
    sends, slots = len(table.link), links.next.shape[1]
    early, late = np.zeros(sends, np.int64), np.empty(sends, np.int64)
    short = np.ones(len(table.start) - 1, np.bool_)
    for plan in range(len(short)):
        for send in range(table.start[plan], table.start[plan + 1]):
            late[send] = links.last[links.latency[table.link[send]]]
            for at in range(table.before_start[send], table.before_start[send + 1]):
                other = table.before[at]
                if early[other] < slots:
                    early[send] = max(early[send], links.next[links.latency[table.link[other]], early[other]])
                else:
                    early[send] = slots
        for send in range(table.start[plan + 1] - 1, table.start[plan] - 1, -1):
            latency = links.latency[table.link[send]]
            for at in range(table.after_start[send], table.after_start[send + 1]):
                while late[send] >= 0 and links.next[latency, late[send]] > late[table.after[at]]:
                    late[send] -= 1
            short[plan] &= early[send] <= late[send]
    return _Windows(early, late, short)


@compiled
def _pack(
    owner: Indices,
    plans: Indices,
    plan_start: Indices,
    table: _Table,
    links: TimedLinks,
    windows: _Windows,
    held: Held,
    load: Load,
    images: Indices,
    passes: int,
) -> tuple[Indices, Indices]:
    """Return the plan of each chunk, and the slots of its sends, one chunk after the other.

    Owner o has ``plans[plan_start[o]:plan_start[o + 1]]``.
    """
    most = 0
    for plan in plans:
        most = max(most, table.start[plan + 1] - table.start[plan])
    chunks, alike = len(owner), len(plan_start) == 2
    chosen, place = np.empty(chunks, np.int64), windows.early.copy()
    costs, near = np.full(len(table.start) - 1, np.inf), plans
    slot_of = np.empty((chunks, most), np.int64)
    for turn in range(passes * chunks):
        chunk = turn % chunks
        image = images[chunk % len(images)]
        if turn >= chunks:
            first, past = table.start[chosen[chunk]], table.start[chosen[chunk] + 1]
            for send in range(first, past):
                add(image[table.link[send]], slot_of[chunk, send - first], held, load, -1.0)
        if not alike or turn % _FULLY == 0:
            near = plans[plan_start[owner[chunk]] : plan_start[owner[chunk] + 1]]
        elif turn % _FULLY == 1:
            near = plans[argsorted(costs[plans])[:_NEAR]]
        best = -1
        for plan in near:
            costs[plan] = _moved(
                table, table.start[plan], table.start[plan + 1], links, windows, place, load.cost, image
            )
            if best < 0 or costs[plan] < costs[best]:
                best = plan
        chosen[chunk] = best
        first, past = table.start[best], table.start[best + 1]
        for send in range(first, past):
            slot_of[chunk, send - first] = place[send]
            add(image[table.link[send]], place[send], held, load, 1.0)
    listed, count = np.empty(chunks * most, np.int64), 0
    for chunk in range(chunks):
        for send in range(table.start[chosen[chunk] + 1] - table.start[chosen[chunk]]):
            listed[count] = slot_of[chunk, send]
            count += 1
    return chosen, listed[:count]


@compiled
def _moved(
    table: _Table,
    first: int,
    past: int,
    links: TimedLinks,
    windows: _Windows,
    place: Indices,
    cost: Floats,
    image: Indices,
) -> float:
    """Move the sends of a plan to cheaper slots, one by one, and return the cost of the plan."""
    for sweep in range(_SWEEPS):
        for step in range(past - first):
            send = past - 1 - step if sweep % 2 == 0 else first + step
            early, late, link = windows.early[send], windows.late[send], image[table.link[send]]
            for at in range(table.before_start[send], table.before_start[send + 1]):
                other = table.before[at]
                early = max(early, links.next[links.latency[table.link[other]], place[other]])
            for at in range(table.after_start[send], table.after_start[send + 1]):
                other = table.after[at]
                while links.next[links.latency[table.link[send]], late] > place[other]:
                    late -= 1
            for slot in range(early, late + 1):
                if cost[link, slot] < cost[link, place[send]]:
                    place[send] = slot
    total = 0.0
    for send in range(first, past):
        total += cost[image[table.link[send]], place[send]]
    return total
