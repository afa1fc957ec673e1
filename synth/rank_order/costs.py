"""The predicted time of a library's algorithm with a given order of ranks.

``time_s`` simulates message by message. A message starts once both of its ends have finished their earlier
rounds, as MPI sends large messages; messages that meet at a port share it by max-min fairness. ``price_s``
adds up rounds, each as long as its busiest link or port. It is cheap enough for every step of a search. For a
pipelined algorithm, whose messages are all in flight at once, the two functions return the same time.

Ranks without a link between them use the fastest path through other ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, UsageError
from synth.kernels import compiled, copy_into, pop
from synth.network import Network, fastest_links
from synth.networks import shortest_paths
from synth.rank_order.algorithms import Pattern
from synth.simulation import Flows, carry, next_s, share

__all__ = ["MessageRounds", "OrderCosts", "RankPaths", "both_ways", "paths_of", "price"]

# Repeated rounds are simulated up to this many messages, then extrapolated.
_MOST_MESSAGES = 4096


class RankPaths(NamedTuple):
    """Paths between ranks: latency, seconds per byte, and the shared resources crossed, padded with -1.

    ``capacity`` is the rate of each resource in bytes a second.
    """

    alpha_s: Floats
    beta_s_per_byte: Floats
    crossed: Indices
    capacity: Floats


def paths_of(network: Network, size_bytes: int) -> RankPaths:
    """Return the paths between all ranks; raises UsageError if two ranks have none."""
    ranks = network.ranks
    direct = fastest_links(network, size_bytes)
    rate = 1.0 / np.maximum(network.beta_s_per_byte, 1e-18)
    if len(direct) == ranks * (ranks - 1):
        ways = {pair: [row] for pair, row in direct.items()}
        capacity = np.zeros(len(network.ports))
        np.maximum.at(capacity, network.link_port, rate[network.port_user])
        held = {row: network.ports_of(row).tolist() for row in direct.values()}
    else:
        ways = _routed(network, size_bytes)
        capacity = np.concatenate([rate, np.zeros(len(network.ports))])
        np.maximum.at(capacity, network.links + network.link_port, rate[network.port_user])
        held = {row: network.resources_of(row) for row in range(network.links)}
    width = max((len({one for row in way for one in held[row]}) for way in ways.values()), default=0)
    alpha, beta = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    crossed = np.full((ranks, ranks, max(1, width)), -1, dtype=np.int64)
    for (src, dst), way in ways.items():
        alpha[src, dst] = network.alpha_s[way].sum()
        beta[src, dst] = network.beta_s_per_byte[way].max()
        shared = sorted({one for row in way for one in held[row]})
        crossed[src, dst, : len(shared)] = shared
    return RankPaths(alpha, beta, crossed, capacity)


def both_ways(paths: RankPaths, host_of: Indices, share: float) -> RankPaths:
    """Return ``paths`` with a limit on two ranks of different hosts that send to each other at once.

    The two directions of each such pair share one more resource, of ``share`` times the rate of the faster
    direction. With ``share`` ≥ 1 it does not limit messages in one direction alone.
    """
    ranks, first = len(paths.alpha_s), len(paths.capacity)
    pairs = [(a, b) for a in range(ranks) for b in range(a) if host_of[a] != host_of[b]]
    crossed = np.full((ranks, ranks, paths.crossed.shape[2] + 1), -1, dtype=np.int64)
    crossed[:, :, :-1] = paths.crossed
    known = (paths.crossed >= 0).sum(axis=2)
    capacity = np.empty(len(pairs))
    for number, (a, b) in enumerate(pairs):
        fastest = min(paths.beta_s_per_byte[a, b], paths.beta_s_per_byte[b, a])
        capacity[number] = share / max(float(fastest), 1e-18)
        for src, dst in ((a, b), (b, a)):
            crossed[src, dst, known[src, dst]] = first + number
    return paths._replace(crossed=crossed, capacity=np.concatenate([paths.capacity, capacity]))


def _routed(network: Network, size_bytes: int) -> dict[tuple[int, int], list[int]]:
    found = shortest_paths(network.ranks, network.src, network.dst, network.travel_s(size_bytes))
    if not np.isfinite(found.cost).all():
        src, dst = np.argwhere(~np.isfinite(found.cost))[0].tolist()
        raise UsageError(f"{network.name}: there is no path from rank {src} to rank {dst}")
    ranks = range(network.ranks)
    return {(src, dst): found.edges(src, dst) for src in ranks for dst in ranks if src != dst}


@dataclass(frozen=True, eq=False)
class OrderCosts:
    """The costs of orders of ranks for one pattern; ``order[place]`` is the rank at that place."""

    pattern: Pattern
    paths: RankPaths
    size_bytes: int

    def price_s(self, order: Indices) -> tuple[float, float]:
        """Return (seconds round by round, unevenness of the loads of links and ports, to break ties)."""
        pattern, busy = self.pattern, np.zeros(len(self.paths.capacity))
        found = price(self.messages, self.paths, pattern.repeats, order, pattern.pipelined, busy)
        return float(found[0]), float(found[1])

    def time_s(self, order: Indices) -> float:
        pattern = self.pattern
        if pattern.pipelined or pattern.places < 2:
            return self.price_s(order)[0]
        rounds = len(pattern.repeats)
        most = max(rounds, _MOST_MESSAGES // pattern.places)
        repeats = pattern.repeats.astype(np.int64)
        if rounds > 1 or repeats[0] <= most:
            return float(_follow(self.messages, self.paths, np.repeat(np.arange(rounds), repeats), order))
        half, whole = (
            float(_follow(self.messages, self.paths, np.zeros(steps, np.int64), order))
            for steps in (most // 2, most)
        )
        return whole + (int(repeats[0]) - most) * (whole - half) / (most - most // 2)

    @cached_property
    def messages(self) -> MessageRounds:
        pattern = self.pattern
        start = np.searchsorted(pattern.round, np.arange(len(pattern.repeats) + 1))
        pair = np.unique(pattern.src * pattern.places + pattern.dst, return_inverse=True)[1]
        size = pattern.share * self.size_bytes
        return MessageRounds(start, pattern.src, pattern.dst, size, pair.astype(np.int64))


class MessageRounds(NamedTuple):
    """The messages by round: round k has ``start[k]:start[k + 1]``; ``pair`` numbers the (src, dst) pairs."""

    start: Indices
    src: Indices
    dst: Indices
    size: Floats
    pair: Indices


@compiled
def price(
    messages: MessageRounds, paths: RankPaths, repeats: Floats, order: Indices, pipelined: bool, busy: Floats
) -> tuple[float, float]:
    """Return (seconds round by round, unevenness of the loads of links and ports); O(messages).

    ``busy`` is working memory, one entry a resource.
    """
    busy[:] = 0.0
    own = np.zeros(len(messages.pair) if pipelined else 0)
    total_s, longest_s, uneven = 0.0, 0.0, 0.0
    for k in range(len(repeats)):
        alpha_s, round_s = 0.0, 0.0
        for m in range(messages.start[k], messages.start[k + 1]):
            src, dst = order[messages.src[m]], order[messages.dst[m]]
            alpha_s = max(alpha_s, paths.alpha_s[src, dst])
            link_s = messages.size[m] * paths.beta_s_per_byte[src, dst]
            if pipelined:
                own[messages.pair[m]] += link_s
                link_s = own[messages.pair[m]]
            round_s = max(round_s, link_s)
            uneven += repeats[k] * link_s * link_s
            for at in range(paths.crossed.shape[2]):
                one = paths.crossed[src, dst, at]
                if one < 0:
                    break
                added = messages.size[m] / paths.capacity[one]
                uneven += added * (2 * busy[one] + added)
                busy[one] += added
                round_s = max(round_s, busy[one])
        longest_s = max(longest_s, round_s)
        total_s += repeats[k] * alpha_s
        if not pipelined:
            total_s += repeats[k] * round_s
            busy[:] = 0.0
    return total_s + (longest_s if pipelined else 0.0), uneven


@compiled
def _ends_by_round(messages: MessageRounds, ranks: int) -> tuple[Indices, Indices]:
    """Return, for each round and place, the message it sends and the place it receives from; -1 for none."""
    kinds = len(messages.start) - 1
    sent = np.full((kinds, ranks), -1, dtype=np.int64)
    sender = np.full((kinds, ranks), -1, dtype=np.int64)
    for k in range(kinds):
        for m in range(messages.start[k], messages.start[k + 1]):
            sent[k, messages.src[m]] = m
            sender[k, messages.dst[m]] = messages.src[m]
    return sent, sender


@compiled
def _start_flow(flows: Flows, paths: RankPaths, place: int, src: int, dst: int, size_bytes: float) -> None:
    """Start the flow of ``place``, with its message from rank ``src`` to ``dst``."""
    width, resources, places = paths.crossed.shape[2], len(paths.capacity), len(flows.head)
    first = place * (width + 1)
    flows.capacity[place] = 1.0 / max(paths.beta_s_per_byte[src, dst], 1e-18)
    flows.crossed[first] = place
    for at in range(width):
        one = paths.crossed[src, dst, at]
        flows.crossed[first + 1 + at] = places + (one if one >= 0 else resources)
    flows.alpha_s[place] = paths.alpha_s[src, dst]
    flows.size[place] = size_bytes
    flows.left[place] = size_bytes
    flows.head[place] = place


@compiled
def _follow(messages: MessageRounds, paths: RankPaths, rounds: Indices, order: Indices) -> float:
    """Return the seconds until the last message of all ``rounds`` has arrived."""
    ranks, width = len(order), paths.crossed.shape[2]
    resources = len(paths.capacity)
    sent, sender = _ends_by_round(messages, ranks)
    # Each place has one flow, the message that it sends. It crosses its own link, then ports; the rest of its
    # row is padded with a resource of infinite capacity.
    capacity = np.empty(ranks + resources + 1)
    copy_into(capacity[ranks:], paths.capacity)
    capacity[ranks + resources] = np.inf
    crossed = np.full(ranks * (width + 1), ranks + resources, dtype=np.int64)
    flows = Flows(
        np.full(ranks, -1, dtype=np.int64),
        np.full(ranks, -1, dtype=np.int64),
        np.full(ranks, -1, dtype=np.int64),
        np.zeros(ranks),
        np.zeros(ranks),
        np.zeros(ranks),
        np.zeros(ranks),
        capacity,
        np.arange(ranks + 1) * (width + 1),
        crossed,
    )
    # The round of each place, and how many of its messages in that round are still unfinished.
    at_round = np.full(ranks, -1, dtype=np.int64)
    waits = np.zeros(ranks, dtype=np.int64)
    key, what = np.empty(2 * ranks + 2), np.empty(2 * ranks + 2, dtype=np.int64)
    events, now_s = 0, 0.0
    queue = np.arange(ranks)
    waiting = ranks
    while True:
        began = False
        while waiting > 0:
            waiting -= 1
            place = queue[waiting]
            k = at_round[place] + 1
            while k < len(rounds) and sent[rounds[k], place] < 0 and sender[rounds[k], place] < 0:
                k += 1
            at_round[place] = k
            if k == len(rounds):
                continue
            kind = rounds[k]
            waits[place] = int(sent[kind, place] >= 0) + int(sender[kind, place] >= 0)
            for both in range(2):
                src = place if both == 0 else sender[kind, place]
                if src < 0 or sent[kind, src] < 0:
                    continue
                m = sent[kind, src]
                dst = messages.dst[m]
                if at_round[src] != k or at_round[dst] != k:
                    continue
                _start_flow(flows, paths, src, order[src], order[dst], messages.size[m])
                began = True
        if began:
            share(flows)
        until_s = next_s(flows, now_s, key[0] if events > 0 else np.inf)
        if until_s == np.inf:
            return now_s
        events, ended = carry(flows, now_s, until_s, key, what, events)
        now_s = until_s
        if ended:
            share(flows)
        while events > 0 and key[0] <= now_s:
            src = what[0]
            events = pop(key, what, events)
            k = at_round[src]
            dst = messages.dst[sent[rounds[k], src]]
            for end in (src, dst):
                waits[end] -= 1
                if waits[end] == 0:
                    queue[waiting] = end
                    waiting += 1
