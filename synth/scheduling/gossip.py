"""Gossip: all_reduces in which each rank sends on the sums that its neighbour lacks, by list scheduling.

This is gossiping in the postal model (Bar-Noy and Kipnis 1994) with sums instead of messages. Contributions
to a chunk first go along a shortest path tree to a root of its own. A sum of at least ``least``
contributions may leave the tree: any rank that lacks all of it may receive it. If ``least`` is 1, every link
carries sums at once, as in an exchange; if it is the number of ranks, only the finished sum goes from the
root to all. Between these, trees collect sums and their roots' neighbourhoods exchange them. So latency and
bandwidth are traded on any network, with any number of ranks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import Words, compiled, pop, push
from synth.network import Network
from synth.networks import distances_s, shortest_paths
from synth.schedules import Schedule
from synth.scheduling.block_exchange import least_bandwidth
from synth.scheduling.list_scheduling import in_start_order

__all__ = ["chunk_counts", "pays", "suits", "synthesize"]

# A set of contributions is a word of so many bits.
_MOST_RANKS = 64
# The thresholds are compared with the same trees; the _NEAR best are tried _MORE_TREES times with others.
_NEAR, _MORE_TREES = 2, 3
# An attempt of more steps, about sends · links · chunks, takes over 10 ms.
_MOST_STEPS = 2e6
# Sums may leave the tree from these shares of all contributions on; 1 is a tree of its own.
_SHARES = (0.0, 0.2, 0.35, 0.5, 0.75, 1.0)
# The orders of `_worth`. Early chunks first is the best for short buffers, the others for longer ones.
_ORDERS = 3
# The time to receive the buffer may be this multiple of the latency to the farthest rank. Above it, and
# mostly from a half on, reduce_scatter and all_gather are faster (benchmarks/sizes.py --unusual 8 --seed 8).
_FARTHEST = 1.5


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the fastest of all_reduces with several thresholds and trees.

    Raises NotApplicableError for other collectives, more than 64 ranks, and if links do not join the ranks.
    O(sends · links · chunks) for each of about a dozen attempts.
    """
    if collective.kind != "all_reduce" or collective.parts:
        raise NotApplicableError(f"gossip does not serve {collective.label}")
    if not 2 <= network.ranks <= _MOST_RANKS:
        raise NotApplicableError(f"gossip is for 2 to {_MOST_RANKS} ranks")
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
    best = min(found, key=lambda table: table.time_s)
    if best.time_s == math.inf:
        raise NotApplicableError("gossip found no way to complete every sum")
    schedule = Schedule(
        network,
        collective,
        chunk_bytes,
        "gossip",
        seed,
        ints(best.chunk),
        ints(best.link),
        bytes_of(best.op),
        addend_start=ints(best.part_start),
        addend=ints(best.part),
    )
    return in_start_order(schedule)


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

    Roots are near the middle of the network; a rank that is a root already is chosen later.
    """
    ranks, src, dst = network.ranks, network.src, network.dst
    travel_s, hold_s = network.travel_s(chunk_bytes), network.hold_s(chunk_bytes)
    far_s = distances_s(network, travel_s, np.arange(ranks))
    middle_s = (far_s.max(axis=0) + far_s.max(axis=1)) * (1 + 0.1 * draw.random(ranks))
    if not np.isfinite(middle_s).all():
        raise NotApplicableError("gossip needs ways from every rank to every other")
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


# This is one loop: all its steps share the same dozen tables, which Python would pass on to each function.
@compiled
def _run(
    costs: _Costs, trees: _Trees, ranks: int, ports: int, least: int, order: int, most: int, heap_s: Floats
) -> tuple[int, int, float, Indices, Indices, Indices]:
    """Return (sends, addends, time, table of chunk, link and op, first addend of each send, addends).

    Whenever links are free, the send that is worth most goes first. A finished sum is copied to a rank that
    could not add all that it lacks; nothing else may be on its way to that rank.
    """
    src, dst, hold_s, travel_s, port_start, port, port_hold_s = costs
    parent, subtree, dice = trees
    links, chunks = len(src), len(parent)
    none, one = np.uint64(0), np.uint64(1)
    every = none
    for rank in range(ranks):
        every |= subtree[0, rank]
    # Contributions that have arrived at each rank, and those that have arrived or are on their way.
    held, due = np.zeros((chunks, ranks), np.uint64), np.zeros((chunks, ranks), np.uint64)
    rows = np.zeros((chunks, ranks), np.int64)
    row_set = np.zeros((chunks, ranks, ranks + 1), np.uint64)
    row_send = np.full((chunks, ranks, ranks + 1), -1, np.int64)
    for rank in range(ranks):
        own = every & (one << np.uint64(rank))
        held[:, rank] = due[:, rank] = row_set[:, rank, 0] = own
        rows[:, rank] = 1 if own != none else 0
    coming, busy_s = np.zeros((chunks, ranks), np.int64), np.zeros((chunks, ranks))
    copied = np.zeros((chunks, ranks), np.int64)
    free_s, port_free_s = np.zeros(links), np.zeros(ports)
    worth, stale = np.zeros((links, chunks)), np.ones((links, chunks), np.bool_)
    table = np.zeros((3, most), np.int64)
    carries = np.zeros(most, np.uint64)
    part_start, part = np.zeros(most + 1, np.int64), np.zeros(most * 4, np.int64)
    heap_what = np.empty(len(heap_s), np.int64)
    heap, sends, parts, now_s, last_s = 0, 0, 0, 0.0, 0.0
    lacking = chunks * _size(every)
    while True:
        soon_s = now_s * (1 + 1e-12)
        while True:
            best, best_link, best_chunk = 0.0, -1, -1
            for link in range(links):
                if free_s[link] > soon_s:
                    continue
                if not _are_free(port[port_start[link] : port_start[link + 1]], port_free_s, soon_s):
                    continue
                for chunk in range(chunks):
                    u, v = src[link], dst[link]
                    if stale[link, chunk]:
                        stale[link, chunk] = False
                        missing = every & ~due[chunk, v]
                        carried = none
                        if copied[chunk, u] == 0:
                            carried = _disjoint(row_set[chunk, u, : rows[chunk, u]], due[chunk, v])
                        size = _size(carried)
                        in_tree = (
                            parent[chunk, u] == link
                            and held[chunk, u] & subtree[chunk, u] == subtree[chunk, u]
                        )
                        if carried != none and (size >= least or carried == missing or in_tree):
                            worth[link, chunk] = (
                                _worth(size, chunk, ranks, chunks, order) + dice[link, chunk] * 0.01
                            )
                        else:
                            worth[link, chunk] = 0.0
                        if (
                            held[chunk, u] == every
                            and carried != missing
                            and missing != none
                            and coming[chunk, v] == 0
                        ):
                            worth[link, chunk] = (
                                -_worth(_size(missing), chunk, ranks, chunks, order)
                                - dice[link, chunk] * 0.01
                            )
                    value = worth[link, chunk]
                    if value < 0.0 and (now_s + travel_s[link] < busy_s[chunk, v] or copied[chunk, v] > 0):
                        continue
                    if value > 0.0 and copied[chunk, v] > 0:
                        continue
                    if abs(value) > abs(best):
                        best, best_link, best_chunk = value, link, chunk
            if best_link < 0:
                break
            link, chunk = best_link, best_chunk
            u, v = src[link], dst[link]
            if sends == most or parts + ranks + 1 > len(part):
                return 0, 0, np.inf, table, part_start, part
            table[0, sends], table[1, sends], table[2, sends] = chunk, link, 1 if best > 0.0 else 0
            if copied[chunk, u] == 0:
                for at in range(rows[chunk, u]):
                    if best < 0.0 or row_set[chunk, u, at] & due[chunk, v] == none:
                        part[parts] = row_send[chunk, u, at]
                        parts += 1
                        carries[sends] |= row_set[chunk, u, at]
            part_start[sends + 1] = parts
            if best < 0.0:
                copied[chunk, v] = 1
                carries[sends] = every
            due[chunk, v] |= carries[sends]
            coming[chunk, v] += 1
            busy_s[chunk, u] = max(busy_s[chunk, u], now_s + hold_s[link])
            free_s[link] = now_s + hold_s[link]
            heap = push(heap_s, heap_what, heap, free_s[link], -1)
            for at in range(port_start[link], port_start[link + 1]):
                port_free_s[port[at]] = now_s + port_hold_s[at]
                heap = push(heap_s, heap_what, heap, port_free_s[port[at]], -1)
            heap = push(heap_s, heap_what, heap, now_s + travel_s[link], sends)
            sends += 1
            for other in range(links):
                if src[other] == v or dst[other] == v:
                    stale[other, chunk] = True
        if heap == 0:
            break
        now_s = heap_s[0]
        while heap > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            send = heap_what[0]
            heap = pop(heap_s, heap_what, heap)
            if send < 0:
                continue
            chunk, v = table[0, send], dst[table[1, send]]
            coming[chunk, v] -= 1
            held[chunk, v] |= carries[send]
            if copied[chunk, v] > 0 and table[2, send] == 0:
                copied[chunk, v] = 2
            else:
                row_set[chunk, v, rows[chunk, v]] = carries[send]
                row_send[chunk, v, rows[chunk, v]] = send
                rows[chunk, v] += 1
            if held[chunk, v] == every and every & (one << np.uint64(v)) != none:
                lacking -= 1
            last_s = now_s
            for other in range(links):
                if src[other] == v or dst[other] == v:
                    stale[other, chunk] = True
    return sends, parts, last_s if lacking == 0 else np.inf, table, part_start, part


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
