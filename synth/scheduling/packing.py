"""Packing of chunks into slots of time: each in turn takes the plan and the slots that are cheapest then.

The time of a schedule is cut into slots. In each slot a link or port can be held for as long as the slot
lasts, so that none is overfull at any time. The price of a second in a slot grows exponentially with the load
there, and a chunk pays the prices after all earlier chunks (Awerbuch, Azar and Plotkin's routing of virtual
circuits, FOCS 1993). The sends of one plan are moved one by one, backwards and forwards in time, between the
sends that they wait for and the sends that wait for them.

Slots begin at multiples of the least latency, or of the time for which a chunk holds a link if it is longer,
counted from the start and from the end. So where all latencies are multiples of the least, a send passes the
place within its slot on to the sends that wait for it. The n-th chunk has the n-th place in all its slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Mask, floats, offsets
from synth.kernels import argsorted, compiled
from synth.network import Network
from synth.schedules import COPY

__all__ = ["ChunkPacking", "ChunkPlan", "PackedChunks"]

# Prices grow by this power of e until a slot is full. On four networks of `benchmarks/sizes.py --unusual`, 3
# is slower, and 10 and 40 are about as good.
_STEEPNESS = 20.0
# A second costs at most this power of e, even where slots are too short for one send.
_STEEPEST = 300.0
# Every so many chunks all plans are priced; the chunks between choose among the cheapest _NEAR of these, but
# not if chunks have plans of their own.
_FULLY, _NEAR = 8, 100
# If chunks have plans of their own, each is packed so many times, at the prices of all others.
_PASSES = 3
# The most multiples of the least latency at which slots begin; if there are more, slots are longer. With 24
# two networks of sites far apart lose 3 % (`benchmarks/sizes.py --unusual 24 --seed 20270301`).
_MOST_STEPS = 96
# The sweeps that move the sends of a plan: backwards, then forwards.
_SWEEPS = 2
# Instants that are closer are the same, because sums of floats round.
_SAME_S = 1e-12


class ChunkPlan(NamedTuple):
    """The sends of a chunk in order; ``part`` has the addends of each, as places in the plan, -1 for own.

    ``head_s`` is the least time from the start of the plan to the send, ``length_s`` the time of the plan
    without queueing.
    """

    link: Indices
    op: Bytes
    part_start: Indices
    part: Indices
    head_s: Floats
    length_s: float


class PackedChunks(NamedTuple):
    """For each chunk, the plan that it takes; for each of its sends in order, when it is to start.

    ``cost[link, slot]`` is the price of a further send, and slots begin at ``begin_s``.
    """

    plan: Indices
    start_s: Floats
    cost: Floats
    begin_s: Floats


class _Table(NamedTuple):
    """The sends of all plans; ``before`` and ``after`` are the sends that each waits for, and reverse."""

    start: Indices
    link: Indices
    before_start: Indices
    before: Indices
    after_start: Indices
    after: Indices


class _Slots(NamedTuple):
    """The first slot after a latency, [latency, slot]; the latency of each link; bounds of each send."""

    next: Indices
    latency: Indices
    early: Indices
    late: Indices


class _Held(NamedTuple):
    """The links and ports that a send over a link holds, and for how long; and reverse, by link or port."""

    start: Indices
    resource: Indices
    hold_s: Floats
    user_start: Indices
    user: Indices
    user_hold_s: Floats


class _Load(NamedTuple):
    """Capacity, load and price by link or port and slot; the cost of a send by link and slot."""

    capacity_s: Floats
    load_s: Floats
    price: Floats
    cost: Floats


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
        alpha_s = float(self.network.alpha_s.min())
        begin_s = _slots_s(alpha_s, max(alpha_s, float(self.network.hold_s(chunk_bytes).min())), within_s)
        slots, short = self._slots(begin_s, within_s)
        some = np.flatnonzero(short) if among is None else among[short[among]]
        owners = np.zeros(len(some), np.int64) if self.owner is None else self.owner[some]
        each = np.bincount(owners, minlength=owner.max() + 1)
        if not each[owner].all():
            return None
        load = self._load(begin_s)
        held = self._held(chunk_bytes)
        plan, slot = _pack(owner, some, offsets(each), self._table, slots, held, load, self.images, passes)
        place = (np.arange(len(owner)) + 0.5) / len(owner)
        counts = np.diff(self._table.start)[plan]
        start_s = begin_s[slot] + np.diff(begin_s)[slot] * np.repeat(place, counts)
        return PackedChunks(plan, floats(start_s), load.cost, begin_s[:-1])

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

    def _slots(self, begin_s: Floats, within_s: float) -> tuple[_Slots, Mask]:
        """Return the slots that each send may take, and which plans are short enough."""
        alpha_s, latency = np.unique(np.round(self.network.alpha_s, 12), return_inverse=True)
        arrive_s = begin_s[:-1] + alpha_s[:, None]
        first = np.searchsorted(begin_s, arrive_s + _SAME_S, side="right") - 1
        last = np.searchsorted(begin_s, within_s - alpha_s - _SAME_S, side="left") - 1
        latency = latency.astype(np.int64)
        early, late, short = _windows(self._table, first.astype(np.int64), last.astype(np.int64), latency)
        return _Slots(first.astype(np.int64), latency, early, late), short

    def _held(self, chunk_bytes: int) -> _Held:
        network = self.network
        start, resource = network.link_resources
        hold_s, resources = network.held_s(chunk_bytes), network.links + len(network.ports)
        order = np.argsort(resource, kind="stable")
        user = np.repeat(np.arange(network.links), np.diff(start))
        user_start = offsets(np.bincount(resource, minlength=resources))
        return _Held(start.astype(np.int64), resource, hold_s, user_start, user[order], floats(hold_s[order]))

    def _load(self, begin_s: Floats) -> _Load:
        network = self.network
        resources, lasts_s = network.links + len(network.ports), np.diff(begin_s)
        capacity_s = floats(np.tile(lasts_s, (resources, 1)))
        # The loop writes to the others, and a column of `floats` is read-only.
        load_s, cost = np.zeros(capacity_s.shape), np.zeros((network.links, len(lasts_s)))
        return _Load(capacity_s, load_s, 1 / capacity_s, cost)


def _slots_s(alpha_s: float, step_s: float, within_s: float) -> Floats:
    """Return where slots begin, and the last start: multiples of a step from the start and from the end."""
    last_s = max(within_s - alpha_s, _SAME_S)
    step_s = max(step_s, last_s / _MOST_STEPS)
    steps_s = np.arange(int(last_s / step_s) + 1) * step_s
    found = np.unique(np.concatenate((steps_s, last_s - steps_s)))
    return floats(found[np.append(np.diff(found) > _SAME_S, True)])


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
def _windows(
    table: _Table, following: Indices, last: Indices, latency: Indices
) -> tuple[Indices, Indices, Mask]:
    """Return the first and last slot of each send, and for each plan whether all its sends have slots."""
    sends, slots = len(table.link), following.shape[1]
    early, late = np.zeros(sends, np.int64), np.empty(sends, np.int64)
    short = np.ones(len(table.start) - 1, np.bool_)
    for plan in range(len(short)):
        for send in range(table.start[plan], table.start[plan + 1]):
            late[send] = last[latency[table.link[send]]]
            for at in range(table.before_start[send], table.before_start[send + 1]):
                other = table.before[at]
                if early[other] < slots:
                    early[send] = max(early[send], following[latency[table.link[other]], early[other]])
                else:
                    early[send] = slots
        for send in range(table.start[plan + 1] - 1, table.start[plan] - 1, -1):
            for at in range(table.after_start[send], table.after_start[send + 1]):
                while (
                    late[send] >= 0
                    and following[latency[table.link[send]], late[send]] > late[table.after[at]]
                ):
                    late[send] -= 1
            short[plan] &= early[send] <= late[send]
    return early, late, short


@compiled
def _pack(
    owner: Indices,
    plans: Indices,
    plan_start: Indices,
    table: _Table,
    slots: _Slots,
    held: _Held,
    load: _Load,
    images: Indices,
    passes: int,
) -> tuple[Indices, Indices]:
    """Return the plan of each chunk, and the slots of its sends, one chunk after the other.

    Owner o has ``plans[plan_start[o]:plan_start[o + 1]]``.
    """
    for link in range(len(load.cost)):
        for at in range(held.start[link], held.start[link + 1]):
            for slot in range(load.cost.shape[1]):
                load.cost[link, slot] += held.hold_s[at] * load.price[held.resource[at], slot]
    most = 0
    for plan in plans:
        most = max(most, table.start[plan + 1] - table.start[plan])
    chunks, alike = len(owner), len(plan_start) == 2
    chosen, place = np.empty(chunks, np.int64), slots.early.copy()
    costs, near = np.full(len(table.start) - 1, np.inf), plans
    slot_of = np.empty((chunks, most), np.int64)
    for turn in range(passes * chunks):
        chunk = turn % chunks
        image = images[chunk % len(images)]
        if turn >= chunks:
            first, past = table.start[chosen[chunk]], table.start[chosen[chunk] + 1]
            for send in range(first, past):
                _add(image[table.link[send]], slot_of[chunk, send - first], held, load, -1.0)
        if not alike or turn % _FULLY == 0:
            near = plans[plan_start[owner[chunk]] : plan_start[owner[chunk] + 1]]
        elif turn % _FULLY == 1:
            near = plans[argsorted(costs[plans])[:_NEAR]]
        best = -1
        for plan in near:
            costs[plan] = _moved(
                table, table.start[plan], table.start[plan + 1], slots, place, load.cost, image
            )
            if best < 0 or costs[plan] < costs[best]:
                best = plan
        chosen[chunk] = best
        first, past = table.start[best], table.start[best + 1]
        for send in range(first, past):
            slot_of[chunk, send - first] = place[send]
            _add(image[table.link[send]], place[send], held, load, 1.0)
    listed, count = np.empty(chunks * most, np.int64), 0
    for chunk in range(chunks):
        for send in range(table.start[chosen[chunk] + 1] - table.start[chosen[chunk]]):
            listed[count] = slot_of[chunk, send]
            count += 1
    return chosen, listed[:count]


@compiled
def _moved(
    table: _Table, first: int, past: int, slots: _Slots, place: Indices, cost: Floats, image: Indices
) -> float:
    """Move the sends of a plan to cheaper slots, one by one, and return the cost of the plan."""
    for sweep in range(_SWEEPS):
        for step in range(past - first):
            send = past - 1 - step if sweep % 2 == 0 else first + step
            early, late, link = slots.early[send], slots.late[send], image[table.link[send]]
            for at in range(table.before_start[send], table.before_start[send + 1]):
                other = table.before[at]
                early = max(early, slots.next[slots.latency[table.link[other]], place[other]])
            for at in range(table.after_start[send], table.after_start[send + 1]):
                other = table.after[at]
                while slots.next[slots.latency[table.link[send]], late] > place[other]:
                    late -= 1
            for slot in range(early, late + 1):
                if cost[link, slot] < cost[link, place[send]]:
                    place[send] = slot
    total = 0.0
    for send in range(first, past):
        total += cost[image[table.link[send]], place[send]]
    return total


@compiled
def _add(link: int, slot: int, held: _Held, load: _Load, times: float) -> None:
    """Load the link and its ports with a send, and raise the costs of all sends that share them.

    ``times`` is 1, or -1 to take the send away.
    """
    for at in range(held.start[link], held.start[link + 1]):
        resource = held.resource[at]
        load.load_s[resource, slot] += times * held.hold_s[at]
        full = load.load_s[resource, slot] / load.capacity_s[resource, slot]
        price = math.exp(min(_STEEPNESS * full, _STEEPEST)) / load.capacity_s[resource, slot]
        more = price - load.price[resource, slot]
        load.price[resource, slot] = price
        for user in range(held.user_start[resource], held.user_start[resource + 1]):
            load.cost[held.user[user], slot] += held.user_hold_s[user] * more
