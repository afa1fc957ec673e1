"""All_reduces of one chunk, dimension by dimension, in rounds.

The dimensions are the coordinates of the network's translations: those of a torus, or the ranks of a host and
the hosts. Along a dimension, the ranks of each line either exchange their sums, or one rank of the line
collects the sums and hands out the result at the end. An exchange takes half as many rounds; a collection
keeps the links of the other dimensions free. Dimensions may come in any order, and in another order on the
way back, so chunks with different orders use different links at the same time (Themis: Rashidi et al., ISCA
2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from probes.base import Indices, Mask
from synth.network import Network
from synth.networks import distances_s, found_symmetry
from synth.scheduling.rounds import RoundSends

__all__ = ["dimension_sends"]

# The most orders: all of those of three dimensions. With more dimensions, so many are drawn.
_MOST_ORDERS, _LISTED = 96, 3


def dimension_sends(network: Network, draw: np.random.Generator) -> Iterator[RoundSends]:
    """Yield for each order the sends that may be of use, in rounds; some of them repeat what others bring.

    Yield nothing for networks without translations, with a single dimension, or with dimensions whose own
    links do not join the ranks of a line.
    """
    dimensions = _dimensions(network)
    if len(dimensions) < 2:
        return
    few = len(dimensions) <= _LISTED
    for order, handed_out in _orders(len(dimensions)) if few else _drawn(len(dimensions), draw):
        rounds = list(_rounds(network, dimensions, order, handed_out))
        lengths = list(map(len, rounds))
        yield RoundSends(np.concatenate(rounds), np.repeat(np.arange(len(rounds)), lengths))


@dataclass(frozen=True, eq=False)
class _Dimension:
    """The links along a dimension, and by rank the hops to and from the first rank of its line."""

    link: Indices
    to_first: Indices
    from_first: Indices
    diameter: int


def _dimensions(network: Network) -> list[_Dimension]:
    """Return the dimensions; [] unless the links of each dimension join the ranks of its lines."""
    symmetry = found_symmetry(network)
    if symmetry is None:
        return []
    every, found = np.arange(network.ranks), list[_Dimension]()
    sizes, strides = symmetry.network.sizes, symmetry.network.strides
    coordinate = np.array([every // stride % size for size, stride in zip(sizes, strides, strict=True)])
    differs = coordinate[:, network.src] != coordinate[:, network.dst]
    for at, stride in enumerate(strides):
        along = differs[at] & (differs.sum(axis=0) == 1)
        hops = distances_s(network, np.where(along, 1.0, np.inf), every)
        first = every - coordinate[at] * stride
        if not np.isfinite(hops[first[:, None] == first]).all():
            return []
        to_first, from_first = hops[every, first].astype(np.int64), hops[first, every].astype(np.int64)
        diameter = int(hops[np.isfinite(hops)].max())
        found.append(_Dimension(np.flatnonzero(along), to_first, from_first, diameter))
    return found


def _orders(dimensions: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield every (order of all dimensions, order in which those that collect hand out)."""
    for order in permutations(range(dimensions)):
        for collects in product((False, True), repeat=dimensions):
            for handed_out in permutations(np.flatnonzero(collects).tolist()):
                yield order, handed_out


def _drawn(dimensions: int, draw: np.random.Generator) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield some of the orders."""
    for _ in range(_MOST_ORDERS):
        collecting = draw.permutation(dimensions)[: draw.integers(dimensions + 1)]
        yield draw.permutation(dimensions).tolist(), collecting.tolist()


def _rounds(
    network: Network, dimensions: list[_Dimension], order: Sequence[int], handed_out: Sequence[int]
) -> Iterator[Indices]:
    """Yield the links of each round; a rank whose sum was collected is idle until the result comes back."""
    src, dst = network.src, network.dst
    active: Mask = np.ones(network.ranks, np.bool_)
    for at in order:
        one = dimensions[at]
        link = one.link[active[src[one.link]] & active[dst[one.link]]]
        if at not in handed_out:
            yield from [link] * one.diameter
            continue
        nearer = link[one.to_first[dst[link]] < one.to_first[src[link]]]
        for hops in range(int(one.to_first.max()), 0, -1):
            yield nearer[one.to_first[src[nearer]] == hops]
        active &= one.to_first == 0
    for at in handed_out:
        one = dimensions[at]
        farther = one.link[one.from_first[src[one.link]] < one.from_first[dst[one.link]]]
        for hops in range(int(one.from_first.max())):
            link = farther[one.from_first[src[farther]] == hops]
            link = link[active[src[link]]]
            yield link
            active[dst[link]] = True
