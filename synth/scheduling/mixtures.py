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

Where all links have about the same latency, an all_reduce also gets plans of its own, in few rounds with few
sends (`synth.scheduling.rounds`). The dual values of the program are prices of a link in each round, and
plans that are cheap at these prices join the program (column generation).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, bytes_of, floats, ints, offsets, spans
from synth.collective import Collective
from synth.network import Network
from synth.networks import FoundSymmetry, found_symmetry
from synth.schedules import COPY, Schedule
from synth.scheduling.justification import longest_paths_s
from synth.scheduling.list_scheduling import in_order, line_up
from synth.scheduling.precedence import copies_wait, of_schedule
from synth.scheduling.rounds import RoundSearch, RoundSends
from synth.simulation import replay

__all__ = ["chunk_counts", "mixed"]

# Schedules in more chunks mostly repeat the plans of those in fewer.
_MOST_CHUNKS = 64
# Heads and tails are rounded down to this many values each; the most entries of the program's table.
_LEVELS, _MOST_ENTRIES = 10, 3_000_000
# The program is solved for plans of up to this many different largest lengths.
_LENGTHS = 6
# The fewest chunks of a mixture, the factor to its larger number, and the most sends.
_FEWEST, _FINER, _MOST_SENDS = 32, 4, 30_000
# A mixture is made only if the program's bound is at most this share of the best time; the most of a program.
_WORTH, _MOST_MADE = 0.98, 2
# Plans in few rounds are sought if the longest path has at least this share of the time as latency. For
# each number of rounds up to _BEGUN plans are begun, with up to _ATTEMPTS attempts for each plan, fewer if
# rounds² · links² of all would be above _MOST_WORK, a second. They are improved at prices _PRICINGS times.
_MATTERS, _BEGUN, _ATTEMPTS, _MOST_WORK, _PRICINGS = 0.1, 8, 30, 40_000_000, 4
# Plans of other methods begin it, too, if they have at most this many sends.
_MOST_PRUNED = 300
# The least cost of a send, so that those without a price are few, too.
_LEAST_COST = 1e-3
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
    shape, chunk_bytes = cuts[-1]
    first = schedules[0]
    plans = tuple(_unlike(schedules, chunk_bytes, best_s))
    # A translation moves the root of a broadcast, and a subset of the ranks.
    alike = shape.whole and shape.kind == "all_reduce"
    symmetry = found_symmetry(first.network) if alike else None
    pool = _Pool(first.network, symmetry, plans, shape.chunks, chunk_bytes)
    within_s = _WORTH * best_s
    # Lists of sends do not reach the bound, so the better bound of more plans may be worth less.
    pools = {pool, _with_rounds(pool, within_s, first.seed)} if alike else {pool}
    for one in sorted(pools, key=lambda one: len(one.plans)):
        for shares in one.shares(within_s)[:_MOST_MADE] if len(one.plans) > 1 else ():
            each = float(shares @ one.sends)
            fine = [cut for cut in cuts if each * cut[0].chunks <= _MOST_SENDS]
            if fine:
                found = one.schedule(shares, *fine[-1], first.seed)
                if copies_wait(found, replay(found)):
                    yield found


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
            if not schedule.exchanges or _ends_with_copies(plan, schedule.network):
                yield plan


def _ends_with_copies(plan: _Plan, network: Network) -> bool:
    """Return whether a rank that got a copy only passes the copy on, and receives nothing more."""
    src, dst = network.src[plan.link].tolist(), network.dst[plan.link].tolist()
    copied = set[int]()
    for source, target, op, parts in zip(
        src, dst, plan.op.tolist(), np.diff(plan.part_start).tolist(), strict=True
    ):
        if target in copied or (parts and source in copied):
            return False
        if op == COPY:
            copied.add(target)
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


def _with_rounds(pool: _Pool, below_s: float, seed: int) -> _Pool:
    """Return the pool with plans in few rounds, where latency is a good part of the time ``below_s``.

    For each number of rounds the search begins with a few plans. Then it improves the plans with the largest
    shares at the prices of the program, for the limit on the number of rounds that has the least bound.
    """
    network, draw = pool.network, np.random.default_rng(seed)
    search, round_s = RoundSearch(network), float(network.travel_s(pool.chunk_bytes).max())
    counts = [count for count in search.counts if count * round_s < below_s]
    if not counts or counts[0] * float(network.alpha_s.min()) < _MATTERS * below_s:
        return pool
    work = sum((count * network.links) ** 2 for count in counts)
    each = max(1, min(_BEGUN, _MOST_WORK // work))
    found = list[tuple[RoundSends, _Plan]]()

    def improve(sends: Iterable[RoundSends], cost: Floats) -> None:
        for one in sends:
            better = search.improved(one, cost, draw)
            [plan] = _plans(search.schedule(pool.chunk_bytes, better), pool.chunk_bytes)
            found.append((better, plan))

    def solved(count: int) -> _Solution:
        plans = (*pool.plans, *(plan for _, plan in found))
        return replace(pool, plans=plans).solved(count * round_s)

    given = {count: list[RoundSends]() for count in counts}
    for plan in pool.plans:
        when = np.rint(plan.head_s / round_s).astype(np.int64)
        if (count := int(when.max()) + 1) in given and len(plan.link) <= _MOST_PRUNED:
            sends = search.pruned(plan.link, when, draw)
            given[count] += [] if sends is None else [sends]
    for count in counts:
        tried = (search.begun(count, draw) for _ in range(each * _ATTEMPTS))
        begun = islice((one for one in tried if one is not None), each)
        few = sorted(given[count], key=lambda one: len(one.link))[:each]
        improve((*few, *begun), floats(np.ones((count, network.links))))
    most = min(counts, key=lambda count: solved(count).bound_s)
    for _ in range(_PRICINGS):
        solution = solved(most)
        if not found or not np.isfinite(solution.bound_s):
            break
        order = np.argsort(-solution.share[len(pool.plans) :], kind="stable")
        ranked = [found[row][0] for row in order.tolist()]
        for count in counts[: counts.index(most) + 1]:
            best = [one for one in ranked if one.round[-1] == count - 1][:each]
            improve(best, pool.round_costs(solution, count, round_s))
    return replace(pool, plans=(*pool.plans, *(plan for _, plan in found)))


class _Solution(NamedTuple):
    """The share of each plan, their bound, and the price of a second of a send, [orbit, head, tail]."""

    share: Floats
    bound_s: float
    heads_s: Floats
    tails_s: Floats
    price: Floats


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

    @cached_property
    def length_s(self) -> Floats:
        """The time of each plan without queueing."""
        return floats(np.round([plan.length_s for plan in self.plans], _DIGITS))

    def shares(self, below_s: float) -> list[Floats]:
        """Return shares of the plans whose bound is below a time, the least bound first.

        The bound counts the longest plan that may have a share, so programs with shorter plans are solved,
        too. Their solutions may be better: lists of sends do not reach the bound.
        """
        lengths_s = np.unique(self.length_s)
        if len(lengths_s) > _LENGTHS:
            lengths_s = np.unique(np.quantile(lengths_s, np.linspace(0, 1, _LENGTHS), method="lower"))
        found = [self.solved(most_s) for most_s in lengths_s[lengths_s < below_s].tolist()]
        best = sorted((one for one in found if one.bound_s < below_s), key=lambda one: one.bound_s)
        return [one.share for one in best]

    def solved(self, most_s: float) -> _Solution:
        """Return the shares of plans that take at most ``most_s``; the bound is infinite for too many."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        rows = np.flatnonzero(self.length_s <= most_s + 10**-_DIGITS)
        plans = [self.plans[row] for row in rows.tolist()]
        if not plans:
            return self._unsolved
        heads_s = _levels(np.concatenate([plan.head_s for plan in plans]))
        tails_s = _levels(np.concatenate([plan.tail_s for plan in plans]))
        if len(plans) * len(self._resources[1]) * len(heads_s) * len(tails_s) > _MOST_ENTRIES:
            return self._unsolved
        load_s = self._loads_s(rows, heads_s, tails_s)
        table = load_s.reshape(len(plans), -1).T
        apart_s = np.broadcast_to(heads_s[:, None] + tails_s, load_s.shape[1:]).ravel()
        some = np.asarray(table.any(axis=1))
        unit_s = float(apart_s.max()) or 1.0
        matrix = np.column_stack((table[some] / unit_s, -np.ones(int(some.sum()))))
        solved = linprog(
            np.append(np.zeros(len(plans)), 1.0),
            A_ub=csr_matrix(matrix),
            b_ub=-apart_s[some] / unit_s,
            A_eq=np.append(np.ones(len(plans)), 0.0)[None],
            b_eq=[1.0],
            method="highs",
            # Presolving takes twice as long as solving.
            options={"presolve": False},
        )
        share = np.zeros(len(self.plans))
        share[rows] = np.maximum(solved.x[:-1], 0.0)
        dual = np.zeros(len(some))
        dual[some] = -solved.ineqlin.marginals
        # A send counts in the rows of all heads and tails up to its own.
        price = dual.reshape(load_s.shape[1:]).cumsum(axis=1).cumsum(axis=2)
        return _Solution(floats(share), float(solved.x[-1]) * unit_s, heads_s, tails_s, floats(price))

    @property
    def _unsolved(self) -> _Solution:
        nothing = floats(np.zeros(0))
        return _Solution(floats(np.zeros(len(self.plans))), np.inf, nothing, nothing, nothing)

    def round_costs(self, solution: _Solution, rounds: int, round_s: float) -> Floats:
        """Return the cost [round, link] of a send at the prices of a solution, with a mean of 1."""
        network, (orbit, members) = self.network, self._resources
        hold_s, port_hold_s = network.hold_s(self.chunk_bytes), network.port_hold_s(self.chunk_bytes)
        port = orbit[network.links + network.link_port.astype(np.int64)]
        cost = np.zeros((rounds, network.links))
        for now in range(rounds):
            early = _last_at_most(solution.heads_s, now * round_s)
            late = _last_at_most(solution.tails_s, (rounds - now) * round_s - hold_s.max())
            if early >= 0 and late >= 0:
                price = solution.price[:, early, late] / members
                cost[now] = price[orbit[: network.links]] * hold_s
                np.add.at(cost[now], network.port_user, price[port] * port_hold_s)
        mean = cost.mean()
        return floats(cost / mean + _LEAST_COST) if mean > 0 else floats(np.ones_like(cost))

    def _loads_s(self, rows: Indices, heads_s: Floats, tails_s: Floats) -> Floats:
        """Return the seconds for which each plan, with the whole buffer, holds each link and port.

        The result is [plan, orbit, head, tail]: the sends with at least this head and this tail, of a member.
        """
        plan, held, head_s, tail_s, held_s = self._holds
        place = np.full(len(self.plans), -1)
        place[rows] = np.arange(len(rows))
        some = place[plan] >= 0
        shape = len(rows), len(self._resources[1]), len(heads_s), len(tails_s)
        at = (
            place[plan[some]],
            held[some],
            _last_at_most(heads_s, head_s[some]),
            _last_at_most(tails_s, tail_s[some]),
        )
        size = math.prod(shape)
        found = np.bincount(np.ravel_multi_index(at, shape), held_s[some], size).reshape(shape)
        return floats(found[..., ::-1, ::-1].cumsum(axis=2).cumsum(axis=3)[..., ::-1, ::-1])

    @cached_property
    def _holds(self) -> tuple[Indices, Indices, Floats, Floats, Floats]:
        """(plan, orbit, head, tail, seconds of the whole buffer) for each link or port that a send holds."""
        network, (orbit, members) = self.network, self._resources
        lengths = [len(plan.link) for plan in self.plans]
        link = np.concatenate([plan.link for plan in self.plans])
        counts = np.diff(network.link_port_start)[link]
        ports = spans(network.link_port_start[:-1][link], counts)
        send = np.concatenate((np.arange(len(link)), np.repeat(np.arange(len(link)), counts)))
        held = orbit[np.concatenate((link, network.links + network.link_port[ports].astype(np.int64)))]
        held_s = np.concatenate(
            (network.hold_s(self.chunk_bytes)[link], network.port_hold_s(self.chunk_bytes)[ports])
        )
        head_s = np.concatenate([plan.head_s for plan in self.plans])[send]
        tail_s = np.concatenate([plan.tail_s for plan in self.plans])[send]
        plan = np.repeat(np.arange(len(lengths)), lengths)[send]
        return plan, held, floats(head_s), floats(tail_s), floats(self.chunks * held_s / members[held])

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


def _last_at_most(levels_s: Floats, times_s: Floats | float) -> Indices:
    """Return for each time the last level that is not above it; -1 if there is none."""
    return np.searchsorted(levels_s, np.round(times_s, _DIGITS), side="right") - 1


def _levels(times_s: Floats) -> Floats:
    """Return up to `_LEVELS` of the times, rising, the least among them."""
    found = np.unique(np.round(times_s, _DIGITS))
    if len(found) > _LEVELS:
        found = np.unique(np.quantile(found, np.linspace(0, 1, _LEVELS), method="lower"))
    return floats(found)
