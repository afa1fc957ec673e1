"""Regular orders of ranks: numberings for which translations map the network to itself.

`synth.networks.translations` finds translations only where ranks are numbered regularly. A ring whose hosts
are sorted by name is not, nor is a torus or a set of hosts whose ranks a launcher has dealt out. The search
divides the ranks into orbits of equal size, and places the ranks of each orbit on the elements of a finite
abelian group, so that the relation between two ranks depends only on their orbits and on the difference of
their elements. With one orbit, such a graph is called a Cayley graph of the group. A relation is the cost of
the links between two ranks, their distance, and the number of ports that both use.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from probes.base import Floats, Indices, Mask
from synth.network import Network
from synth.networks.path_search import distances_s

__all__ = ["regular_orders"]

# Beyond so many ranks a search takes many seconds.
_MOST_RANKS = 512
# The most placements that the search for one group tries: so many for each rank, and more on few ranks. The
# most placements times ranks² of the searches for all groups, a few seconds.
_PLACED_A_RANK, _WORK, _MOST_WORK = 3, 500_000, 10_000_000_000
# Relations are refined in so many rounds. Random weights below 2^20 keep sums over ranks exact.
_ROUNDS, _MOST_WEIGHT = 2, 1 << 20
# Values are rounded to so many digits, because sums of the same numbers in another order differ.
_DIGITS = 15


def regular_orders(network: Network) -> Iterator[Indices]:
    """Yield orders of the ranks in which relations between ranks depend on orbits and differences only.

    Rank ``order[g · orbits + n]`` is element g of orbit n. The largest groups come first, and of these first
    grids, in which each link is along one dimension; then groups that map hosts to hosts; then those of the
    fewest factors. O(ranks³), and O(ranks²) for each placement.
    """
    if not 2 < network.ranks <= _MOST_RANKS:
        return
    relation = _relation(network)
    linked = np.zeros(relation.shape, np.bool_)
    linked[network.src, network.dst] = True
    _, alike = np.unique(np.diag(relation), return_counts=True)
    largest = int(np.gcd.reduce(alike))
    left = _MOST_WORK // network.ranks**2
    for size in (size for size in range(largest, 1, -1) if largest % size == 0):
        orbits = network.ranks // size
        for as_grid, sizes in itertools.product((True, False), _groups(network, orbits)):
            if as_grid and (orbits > 1 or len(sizes) == 1):
                continue
            if left <= 0:
                return
            search = _Search(relation, orbits, sizes, linked if as_grid else None)
            most = min(left, _PLACED_A_RANK * network.ranks + _WORK // network.ranks**2)
            order, placed = _placed(search, most)
            left -= placed
            if order is not None:
                yield order.reshape(orbits, size).T.ravel()


def _relation(network: Network) -> Indices:
    """Return the class of the relation of each rank to each other.

    Classes are refined as in the algorithm of Weisfeiler and Leman: two relations are the same only if as
    many third ranks have each pair of relations to both. The relation of a rank to itself then says which
    relations it has to all others.
    """
    ranks = network.ranks
    pair = network.src.astype(np.int64) * ranks + network.dst
    costs = (np.ones(network.links), network.alpha_s, network.beta_s_per_byte * 1e9)
    # The distance comes first, so that near ranks have low classes.
    distance = distances_s(network, network.travel_s(1), np.arange(ranks)).round(_DIGITS).ravel()
    features: list[Floats | Indices | Mask] = [distance]
    features += [np.bincount(pair, cost, minlength=ranks**2).round(_DIGITS) for cost in costs]
    features.append((network.host_of[:, None] == network.host_of).ravel())
    for end in (network.src, network.dst):
        used = np.unique(np.stack([end[network.port_user], network.link_port]), axis=1)
        uses = csr_array((np.ones(used.shape[1]), used), shape=(ranks, len(network.ports)))
        features.append((uses @ uses.T).toarray().ravel())
    found = _classes(features, ranks)
    draw = np.random.default_rng(0)
    for _ in range(_ROUNDS):
        weights = draw.integers(1, _MOST_WEIGHT, (2, found.max() + 1)).astype(float)
        around = weights[0][found] @ weights[1][found]
        found = _classes([found.ravel(), found.T.ravel(), around.ravel()], ranks)
    return found


def _classes(features: Sequence[Floats | Indices | Mask], ranks: int) -> Indices:
    """Return the number of the class of each pair of ranks; pairs of a class have equal features."""
    found = np.zeros(ranks**2, np.int64)
    for feature in features:
        _, value = np.unique(feature, return_inverse=True)
        _, found = np.unique(found * (value.max() + 1) + value, return_inverse=True)
    return found.reshape(ranks, ranks)


def _groups(network: Network, orbits: int) -> list[tuple[int, ...]]:
    """Return the sizes of the cyclic factors of groups; those whose first factors fill a host come first."""
    size, hosts = network.ranks // orbits, len(set(network.hosts))
    within, more = divmod(size, hosts)
    products = sorted(_products(size), key=len)
    if more or within < 2 or hosts < 2:
        return products
    pairs = itertools.product(_products(within), _products(hosts))
    by_host = sorted((inner + outer for inner, outer in pairs), key=len)
    return list(dict.fromkeys([*by_host, *products]))


def _products(number: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield the products of rising numbers from ``least`` on that are ``number``."""
    yield (number,)
    for first in range(least, math.isqrt(number) + 1):
        if number % first == 0:
            for others in _products(number // first, first):
                yield first, *others


def _placed(search: _Search, most: int) -> tuple[Indices | None, int]:
    """Return (rank of each place, placements tried); None if ``most`` of them find no order.

    The search goes in depth: each place takes the nearest of its choices first.
    """
    placed = 0
    choices = [search.choices(1)]
    while choices and placed < most:
        if not choices[-1]:
            choices.pop()
            if choices:
                search.remove(len(choices))
            continue
        placed += 1
        search.place(len(choices), choices[-1].pop())
        if len(choices) + 1 == len(search.order):
            return search.order, placed
        choices.append(search.choices(len(choices) + 1))
    return None, placed


class _Search:
    """The ranks placed so far: ``order[p]`` is the rank of place p; place 0 has rank 0.

    The group is the product of cyclic groups of these ``sizes``. The digits of a place are those of its
    element, digit n below ``sizes[n]``, and then its orbit: once one orbit is placed, the others follow from
    it. Pairs of places of the same orbits and difference must have the same relation. If it is given which
    ranks are ``linked``, places of which more than one digit differs must not be.
    """

    def __init__(self, relation: Indices, orbits: int, sizes: tuple[int, ...], linked: Mask | None) -> None:
        self._relation, self._linked = relation, linked
        self._pair, self._differs = _pairs(orbits, sizes)
        # The place beside each one: its last digit that is not 0 is less by one.
        strides = np.array([math.prod(sizes[:at]) for at in range(len(sizes) + 1)])
        place = np.arange(len(relation))
        self._beside = place - strides[np.searchsorted(strides, place, side="right") - 1]
        self.order = np.zeros(len(relation), np.int64)
        self._is_free = np.ones(len(relation), np.bool_)
        # The relation of each number of ``pair``, -1 while it is not known, and the numbers that each
        # placement made known.
        self._known = np.full(self._pair.max() + 1, -1)
        self._learnt: list[Indices] = []
        self.place(0, 0)

    def choices(self, place: int) -> list[int]:
        """Return the ranks that fit ``place``, the one nearest to the rank beside it last."""
        before = self.order[:place]
        there, back = self._pair[place, :place], self._pair[:place, place]
        fits = self._is_free & _agree(self._known[there], self._relation[:, before].T)
        fits &= _agree(self._known[back], self._relation[before])
        fits &= _agree(self._known[self._pair[place, place]][None], np.diag(self._relation)[None])
        own = before[there == back]
        fits &= (self._relation[own] == self._relation[:, own].T).all(axis=0)
        if self._linked is not None:
            fits &= ~self._linked[before[self._differs[place, :place] > 1]].any(axis=0)
        found = np.flatnonzero(fits)
        beside = self.order[self._beside[place]]
        nearest_last = np.argsort(-self._relation[beside, found], kind="stable")
        return [int(rank) for rank in found[nearest_last]]

    def place(self, place: int, rank: int) -> None:
        """Give ``rank`` to the next place, and note the relations that this makes known."""
        self.order[place] = rank
        self._is_free[rank] = False
        placed = self.order[: place + 1]
        there, back = self._pair[place, : place + 1], self._pair[: place + 1, place]
        numbers = np.concatenate([there, back])
        self._learnt.append(numbers[self._known[numbers] < 0])
        self._known[there] = self._relation[rank, placed]
        self._known[back] = self._relation[placed, rank]

    def remove(self, place: int) -> None:
        """Take back the placement of ``place``, the last one."""
        self._is_free[self.order[place]] = True
        self._known[self._learnt.pop()] = -1


def _agree(known: Indices, table: Indices) -> Mask:
    """Return for each column of ``table`` whether its entries equal ``known`` wherever that is not -1."""
    return np.asarray(((table == known[:, None]) | (known < 0)[:, None]).all(axis=0))


def _pairs(orbits: int, sizes: tuple[int, ...]) -> tuple[Indices, Indices]:
    """Return (number of each pair of places, how many digits of its elements differ).

    Pairs of the same orbits and difference have the same number.
    """
    place = np.arange(orbits * math.prod(sizes))
    shape = len(place), len(place)
    difference, differs, stride = np.zeros(shape, np.int64), np.zeros(shape, np.int64), 1
    for size in sizes:
        digit = place // stride % size
        less = (digit[:, None] - digit) % size
        difference += less * stride
        differs += less > 0
        stride *= size
    orbit = place // stride
    return (difference * orbits + orbit[:, None]) * orbits + orbit, differs
