"""The best order of hosts: all orders of a small cluster, a local search in a large one.

The local search reverses pieces (2-opt: Croes 1958), moves one host (Or-opt: Or 1976), and swaps two hosts or
two ranks of a host. It is repeated after random double-bridge moves (Martin, Otto and Felten 1991). It
minimizes ``price``, and between equal prices the unevenness of link loads: most moves do not change the load
of the worst link, and thus not the price. The search is limited by the number of prices that it computes, not
by time, so that the same network gives the same order everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import factorial, prod

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from probes.base import Floats, Indices, offsets
from synth.kernels import compiled
from synth.rank_order.costs import MessageRounds, OrderCosts, RankPaths, price

__all__ = ["every_order", "improved_orders"]

# All orders are timed if together they have at most this many messages. A ring all_reduce on 8 hosts has 7! =
# 5,040 orders of 14 rounds · 8 = 112 messages.
_MOST_TIMED = 2_000_000
# _MOST_PRICED limits the messages that a search prices. The search ends after _MOST_KICKS random moves in a
# row without gain. The clustering's leaves are put into optimal order for up to _LONGEST_ORDERED hosts.
_MOST_PRICED = 100_000_000
_MOST_KICKS = 50
_LONGEST_ORDERED = 128


def every_order(costs: OrderCosts, hosts: Sequence[Indices], *, inner: bool) -> Iterator[Indices] | None:
    """Return all orders that may differ in time, the given one first; None if they are too many.

    ``hosts`` are the ranks of each host; with ``inner`` the ranks of a host are permuted, too.
    """
    pattern = costs.pattern
    fixed = pattern.symmetric and len(hosts) > 0
    inside = prod(factorial(len(ranks)) for ranks in hosts) if inner else 1
    orders = factorial(len(hosts) - fixed) * inside
    messages = int(np.bincount(pattern.round, minlength=len(pattern.repeats)) @ pattern.repeats)
    if pattern.pipelined:
        messages = len(pattern.src)
    return _orders(hosts, fixed, inner) if orders * max(1, messages) <= _MOST_TIMED else None


def _orders(hosts: Sequence[Indices], fixed: bool, inner: bool) -> Iterator[Indices]:
    first, rest = list(hosts[:fixed]), list(hosts[fixed:])
    for turned in permutations(rest):
        blocks = [*first, *turned]
        ways = (permutations(ranks.tolist()) if inner else [ranks.tolist()] for ranks in blocks)
        for way in product(*ways):
            yield np.concatenate([np.asarray(ranks, dtype=np.int64) for ranks in way])


def improved_orders(costs: OrderCosts, hosts: Sequence[Indices], *, inner: bool, seed: int) -> list[Indices]:
    """Return the order found from each start, and the best one; ``seed`` fixes the random moves."""
    random = np.random.default_rng(seed)
    state = _Search(costs, hosts, inner)
    found = [state.descended(np.asarray(start)) for start in _starts(costs, hosts)]
    best_host, best_rank, best = min(found, key=lambda one: one[2])
    kicks = 0
    while state.left > 0 and kicks < _MOST_KICKS and len(hosts) > 3:
        host, rank, cost = state.descended(_double_bridge(best_host, random), best_rank)
        kicks += 1
        if cost < best:
            best_host, best_rank, best, kicks = host, rank, cost, 0
    orders = [*(state.order(host, rank) for host, rank, _ in found), state.order(best_host, best_rank)]
    return list({tuple(order.tolist()): order for order in orders}.values())


class _Search:
    """Local search from any order of the hosts; ``left`` is the number of prices it may still compute."""

    def __init__(self, costs: OrderCosts, hosts: Sequence[Indices], inner: bool) -> None:
        self._costs, self._inner = costs, inner
        self._start = np.asarray(offsets([len(ranks) for ranks in hosts]), dtype=np.int64)
        self._ranks = np.concatenate(list(hosts)).astype(np.int64)
        self.left = max(1000, _MOST_PRICED // max(1, len(costs.pattern.src)))

    def descended(
        self, host: Indices, ranks: Indices | None = None
    ) -> tuple[Indices, Indices, tuple[float, float]]:
        """Return (order of hosts, ranks host by host, cost) at the local optimum."""
        pattern = self._costs.pattern
        host, ranks = host.astype(np.int64).copy(), (self._ranks if ranks is None else ranks).copy()
        price_s, uneven, priced = _descend(
            self._costs.messages,
            self._costs.paths,
            pattern.repeats,
            pattern.pipelined,
            self._start,
            host,
            ranks,
            self._inner,
            self.left,
        )
        self.left -= priced
        return host, ranks, (price_s, uneven)

    def order(self, host: Indices, ranks: Indices) -> Indices:
        """Return the ranks, place by place."""
        found = np.empty(len(ranks), dtype=np.int64)
        _expand(self._start, host, ranks, found)
        return found


def _starts(costs: OrderCosts, hosts: Sequence[Indices]) -> Iterator[Indices]:
    """Yield the given order, a nearest-neighbour tour, and the order of a hierarchical clustering."""
    yield np.arange(len(hosts))
    if len(hosts) < 3:
        return
    heads = np.array([ranks[0] for ranks in hosts])
    paths, between = costs.paths, np.ix_(heads, heads)
    shared = np.append(1.0 / paths.capacity, 0.0)[paths.crossed[between]].max(axis=2)
    apart = paths.alpha_s[between] + costs.size_bytes * np.maximum(paths.beta_s_per_byte[between], shared)
    np.fill_diagonal(apart, np.inf)
    tour, left = [0], set(range(1, len(hosts)))
    while left:
        tour.append(min(left, key=lambda host: (apart[tour[-1], host], host)))
        left.discard(tour[-1])
    yield np.array(tour)
    both = np.maximum(apart, apart.T)
    np.fill_diagonal(both, 0.0)
    near = squareform(both, checks=False)
    tree = linkage(near, "average")
    yield leaves_list(optimal_leaf_ordering(tree, near) if len(hosts) <= _LONGEST_ORDERED else tree)


def _double_bridge(host: Indices, random: np.random.Generator) -> Indices:
    """Cut the order into four pieces and exchange the middle two."""
    one, two, three = np.sort(random.choice(np.arange(1, len(host)), 3, replace=False))
    return np.concatenate([host[:one], host[two:three], host[one:two], host[three:]])


@compiled
def _expand(start: Indices, host: Indices, ranks: Indices, order: Indices) -> None:
    place = 0
    for one in host:
        for at in range(start[one], start[one + 1]):
            order[place] = ranks[at]
            place += 1


@compiled
def _moved(kind: int, first: int, last: int, host: Indices, tried: Indices) -> None:
    """Write ``host`` to ``tried`` after a move.

    Kind 0 swaps the ends of a piece, 1 reverses it, 2 moves its last host to its front, 3 its first to its
    end.
    """
    tried[:] = host
    if kind == 0:
        tried[first], tried[last] = host[last], host[first]
    elif kind == 1:
        for at in range(first, last + 1):
            tried[at] = host[last - (at - first)]
    elif kind == 2:
        tried[first] = host[last]
        for at in range(first, last):
            tried[at + 1] = host[at]
    else:
        tried[last] = host[first]
        for at in range(first, last):
            tried[at] = host[at + 1]


@compiled
def _is_better(price_s: float, uneven: float, than_s: float, than_uneven: float) -> bool:
    """Return whether an order is cheaper by more than rounding, or equally cheap and more even."""
    if price_s < than_s * (1 - 1e-9):
        return True
    return price_s <= than_s * (1 + 1e-9) and uneven < than_uneven * (1 - 1e-9)


@compiled
def _descend(
    messages: MessageRounds,
    paths: RankPaths,
    repeats: Floats,
    pipelined: bool,
    start: Indices,
    host: Indices,
    ranks: Indices,
    inner: bool,
    most: int,
) -> tuple[float, float, int]:
    """Improve ``host`` and ``ranks`` in place until no move helps or ``most`` orders are priced.

    Return (price, unevenness, number of orders that were priced).
    """
    hosts, busy = len(host), np.zeros(len(paths.capacity))
    order, tried = np.empty(len(ranks), dtype=np.int64), np.empty(hosts, dtype=np.int64)
    _expand(start, host, ranks, order)
    best_s, best_uneven = price(messages, paths, repeats, order, pipelined, busy)
    priced, better = 1, True
    while better and priced < most:
        better = False
        for first in range(hosts):
            for last in range(first + 1, hosts):
                # On a piece of two hosts all moves are the same.
                for kind in range(1 if last == first + 1 else 4):
                    _moved(kind, first, last, host, tried)
                    _expand(start, tried, ranks, order)
                    price_s, uneven = price(messages, paths, repeats, order, pipelined, busy)
                    priced += 1
                    if _is_better(price_s, uneven, best_s, best_uneven):
                        host[:], best_s, best_uneven, better = tried, price_s, uneven, True
        for one in range(hosts if inner else 0):
            for first in range(start[one], start[one + 1]):
                for last in range(first + 1, start[one + 1]):
                    ranks[first], ranks[last] = ranks[last], ranks[first]
                    _expand(start, host, ranks, order)
                    price_s, uneven = price(messages, paths, repeats, order, pipelined, busy)
                    priced += 1
                    if _is_better(price_s, uneven, best_s, best_uneven):
                        best_s, best_uneven, better = price_s, uneven, True
                    else:
                        ranks[first], ranks[last] = ranks[last], ranks[first]
    return best_s, best_uneven, priced
