"""Mixtures: each chunk follows the plan of one of several schedules, in shares from a linear program.

A *plan* is the way of one chunk: its sends, and what each of them waits for. Take a link or port, and some
sends over it. If none of them can start before h, and the time from the end of each to the end of its plan is
at least q, then the mixture takes at least h + q + the time for which these sends hold the link or port
(Carlier's bound for one machine with heads and tails, 1982). A linear program, as in Gilmore and Gomory's
cutting stock, finds the shares of plans for which the largest of these bounds is least. So early and late
sends of different plans meet on a link where one plan would use it only early. List scheduling then orders
the sends.

If translations map the network to itself, the images of a plan get equal shares, and one link stands for its
orbit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, bytes_of, floats, ints, offsets, spans
from synth.collective import Collective
from synth.network import Network
from synth.networks import FoundSymmetry, found_symmetry
from synth.schedules import COPY, Schedule
from synth.scheduling.justification import longest_paths_s
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.precedence import of_schedule

__all__ = ["chunk_counts", "mixed"]

# Schedules in more chunks mostly repeat the plans of those in fewer.
_MOST_CHUNKS = 64
# Heads and tails are rounded down to this many values each; the most entries of the program's table.
_LEVELS, _MOST_ENTRIES = 10, 3_000_000
# The program is solved for plans of up to this many different largest lengths.
_LENGTHS = 5
# The fewest chunks of a mixture, the factor to its larger number, and the most sends.
_FEWEST, _FINER, _MOST_SENDS = 32, 4, 30_000
# A mixture is made only if the program's bound is at most this share of the best time so far; the most made.
_WORTH, _MOST_MADE = 0.98, 2
# Times are equal if they are so after this many digits, in seconds, because sums of floats round.
_DIGITS = 12


def mixed(
    schedules: Sequence[Schedule], cuts: Sequence[tuple[Collective, int]], best_s: float
) -> Iterator[Schedule]:
    """Yield mixtures of the plans of ``schedules``, in the finest of ``cuts``, (collective, chunk bytes).

    All chunks of the collective must have the same sources and targets. ``best_s`` is the best time so far;
    nothing is yielded if the program shows that mixtures gain too little. O(plans · sends of a plan), and
    some linear programs with a variable for each plan.
    """
    if not cuts:
        return
    shape, chunk_bytes = cuts[0]
    first = schedules[0]
    plans = tuple(_unlike(schedules, chunk_bytes, best_s))
    # A translation moves the root of a broadcast, and a subset of the ranks.
    alike = shape.whole and shape.kind == "all_reduce"
    symmetry = found_symmetry(first.network) if alike else None
    pool = _Pool(first.network, symmetry, plans, shape.chunks, chunk_bytes)
    if len(pool.plans) < 2:
        return
    for shares in pool.shares(_WORTH * best_s)[:_MOST_MADE]:
        each = float(shares @ pool.sends)
        fine = [one for one in cuts if each * one[0].chunks <= _MOST_SENDS]
        if fine:
            yield pool.schedule(shares, *fine[-1], first.seed)


def chunk_counts(network: Network) -> tuple[int, int]:
    """Return two numbers of chunks for mixtures: the chunks share evenly among translations."""
    found = found_symmetry(network)
    images = 1 if found is None else found.network.translations
    few = -(-_FEWEST // images) * images
    return few, _FINER * few


class _Plan(NamedTuple):
    """The sends of a chunk in order; ``part`` has the addends of each, as places in the plan, -1 for own.

    ``head_s`` is the least time from the start of the schedule to the send, ``tail_s`` the least time from
    the end of its hold to the end of the schedule.
    """

    link: Indices
    op: Bytes
    part_start: Indices
    part: Indices
    head_s: Floats
    tail_s: Floats

    @property
    def length_s(self) -> float:
        return float((self.head_s + self.tail_s).max())


def _unlike(schedules: Sequence[Schedule], chunk_bytes: int, within_s: float) -> Iterator[_Plan]:
    """Yield the distinct plans of schedules that take less than ``within_s`` without queueing."""
    seen: set[tuple[bytes, bytes, bytes]] = set()
    for schedule in schedules:
        if schedule.collective.chunks > _MOST_CHUNKS:
            continue
        for plan in _plans(schedule, chunk_bytes):
            key = plan.link.tobytes(), plan.op.tobytes(), plan.part.tobytes()
            if key in seen or plan.length_s >= within_s:
                continue
            seen.add(key)
            if not schedule.exchanges or _keeps_order(plan, schedule.network):
                yield plan


def _keeps_order(plan: _Plan, network: Network) -> bool:
    """Return whether a copy cannot overtake another send from or to the rank that it overwrites."""
    src, dst = network.src[plan.link].tolist(), network.dst[plan.link].tolist()
    part, start = plan.part.tolist(), plan.part_start.tolist()
    # Sets of sends as bits: those before each send, those into each rank, and all that touch a rank.
    before: list[int] = []
    into, touching, copied = [0] * network.ranks, [0] * network.ranks, [False] * network.ranks
    for row, (source, target, op) in enumerate(zip(src, dst, plan.op.tolist(), strict=True)):
        parts = part[start[row] : start[row + 1]]
        direct = sum(1 << one for one in set(parts) if one >= 0) if parts else into[source]
        if copied[target] or (parts and copied[source]):
            return False
        found, left = direct, direct
        while left:
            lowest = left & -left
            found |= before[lowest.bit_length() - 1]
            left ^= lowest
        before.append(found)
        if op == COPY:
            if touching[target] & ~found:
                return False
            copied[target] = True
        into[target] |= 1 << row
        for rank in (source, target):
            touching[rank] |= 1 << row
    return True


def _plans(schedule: Schedule, chunk_bytes: int) -> Iterator[_Plan]:
    """Yield the plan of each chunk, with times for chunks of ``chunk_bytes``."""
    network, sends = schedule.network, schedule.sends
    forwards = of_schedule(schedule)
    backwards = forwards.reversed()
    travel_s = network.travel_s(chunk_bytes)[schedule.link]
    lasts_s = np.zeros(sends + forwards.milestones)
    lasts_s[:sends] = travel_s
    head_s, left_s = (
        longest_paths_s(lasts_s, one.waits, *one.successors)[:sends] for one in (forwards, backwards)
    )
    head_s = head_s - travel_s
    tail_s = left_s - network.hold_s(chunk_bytes)[schedule.link]
    start = schedule.addend_start if schedule.exchanges else np.zeros(sends + 1, np.int64)
    order = np.argsort(schedule.chunk, kind="stable")
    place = np.empty(sends, np.int64)
    for rows in np.split(order, np.cumsum(np.bincount(schedule.chunk))[:-1]):
        if not len(rows):
            continue
        place[rows] = np.arange(len(rows))
        counts = np.diff(start)[rows]
        part = schedule.addend[spans(start[:-1][rows], counts)].astype(np.int64)
        yield _Plan(
            schedule.link[rows].astype(np.int64),
            schedule.op[rows],
            offsets(counts),
            np.where(part < 0, -1, place[part]),
            floats(head_s[rows]),
            floats(tail_s[rows]),
        )


@dataclass(frozen=True, eq=False)
class _Pool:
    """The plans for one buffer of ``chunks`` chunks of ``chunk_bytes``."""

    network: Network
    symmetry: FoundSymmetry | None
    plans: tuple[_Plan, ...]
    chunks: int
    chunk_bytes: int

    @cached_property
    def sends(self) -> Floats:
        """The number of sends of each plan."""
        return floats(np.array([len(plan.link) for plan in self.plans]))

    def shares(self, below_s: float) -> list[Floats]:
        """Return shares of the plans whose bound is below a time, the least bound first.

        The bound counts the longest plan that may have a share, so programs with shorter plans are solved,
        too. Their solutions may be better: lists of sends do not reach the bound.
        """
        length_s = np.array([plan.length_s for plan in self.plans])
        lengths_s = np.unique(np.quantile(length_s, np.linspace(0, 1, _LENGTHS), method="lower"))
        found: list[tuple[float, int, Floats]] = []
        for most_s in lengths_s[lengths_s < below_s].tolist():
            short = np.flatnonzero(length_s <= most_s + 10**-_DIGITS)
            part, bound_s = self._solved(short)
            if bound_s < below_s:
                whole = np.zeros(len(self.plans))
                whole[short] = part
                found.append((bound_s, len(found), floats(whole)))
        return [shares for _, _, shares in sorted(found, key=lambda one: one[:2])]

    def _solved(self, rows: Indices) -> tuple[Floats, float]:
        """Return (shares of the plans ``rows``, bound) from the linear program; infinite if too large."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        plans = [self.plans[row] for row in rows.tolist()]
        heads_s = _levels(np.concatenate([plan.head_s for plan in plans]))
        tails_s = _levels(np.concatenate([plan.tail_s for plan in plans]))
        if len(plans) * len(self._resources[1]) * len(heads_s) * len(tails_s) > _MOST_ENTRIES:
            return np.zeros(len(rows)), np.inf
        load_s = np.stack([self._loads_s(plan, heads_s, tails_s) for plan in plans])
        table = load_s.reshape(len(plans), -1).T
        apart_s = np.broadcast_to(heads_s[:, None] + tails_s, load_s.shape[1:]).ravel()
        some = table.any(axis=1)
        unit_s = float(apart_s.max()) or 1.0
        matrix = np.column_stack((table[some] / unit_s, -np.ones(int(some.sum()))))
        solved = linprog(
            np.append(np.zeros(len(plans)), 1.0),
            A_ub=csr_matrix(matrix),
            b_ub=-apart_s[some] / unit_s,
            A_eq=np.append(np.ones(len(plans)), 0.0)[None],
            b_eq=[1.0],
            method="highs",
        )
        return floats(np.maximum(solved.x[:-1], 0.0)), float(solved.x[-1]) * unit_s

    def _loads_s(self, plan: _Plan, heads_s: Floats, tails_s: Floats) -> Floats:
        """Return the seconds for which the plan, with the whole buffer, holds each link and port.

        The result is [orbit, head, tail]: the sends with at least this head and this tail, of a member.
        """
        network, (orbit, members) = self.network, self._resources
        early, late = (
            np.searchsorted(levels_s, np.round(times_s, _DIGITS), side="right") - 1
            for levels_s, times_s in ((heads_s, plan.head_s), (tails_s, plan.tail_s))
        )
        first = network.link_port_start[:-1][plan.link]
        counts = np.diff(network.link_port_start)[plan.link]
        ports = spans(first, counts)
        send = np.concatenate((np.arange(len(plan.link)), np.repeat(np.arange(len(plan.link)), counts)))
        held = orbit[np.concatenate((plan.link, network.links + network.link_port[ports].astype(np.int64)))]
        held_s = np.concatenate(
            (network.hold_s(self.chunk_bytes)[plan.link], network.port_hold_s(self.chunk_bytes)[ports])
        )
        found = np.zeros((len(members), len(heads_s), len(tails_s)))
        np.add.at(found, (held, early[send], late[send]), self.chunks * held_s / members[held])
        return floats(found[:, ::-1, ::-1].cumsum(axis=1).cumsum(axis=2)[:, ::-1, ::-1])

    @cached_property
    def _resources(self) -> tuple[Indices, Floats]:
        """(the orbit of each link and then of each port, the number of members of each orbit)."""
        network = self.network
        if self.symmetry is None:
            every = np.arange(network.links + len(network.ports))
            return every, np.ones(len(every))
        links = self.symmetry.orbit
        orbit = np.concatenate((links, int(links.max()) + 1 + self.symmetry.port_orbit))
        return orbit, floats(np.bincount(orbit))

    @cached_property
    def _images(self) -> Indices:
        """For each translation, the image of each link; one row of all links without translations."""
        if self.symmetry is None:
            return np.arange(self.network.links)[None]
        folded, table = self.symmetry.network, self.symmetry.link
        shifts = folded.shifts
        found = np.empty((len(shifts), self.network.links), np.int64)
        for row, shift in enumerate(shifts.tolist()):
            turned = folded.moved(shifts, np.full_like(shifts, shift))
            found[row][table[:, shifts].ravel()] = table[:, turned].ravel()
        return found

    def schedule(self, shares: Floats, shape: Collective, chunk_bytes: int, seed: int) -> Schedule:
        """Return the mixture with whole chunks, ordered by list scheduling: the longest tail goes first."""
        counts = np.floor(shares * shape.chunks).astype(np.int64)
        missing = shape.chunks - int(counts.sum())
        counts[np.argsort(counts - shares * shape.chunks, kind="stable")[:missing]] += 1
        # The chunks of each plan are spread evenly over the table, and over the images of the plan.
        uses = sorted(
            ((use + 0.5) / count, number, use)
            for number, count in enumerate(counts.tolist())
            for use in range(count)
        )
        images = self._images
        chunk, link, op, urgency, part_counts, part = [], [], [], [], [], []
        base = 0
        for at, (_, number, use) in enumerate(uses):
            plan, count = self.plans[number], int(counts[number])
            turned = use * len(images) // count if count < len(images) else use % len(images)
            chunk.append(np.full(len(plan.link), at))
            link.append(images[turned][plan.link])
            op.append(plan.op)
            urgency.append(-plan.tail_s)
            part_counts.append(np.diff(plan.part_start))
            part.append(np.where(plan.part < 0, -1, plan.part + base))
            base += len(plan.link)
        addend = np.concatenate(part)
        made = Schedule(
            self.network,
            shape,
            chunk_bytes,
            "mixture",
            seed,
            ints(np.concatenate(chunk)),
            ints(np.concatenate(link)),
            bytes_of(np.concatenate(op)),
        )
        if len(addend):
            start = ints(offsets(np.concatenate(part_counts)))
            made = replace(made, addend_start=start, addend=ints(addend))
        order, _ = line_up(
            self.network, chunk_bytes, made.link.astype(np.int64), of_schedule(made), np.concatenate(urgency)
        )
        return in_order(made, order)


def _levels(times_s: Floats) -> Floats:
    """Return up to `_LEVELS` of the times, rising, the least among them."""
    found = np.unique(np.round(times_s, _DIGITS))
    if len(found) > _LEVELS:
        found = np.unique(np.quantile(found, np.linspace(0, 1, _LEVELS), method="lower"))
    return floats(found)
