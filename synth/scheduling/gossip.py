"""Gossip: all_reduces in which ranks forward the sums that neighbours lack, by list scheduling.

This is gossiping in the postal model (Bar-Noy and Kipnis 1994) with sums instead of messages. Contributions
to a chunk first go along a shortest path tree to the chunk's root. A sum of at least ``least`` contributions
may leave the tree: any rank that lacks all of these contributions may receive the sum. If ``least`` is 1,
every link carries sums at once, as in an exchange. If ``least`` is the number of ranks, only the finished sum
goes from the root to all. For values between, trees collect sums, and ranks near the roots exchange them. So
latency is traded for bandwidth on any network, with any number of ranks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Mask, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import Words, compiled, pop, push
from synth.network import Network
from synth.networks import distances_s, shortest_paths
from synth.schedules import Schedule
from synth.scheduling.block_exchange import least_bandwidth
from synth.scheduling.list_scheduling import in_order
from synth.scheduling.precedence import copies_wait
from synth.simulation import replay

__all__ = ["chunk_counts", "pays", "suits", "synthesize", "varied"]

# A set of contributions is one word of 64 bits.
_MOST_RANKS = 64
# All thresholds and orders are first tried with the same trees; then the _NEAR best with _MORE_TREES others.
_NEAR, _MORE_TREES = 2, 3
# An attempt of more steps, about sends · links · chunks, takes over 10 ms.
_MOST_STEPS = 2e6
# Thresholds to try: a sum may leave its tree once it has this share of all contributions.
_SHARES = (0.0, 0.2, 0.35, 0.5, 0.75, 1.0)
# The orders of `_worth`. Early chunks first is the best for short buffers, the others for longer ones.
_ORDERS = 3
# The time to receive the buffer may be this multiple of the latency to the farthest rank. Above 1.5, and
# mostly above 0.5, reduce_scatter and all_gather are faster (benchmarks/sizes.py --unusual 8 --seed 8).
_FARTHEST = 1.5
# Events whose times differ by less than this share are simultaneous, because sums of floats round.
_SLACK = 1e-12


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the fastest of all_reduces with several thresholds and trees.

    Raises NotApplicableError for other collectives, more than 64 ranks, and if links do not join the ranks.
    O(sends · links · chunks) for each of about a dozen attempts.
    """
    if collective.kind != "all_reduce" or collective.parts:
        raise NotApplicableError(f"gossip does not serve {collective.label}")
    if not 2 <= network.ranks <= _MOST_RANKS:
        raise NotApplicableError(f"gossip is for 2 to {_MOST_RANKS} ranks")
    found = [one for one in _attempts(network, collective, chunk_bytes, seed) if one.time_s < math.inf]
    if not found:
        raise NotApplicableError("gossip found no way to complete every sum")
    for best in sorted(found, key=lambda table: table.time_s):
        schedule = best.schedule(network, collective, chunk_bytes, seed)
        timing = replay(schedule)
        if copies_wait(schedule, timing, start_later=True):
            return in_order(schedule, np.argsort(timing.start_s, kind="stable"))
    raise NotApplicableError("gossip found no way in which copies wait for what they overwrite")


def _attempts(network: Network, collective: Collective, chunk_bytes: int, seed: int) -> list[_Table]:
    """Return the sends for all thresholds and orders, and for more trees with the best of these."""
    draw = np.random.default_rng(seed)
    members = collective.participants
    leasts = sorted({max(1, math.ceil(share * len(members))) for share in _SHARES})
    rules = [(least, order) for least in leasts for order in range(_ORDERS)]
    trees = _trees(network, members, collective.chunks, chunk_bytes, draw)
    found = [_gossip(network, collective.chunks, chunk_bytes, trees, *rule) for rule in rules]
    near = np.argsort([table.time_s for table in found], kind="stable")[:_NEAR].tolist()
    for _ in range(_MORE_TREES):
        trees = _trees(network, members, collective.chunks, chunk_bytes, draw)
        found += [_gossip(network, collective.chunks, chunk_bytes, trees, *rules[at]) for at in near]
    return found


def varied(network: Network, collective: Collective, chunk_bytes: int, seed: int = 0) -> list[Schedule]:
    """Return the schedules of all attempts, for mixtures of their chunks; [] where `synthesize` refuses."""
    if not suits(network, collective):
        return []
    return [
        one.schedule(network, collective, chunk_bytes, seed)
        for one in _attempts(network, collective, chunk_bytes, seed)
        if one.time_s < math.inf
    ]


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer: few, or some multiples of the ranks."""
    most = math.sqrt(_MOST_STEPS / (4 * network.ranks * max(1, network.links)))
    counts = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, network.ranks, 2 * network.ranks}
    return sorted(count for count in counts if count <= most)


def suits(network: Network, collective: Collective) -> bool:
    """Return whether this is an all_reduce of few enough ranks."""
    few = 2 <= network.ranks <= _MOST_RANKS and not network.queues
    return collective.kind == "all_reduce" and not collective.parts and few


def pays(network: Network, collective: Collective, chunk_bytes: int) -> bool:
    """Return whether the buffer is received in about the latency to the farthest rank, or less."""
    farthest_s = float(distances_s(network, network.travel_s(1), np.arange(network.ranks)).max())
    return collective.chunks * chunk_bytes <= _FARTHEST * farthest_s * least_bandwidth(network)


class _Trees(NamedTuple):
    """For each chunk and rank: the link to its parent (-1 at the root) and its subtree as bits.

    ``dice`` holds a number in [0, 1) for each link and chunk, which decides between equal sends.
    """

    parent: Indices
    subtree: Words
    dice: Floats


class _Table(NamedTuple):
    """Sends in the order of their starts, their addends, and the time of the last arrival."""

    chunk: Indices
    link: Indices
    op: Indices
    part_start: Indices
    part: Indices
    time_s: float

    def schedule(self, network: Network, collective: Collective, chunk_bytes: int, seed: int) -> Schedule:
        return Schedule(
            network,
            collective,
            chunk_bytes,
            "gossip",
            seed,
            ints(self.chunk),
            ints(self.link),
            bytes_of(self.op),
            addend_start=ints(self.part_start),
            addend=ints(self.part),
        )


class _State(NamedTuple):
    """The progress of an attempt, by chunk and rank unless said otherwise.

    ``held`` are the contributions that have arrived, ``due`` these and the ones on their way. The first
    ``rows`` entries of ``row_set`` are the sums that have arrived separately; ``row_send`` has the sends that
    brought them (-1: the rank's own). ``coming`` counts the sends on their way to the rank. ``copied`` is 1
    while a finished sum is on its way, and 2 once it is there. A rank sends a chunk until ``busy_s``, and
    links and ports carry sends until ``free_s`` and ``port_free_s``. By link and chunk, ``worth`` is the
    worth of a send, and ``stale`` says that the worth has to be computed again.
    """

    held: Words
    due: Words
    rows: Indices
    row_set: Words
    row_send: Indices
    coming: Indices
    copied: Indices
    busy_s: Floats
    free_s: Floats
    port_free_s: Floats
    worth: Floats
    stale: Mask


class _Costs(NamedTuple):
    """The ends and ports of each link, and the seconds for which a chunk holds them and travels."""

    src: Indices
    dst: Indices
    hold_s: Floats
    travel_s: Floats
    port_start: Indices
    port: Indices
    port_hold_s: Floats


def _trees(
    network: Network, members: Indices, chunks: int, chunk_bytes: int, draw: np.random.Generator
) -> _Trees:
    """Return a tree for each chunk along nearly shortest paths, and rolled dice.

    Roots are near the middle of the network; ranks that are the root of fewer chunks are preferred.
    """
    ranks, src, dst = network.ranks, network.src, network.dst
    travel_s, hold_s = network.travel_s(chunk_bytes), network.hold_s(chunk_bytes)
    far_s = distances_s(network, travel_s, np.arange(ranks))
    middle_s = (far_s.max(axis=0) + far_s.max(axis=1)) * (1 + 0.1 * draw.random(ranks))
    if not np.isfinite(middle_s).all():
        raise NotApplicableError("gossip needs a path from every rank to every other")
    taking_part = set(members.tolist())
    used, roots = np.zeros(network.links), np.zeros(ranks)
    parent, subtree = np.full((chunks, ranks), -1, np.int64), np.zeros((chunks, ranks), np.uint64)
    for chunk in range(chunks):
        root = int(np.argmin(middle_s * (1 + 0.3 * roots)))
        roots[root] += 1
        cost_s = (travel_s + hold_s * used) * (1 + 0.1 * draw.random(network.links))
        # Paths to the root are paths from it over links turned round.
        paths = shortest_paths(ranks, dst, src, cost_s, np.array([root]))
        parent[chunk] = paths.edge[0]
        parent[chunk, root] = -1
        below = [own if rank in taking_part else 0 for rank, own in enumerate(1 << n for n in range(ranks))]
        for rank in np.argsort(-paths.cost[0], kind="stable").tolist():
            if rank != root:
                below[int(dst[parent[chunk, rank]])] |= below[rank]
                used[parent[chunk, rank]] += 1
        subtree[chunk] = np.array(below, np.uint64)
    return _Trees(parent, subtree, draw.random((network.links, chunks)))


def _gossip(network: Network, chunks: int, chunk_bytes: int, trees: _Trees, least: int, order: int) -> _Table:
    """Return the sends of one attempt; its time is infinite if some rank lacks contributions in the end."""
    costs = _Costs(
        network.src.astype(np.int64),
        network.dst.astype(np.int64),
        network.hold_s(chunk_bytes),
        network.travel_s(chunk_bytes),
        network.link_port_start.astype(np.int64),
        network.link_port.astype(np.int64),
        network.port_hold_s(chunk_bytes),
    )
    most = chunks * network.ranks * (network.ranks + 1)
    heap = np.empty(most * (3 + int(np.diff(network.link_port_start).max(initial=0))) + 1)
    sends, parts, time_s, table, part_start, part = _run(
        costs, trees, network.ranks, len(network.ports), least, order, most, heap
    )
    return _Table(
        table[0, :sends], table[1, :sends], table[2, :sends], part_start[: sends + 1], part[:parts], time_s
    )


@compiled
def _run(
    costs: _Costs, trees: _Trees, ranks: int, ports: int, least: int, order: int, most: int, heap_s: Floats
) -> tuple[int, int, float, Indices, Indices, Indices]:
    """Return (sends, addends, time, table of chunk, link and op, first addend of each send, addends).

    Whenever links are free, the send that is worth most goes first. A finished sum is copied to a rank that
    could not add all that it lacks; nothing else may be on its way to that rank.
    """
    src, dst, hold_s, travel_s = costs.src, costs.dst, costs.hold_s, costs.travel_s
    chunks = len(trees.parent)
    none, one = np.uint64(0), np.uint64(1)
    every = none
    for rank in range(ranks):
        every |= trees.subtree[0, rank]
    state = _started(chunks, ranks, len(src), ports, every)
    table = np.zeros((3, most), np.int64)
    carries = np.zeros(most, np.uint64)
    part_start, part = np.zeros(most + 1, np.int64), np.zeros(most * 4, np.int64)
    heap_what = np.empty(len(heap_s), np.int64)
    heap, sends, parts, now_s, last_s = 0, 0, 0, 0.0, 0.0
    lacking = chunks * _size(every)
    while True:
        while True:
            best, link, chunk = _best(costs, trees, state, every, least, order, now_s)
            if link < 0:
                break
            if sends == most or parts + ranks + 1 > len(part):
                return 0, 0, np.inf, table, part_start, part
            u, v = src[link], dst[link]
            table[0, sends], table[1, sends], table[2, sends] = chunk, link, 1 if best > 0.0 else 0
            if state.copied[chunk, u] == 0:
                for at in range(state.rows[chunk, u]):
                    if best < 0.0 or state.row_set[chunk, u, at] & state.due[chunk, v] == none:
                        part[parts] = state.row_send[chunk, u, at]
                        parts += 1
                        carries[sends] |= state.row_set[chunk, u, at]
            part_start[sends + 1] = parts
            if best < 0.0:
                state.copied[chunk, v] = 1
                carries[sends] = every
            state.due[chunk, v] |= carries[sends]
            state.coming[chunk, v] += 1
            state.busy_s[chunk, u] = max(state.busy_s[chunk, u], now_s + hold_s[link])
            state.free_s[link] = now_s + hold_s[link]
            heap = push(heap_s, heap_what, heap, state.free_s[link], -1)
            for at in range(costs.port_start[link], costs.port_start[link + 1]):
                port = costs.port[at]
                state.port_free_s[port] = now_s + costs.port_hold_s[at]
                heap = push(heap_s, heap_what, heap, state.port_free_s[port], -1)
            heap = push(heap_s, heap_what, heap, now_s + travel_s[link], sends)
            sends += 1
            _outdate(costs, state, chunk, v)
        if heap == 0:
            break
        now_s = heap_s[0]
        while heap > 0 and heap_s[0] <= now_s * (1 + _SLACK):
            send = heap_what[0]
            heap = pop(heap_s, heap_what, heap)
            if send < 0:
                continue
            chunk, v = table[0, send], dst[table[1, send]]
            _arrive(state, send, chunk, v, carries[send], table[2, send] == 0)
            if state.held[chunk, v] == every and every & (one << np.uint64(v)) != none:
                lacking -= 1
            last_s = now_s
            _outdate(costs, state, chunk, v)
    return sends, parts, last_s if lacking == 0 else np.inf, table, part_start, part


@compiled
def _started(chunks: int, ranks: int, links: int, ports: int, every: np.uint64) -> _State:
    """Return the state in which each rank that takes part has its own contribution to each chunk."""
    state = _State(
        np.zeros((chunks, ranks), np.uint64),
        np.zeros((chunks, ranks), np.uint64),
        np.zeros((chunks, ranks), np.int64),
        np.zeros((chunks, ranks, ranks + 1), np.uint64),
        np.full((chunks, ranks, ranks + 1), -1, np.int64),
        np.zeros((chunks, ranks), np.int64),
        np.zeros((chunks, ranks), np.int64),
        np.zeros((chunks, ranks)),
        np.zeros(links),
        np.zeros(ports),
        np.zeros((links, chunks)),
        np.ones((links, chunks), np.bool_),
    )
    for rank in range(ranks):
        own = every & (np.uint64(1) << np.uint64(rank))
        state.held[:, rank] = own
        state.due[:, rank] = own
        state.row_set[:, rank, 0] = own
        state.rows[:, rank] = 1 if own != np.uint64(0) else 0
    return state


@compiled
def _best(
    costs: _Costs, trees: _Trees, state: _State, every: np.uint64, least: int, order: int, now_s: float
) -> tuple[float, int, int]:
    """Return (worth, link, chunk) of the send over a free link that is worth most; link -1 if none is.

    The worth is above 0 for a sum, and below 0 for a copy of a finished sum.
    """
    best, best_link, best_chunk = 0.0, -1, -1
    soon_s = now_s * (1 + _SLACK)
    for link in range(len(costs.src)):
        if state.free_s[link] > soon_s:
            continue
        ports = costs.port[costs.port_start[link] : costs.port_start[link + 1]]
        if not _are_free(ports, state.port_free_s, soon_s):
            continue
        v = costs.dst[link]
        for chunk in range(len(trees.parent)):
            if state.stale[link, chunk]:
                state.stale[link, chunk] = False
                state.worth[link, chunk] = _worth_over(costs, trees, state, every, least, order, link, chunk)
            value = state.worth[link, chunk]
            early = now_s + costs.travel_s[link] < state.busy_s[chunk, v]
            if state.copied[chunk, v] > 0 or (value < 0.0 and early):
                continue
            if abs(value) > abs(best):
                best, best_link, best_chunk = value, link, chunk
    return best, best_link, best_chunk


@compiled
def _worth_over(
    costs: _Costs,
    trees: _Trees,
    state: _State,
    every: np.uint64,
    least: int,
    order: int,
    link: int,
    chunk: int,
) -> float:
    """Return the worth of a send of a chunk over a link: below 0 for a copy, 0 if there is none to make."""
    u, v = costs.src[link], costs.dst[link]
    chunks, ranks = trees.parent.shape
    none = np.uint64(0)
    held, missing = state.held[chunk, u], every & ~state.due[chunk, v]
    dice = float(trees.dice[link, chunk]) * 0.01
    carried = none
    if state.copied[chunk, u] == 0:
        carried = _disjoint(state.row_set[chunk, u, : state.rows[chunk, u]], state.due[chunk, v])
    if held == every and carried != missing and missing != none and state.coming[chunk, v] == 0:
        return -_worth(_size(missing), chunk, ranks, chunks, order) - dice
    size, subtree = _size(carried), trees.subtree[chunk, u]
    in_tree = trees.parent[chunk, u] == link and held & subtree == subtree
    if carried != none and (size >= least or carried == missing or in_tree):
        return _worth(size, chunk, ranks, chunks, order) + dice
    return 0.0


@compiled
def _arrive(state: _State, send: int, chunk: int, rank: int, carried: np.uint64, is_copy: bool) -> None:
    """Note that a send has arrived at a rank: a copy replaces the rank's sum, other sends add to it."""
    state.coming[chunk, rank] -= 1
    state.held[chunk, rank] |= carried
    if state.copied[chunk, rank] > 0 and is_copy:
        state.copied[chunk, rank] = 2
    else:
        row = state.rows[chunk, rank]
        state.row_set[chunk, rank, row] = carried
        state.row_send[chunk, rank, row] = send
        state.rows[chunk, rank] += 1


@compiled
def _outdate(costs: _Costs, state: _State, chunk: int, rank: int) -> None:
    """Mark the worth of a chunk's sends from and to a rank as stale."""
    for link in range(len(costs.src)):
        if costs.src[link] == rank or costs.dst[link] == rank:
            state.stale[link, chunk] = True


@compiled
def _are_free(ports: Indices, free_s: Floats, now_s: float) -> bool:
    busy = 0
    for port in ports:
        busy += free_s[port] > now_s
    return busy == 0


@compiled
def _disjoint(sets: Words, due: np.uint64) -> np.uint64:
    """Return the union of the sets that have nothing in common with ``due``."""
    union = np.uint64(0)
    for one in sets:
        if one & due == np.uint64(0):
            union |= one
    return union


@compiled
def _worth(size: int, chunk: int, ranks: int, chunks: int, order: int) -> float:
    """Return the priority of a send of ``size`` contributions under one of the three orders.

    They are: large sums first, early chunks first, and small sums first.
    """
    share = size / (ranks + 1)
    if order == 0:
        return 1.0 + share
    return chunks - chunk + share if order == 1 else 2.0 - share


@compiled
def _size(contributions: np.uint64) -> int:
    """Return the number of bits that are set."""
    count, left = 0, contributions
    while left != np.uint64(0):
        left &= left - np.uint64(1)
        count += 1
    return count
