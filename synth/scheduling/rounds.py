"""All_reduces of one chunk in a given number of rounds with few sends, by local search.

In a round every link may carry one sum of the chunk; all sums arrive before the next round. With twice as
many rounds as the radius of the network, a tree and its reverse need 2 (n - 1) sends among n ranks. Fewer
rounds need more sends: on a hypercube of 16 ranks the search finds 30 sends in 7 rounds and 34 in 6.

The search starts with all links in all rounds and removes sends, dear ones first, as long as every rank still
gets the complete sum. Then it adds a few sends at random and removes again, and accepts what this finds by
simulated annealing (ruin and recreate: Schrimpf et al., Journal of Computational Physics 159, 2000).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, bytes_of, floats, ints
from synth.collective import collective
from synth.kernels import Words, argsorted, compiled
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import COPY, REDUCE, Schedule

__all__ = ["RoundSearch", "RoundSends"]

# A set of contributions is one word of 64 bits.
_MOST_RANKS = 64
# The most sends to begin with: removing them takes a tenth of a second.
_MOST_BEGUN = 2000
# The largest latency of a link may be this multiple of the smallest.
_ALIKE = 1.5
# Each step of the search adds up to _ADDED sends. It accepts sends that are dearer by up to about _DEARER
# times the mean cost of a send, less and less towards the end.
_ADDED, _DEARER = 4, 0.75
# The most steps of a search, and the most sends that it runs, sends² in each step: about 10 ms.
_STEPS, _MOST_RUN = 100, 250_000
# Costs vary at random by up to this share of their mean, so that sends of equal cost go in random order.
_SPREAD = 0.3
# The weight of the direction to and from the centres in the first removal, beside random numbers in [0, 1).
_BIASES = (0.0, 0.3, 1.0, 3.0)


class RoundSends(NamedTuple):
    """Sends in the order of their rounds: the link and the round of each."""

    link: Indices
    round: Indices


@dataclass(frozen=True, eq=False)
class RoundSearch:
    """The search on one network."""

    network: Network

    @property
    def suits(self) -> bool:
        """Whether the ranks are few enough, and links join them."""
        return 2 <= self.network.ranks <= _MOST_RANKS and bool(np.isfinite(self._hops).all())

    @cached_property
    def counts(self) -> list[int]:
        """The numbers of rounds to try: the diameter to twice as many; [] if it does not suit the network.

        A round has no common length if latencies differ.
        """
        if not self.suits or self.network.alpha_s.max() > _ALIKE * self.network.alpha_s.min():
            return []
        diameter = int(self._hops.max())
        return list(range(diameter, 2 * diameter + 1))

    @cached_property
    def _hops(self) -> Floats:
        return distances_s(self.network, np.ones(self.network.links), np.arange(self.network.ranks))

    @property
    def _ends(self) -> tuple[Indices, Indices]:
        return self.network.src.astype(np.int64), self.network.dst.astype(np.int64)

    def begun(self, rounds: int, draw: np.random.Generator) -> RoundSends | None:
        """Return sends that complete every sum in ``rounds`` rounds; None if this attempt does not.

        Most attempts fail if the rounds are few, and none is made with many links. O((rounds · links)²).
        """
        if rounds * self.network.links > _MOST_BEGUN:
            return None
        cost = self._first_cost(rounds, draw)
        link = np.argsort(cost, axis=1)
        when = np.repeat(np.arange(rounds), self.network.links)
        some = np.isfinite(cost)[when, link.ravel()]
        return self._minimal(RoundSends(link.ravel()[some], when[some]), cost, 0.0, draw)

    def pruned(self, link: Indices, when: Indices, draw: np.random.Generator) -> RoundSends | None:
        """Return sends over ``link`` in the rounds ``when`` without those that can go; None if incomplete."""
        order = np.argsort(when, kind="stable")
        sends = RoundSends(link[order].astype(np.int64), when[order].astype(np.int64))
        cost = floats(np.ones((int(when.max()) + 1, self.network.links)))
        return self._minimal(sends, cost, 1.0, draw)

    def _minimal(
        self, sends: RoundSends, cost: Floats, mean: float, draw: np.random.Generator
    ) -> RoundSends | None:
        found = self._searched(sends, cost, mean, draw, steps=0)
        return found if len(found.link) else None

    def _searched(
        self, sends: RoundSends, cost: Floats, mean: float, draw: np.random.Generator, steps: int
    ) -> RoundSends:
        state, seed = _state(self.network.ranks), int(draw.integers(1 << 31))
        return _searched(*self._ends, sends, cost, mean, state, _columns(0, 0), seed, steps)

    def _first_cost(self, rounds: int, draw: np.random.Generator) -> Floats:
        """Return costs that favour sends to some centres in the first rounds, and from them in the last.

        In some of the first and last rounds each rank has only one way to and from the centres; the cost of
        other links is infinite.
        """
        src, dst, ranks = self.network.src, self.network.dst, self.network.ranks
        centres = draw.choice(ranks, draw.integers(1, max(2, ranks // 2)), replace=False)
        to, away = self._hops[:, centres].min(axis=1), self._hops[centres].min(axis=0)
        late = (2 * np.arange(rounds)[:, None] + 1) / rounds - 1
        cost = np.where(late < 0, -late * (to[dst] - to[src]), late * (away[src] - away[dst]))
        cost = cost + (1 - abs(late)) * (to[dst] + to[src]) / max(1.0, to.max())
        cost = draw.choice(_BIASES) * cost + draw.random(cost.shape)
        single = draw.integers((rounds + 1) // 2)
        order = draw.permutation(self.network.links)
        for nearer, of, some in (
            (to[dst] < to[src], src, slice(single)),
            (away[src] < away[dst], dst, slice(rounds - single, rounds)),
        ):
            ways = order[nearer[order]]
            others = np.ones(self.network.links, np.bool_)
            others[ways[np.unique(of[ways], return_index=True)[1]]] = False
            cost[some, others] = np.inf
        return floats(cost)

    def improved(self, sends: RoundSends, cost: Floats, draw: np.random.Generator) -> RoundSends:
        """Return the cheapest sends found; ``cost[round, link]`` is the cost of a send. O(sends²) a step."""
        steps = min(_STEPS, _MOST_RUN // len(sends.link) ** 2)
        return self._searched(sends, cost, float(cost.mean()), draw, steps)

    def schedule(self, chunk_bytes: int, sends: RoundSends) -> Schedule:
        """Return the schedule of one chunk."""
        total, ranks = len(sends.link), self.network.ranks
        kept, carried = np.ones(total, np.bool_), np.zeros(total, np.uint64)
        columns = _columns(total, ranks)
        count = _run(*self._ends, sends, kept, _state(ranks), carried, columns, True)
        start = columns.part_start[: count + 1]
        return Schedule(
            self.network,
            collective("all_reduce", ranks, 1),
            chunk_bytes,
            "gossip",
            0,
            ints(np.zeros(count)),
            ints(sends.link[columns.row[:count]]),
            bytes_of(columns.op[:count]),
            addend_start=ints(start),
            addend=ints(columns.part[: start[-1]]),
        )


class _State(NamedTuple):
    """The progress of a chunk, by rank.

    The first ``rows`` entries of ``row_set`` are the sums that the rank holds apart, and ``row_send`` has the
    sends that brought them (-1: its own). ``due`` are the contributions that have arrived or arrive in this
    round. ``copied`` is 1 once a complete sum has replaced all others, and 2 while it arrives. ``sent`` and
    ``got`` are the last rounds with a send from and to the rank.
    """

    rows: Indices
    row_set: Words
    row_send: Indices
    due: Words
    copied: Indices
    sent: Indices
    got: Indices


class _Columns(NamedTuple):
    """The sends that carry something: rows, operations, addends (-1: the rank's own) as in a schedule."""

    row: Indices
    op: Indices
    part_start: Indices
    part: Indices


def _state(ranks: int) -> _State:
    by_rank = [np.zeros(ranks, np.int64) for _ in range(4)]
    row_set, row_send = np.zeros((ranks, ranks + 1), np.uint64), np.zeros((ranks, ranks + 1), np.int64)
    return _State(by_rank[0], row_set, row_send, np.zeros(ranks, np.uint64), *by_rank[1:])


def _columns(sends: int, ranks: int) -> _Columns:
    """Return empty columns that are long enough for these sends."""
    row, op = np.zeros(sends, np.int64), np.zeros(sends, np.int64)
    return _Columns(row, op, np.zeros(sends + 1, np.int64), np.zeros(sends * (ranks + 1), np.int64))


@compiled
def _searched(
    src: Indices,
    dst: Indices,
    sends: RoundSends,
    cost: Floats,
    mean: float,
    state: _State,
    nothing: _Columns,
    seed: int,
    steps: int,
) -> RoundSends:
    """Return the cheapest sends that some steps find, without those that can go; none if incomplete."""
    np.random.seed(seed)
    rounds, links = cost.shape
    best = _without(src, dst, sends, cost, mean, state, nothing)
    best_cost = _total(best, cost)
    current, current_cost = best, best_cost
    for step in range(steps):
        found = _without(src, dst, _with_more(current, rounds, links), cost, mean, state, nothing)
        if not len(found.link):
            continue
        found_cost = _total(found, cost)
        dearer = -np.log(1 - np.random.random()) * _DEARER * mean * (1 - step / steps)
        if found_cost < current_cost + dearer:
            current, current_cost = found, found_cost
            if found_cost < best_cost:
                best, best_cost = found, found_cost
    return best


@compiled
def _total(sends: RoundSends, cost: Floats) -> float:
    total = 0.0
    for at in range(len(sends.link)):
        total += cost[sends.round[at], sends.link[at]]
    return total


@compiled
def _with_more(sends: RoundSends, rounds: int, links: int) -> RoundSends:
    """Return the sends and some random ones, each at a random place in its round."""
    count, added = len(sends.link), 1 + np.random.randint(_ADDED)
    link, when = np.empty(count + added, np.int64), np.empty(count + added, np.int64)
    place = np.empty(count + added)
    for at in range(count + added):
        if at < count:
            link[at], when[at] = sends.link[at], sends.round[at]
            place[at] = when[at] + (at + 1) / (count + 2)
        else:
            link[at], when[at] = np.random.randint(links), np.random.randint(rounds)
            place[at] = when[at] + np.random.random()
    order = argsorted(place)
    return RoundSends(link[order], when[order])


@compiled
def _without(
    src: Indices,
    dst: Indices,
    sends: RoundSends,
    cost: Floats,
    mean: float,
    state: _State,
    nothing: _Columns,
) -> RoundSends:
    """Return the sends without those that can go, dear ones removed first; none if a sum is incomplete.

    A send that carries nothing can go without a trial.
    """
    total = len(sends.link)
    kept, carried = np.ones(total, np.bool_), np.zeros(total, np.uint64)
    if _run(src, dst, sends, kept, state, carried, nothing, False) < 0:
        return RoundSends(sends.link[:0], sends.round[:0])
    cheapness = np.empty(total)
    for at in range(total):
        cheapness[at] = -cost[sends.round[at], sends.link[at]] - _SPREAD * mean * np.random.random()
    idle = carried == np.uint64(0)
    for at in argsorted(cheapness):
        kept[at] = False
        if idle[at]:
            continue
        if _run(src, dst, sends, kept, state, carried, nothing, False) < 0:
            kept[at] = True
        else:
            for other in range(total):
                idle[other] = carried[other] == np.uint64(0)
    return RoundSends(sends.link[kept], sends.round[kept])


@compiled
def _run(
    src: Indices,
    dst: Indices,
    sends: RoundSends,
    kept: Mask,
    state: _State,
    carried: Words,
    columns: _Columns,
    noted: bool,
) -> int:
    """Run the sends that are kept; return how many carry something, -1 if a sum stays incomplete.

    A send carries the sums of which the target lacks everything. If the source has the complete sum and this
    is not all that the target lacks, the source sends a copy; no other send may touch the target then.
    """
    none, one = np.uint64(0), np.uint64(1)
    ranks, every = len(state.rows), none
    for rank in range(ranks):
        own = one << np.uint64(rank)
        every |= own
        state.rows[rank], state.row_set[rank, 0], state.row_send[rank, 0] = 1, own, -1
        state.due[rank], state.copied[rank], state.sent[rank], state.got[rank] = own, 0, -1, -1
    count, parts, lacking, at = 0, 0, ranks, 0
    while at < len(sends.link):
        now, first, arrived = sends.round[at], at, count
        while at < len(sends.link) and sends.round[at] == now:
            u, v = src[sends.link[at]], dst[sends.link[at]]
            carried[at] = none
            missing = every & ~state.due[v]
            if kept[at] and missing != none and state.copied[v] == 0 and state.copied[u] != 2:
                held, fitting = none, none
                for row in range(state.rows[u]):
                    held |= state.row_set[u, row]
                    if state.row_set[u, row] & state.due[v] == none:
                        fitting |= state.row_set[u, row]
                copies = held == every and fitting != missing
                if not copies:
                    carried[at] = fitting
                elif state.sent[v] != now and state.got[v] != now:
                    carried[at], state.copied[v] = every, 2
            if carried[at] != none:
                state.due[v] |= carried[at]
                state.sent[u], state.got[v] = now, now
                lacking -= state.due[v] == every
                if noted:
                    columns.row[count], columns.op[count] = at, COPY if state.copied[v] == 2 else REDUCE
                    if state.copied[u] == 0:
                        for row in range(state.rows[u]):
                            if state.row_set[u, row] & ~carried[at] == none:
                                columns.part[parts] = state.row_send[u, row]
                                parts += 1
                    columns.part_start[count + 1] = parts
                count += 1
            at += 1
        for row in range(first, at):
            if carried[row] != none:
                _arrive(state, dst[sends.link[row]], carried[row], arrived, every)
                arrived += 1
    return count if lacking == 0 else -1


@compiled
def _arrive(state: _State, rank: int, carried: np.uint64, send: int, every: np.uint64) -> None:
    """Note that a send has arrived at a rank: a copy replaces the rank's sums."""
    if state.copied[rank] == 2:
        state.copied[rank], state.rows[rank], state.row_set[rank, 0] = 1, 1, every
    else:
        row = state.rows[rank]
        state.row_set[rank, row], state.row_send[rank, row] = carried, send
        state.rows[rank] = row + 1
