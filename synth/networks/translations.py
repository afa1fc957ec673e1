"""Find the translations of a plain network, and return it as a symmetric network.

Ranks are numbers of several digits, as in `synth.networks.symmetric`. A chain of divisors 1 | d | e | … of
the number of ranks defines the digits: two neighbours d | e in the chain give rank r the digit ⌊r / d⌋ mod
(e / d). The step of this digit maps each rank to the rank whose digit is higher by one, modulo e / d, and
whose other digits are the same. The step is a symmetry if it maps links to links of the same cost, and ports
to ports. The chain with the most translations is chosen. So a ring, a torus or a set of equal hosts is found
from its links alone, if its ranks are numbered regularly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from probes.base import Indices, ints, offsets, spans
from synth.network import Network
from synth.networks.symmetric import SymmetricNetwork, cell_table

__all__ = ["found_symmetry"]

# The most entries of a table, pairs of ranks times parallel links: 2,048 ranks without parallel links. The
# two arrays of a table, of 8 bytes an entry, then take 64 MiB.
_MOST_PLACES = 1 << 22


@dataclass(frozen=True, eq=False)
class FoundSymmetry:
    """A symmetry found in a plain network.

    The translation by ``shift`` maps listed link n to the plain network's link ``link[n, shift]``; -1 if
    there is no such translation. ``port_orbit`` has the orbit of each port of the plain network.
    """

    network: SymmetricNetwork
    link: Indices
    port_orbit: Indices

    @cached_property
    def orbit(self) -> Indices:
        """For each link of the plain network, the listed link whose translations include it."""
        found = np.empty(self.network.links, np.int64)
        shifts = self.network.shifts
        found[self.link[:, shifts].ravel()] = np.repeat(np.arange(len(self.link)), len(shifts))
        return found


@lru_cache(maxsize=4)
def found_symmetry(network: Network) -> FoundSymmetry | None:
    """Return the network's symmetry; None if it has none, and if the network queues or has memory costs.

    O(ranks²) for each pair of divisors of the number of ranks, then translations · (listed links + ports).
    """
    if network.queues or network.memory or not network.links:
        return None
    table = _Table.from_network(network)
    found = None if table is None else _chain(table)
    if table is None or found is None:
        return None
    bases, moving = found
    strides = np.cumprod([1, *bases])
    listed = np.flatnonzero(np.isin(network.src, cell_table(bases, moving)))
    # The images of listed links and of all ports under each translation, digit by digit.
    shifts: Indices = np.zeros(1, np.int64)
    links: Indices = listed[None]
    ports: Indices = np.arange(len(network.ports))[None]
    for axis in moving:
        step = table.step(int(strides[axis]), int(strides[axis + 1]))
        assert step is not None
        shifts = (shifts + np.arange(bases[axis])[:, None] * strides[axis]).ravel()
        links, ports = (
            np.concatenate(_powers(one, image, bases[axis]))
            for one, image in ((links, step.link), (ports, step.port))
        )
    rising = np.argsort(shifts)
    shifts, links, ports = shifts[rising], links[rising], ports[rising]
    in_order = np.sort(ports, axis=0)
    if (in_order[1:] == in_order[:-1]).any():
        return None
    orbit, of_orbit = np.unique(in_order[0], return_inverse=True)
    at = np.zeros(len(network.ports), np.int64)
    at[ports[:, orbit]] = shifts[:, None]
    counts = np.diff(network.link_port_start)[listed]
    used = network.link_port[spans(network.link_port_start[:-1][listed], counts)]
    rows = np.full((len(listed), network.ranks), -1, np.int64)
    rows[:, shifts] = links.T
    symmetric = SymmetricNetwork(
        name=network.name,
        sizes=tuple(bases),
        axes=tuple(moving),
        ranks_per_host=_ranks_per_host(network),
        src=network.src[listed],
        dst=network.dst[listed],
        alpha_s=network.alpha_s[listed],
        beta_s_per_byte=network.beta_s_per_byte[listed],
        ports=tuple(network.ports[first] for first in orbit.tolist()),
        link_port_start=ints(offsets(counts)),
        link_port=ints(of_orbit[used]),
        link_port_at=ints(at[used]),
        hold_alpha=network.hold_alpha,
    )
    return FoundSymmetry(symmetric, rows, of_orbit)


def _ranks_per_host(network: Network) -> int:
    """Return the number of ranks of each host; 1 if hosts are not equal runs of ranks."""
    size = network.hosts.count(network.hosts[0])
    host = np.arange(network.ranks) // size
    runs = np.unique(np.stack([host, network.host_of]), axis=1).shape[1]
    return size if runs == len(set(network.hosts)) == network.ranks // size else 1


def _powers(images: Indices, image: Indices, order: int) -> list[Indices]:
    """Return ``images`` mapped by every power of ``image`` below ``order``, the identity first."""
    found = [images]
    for _ in range(order - 1):
        found.append(image[found[-1]])
    return found


def _chain(table: _Table) -> tuple[list[int], list[int]] | None:
    """Return (bases of the digits, moving digits) of the chain of divisors with the most translations."""
    ranks = table.network.ranks
    divisors = [one for one in range(1, ranks + 1) if ranks % one == 0]
    # The best chain up to each divisor, as (translations, -digits, the divisor before, whether the last digit
    # moves). Of two chains with equally many translations, the one with fewer digits is better.
    best: dict[int, tuple[int, int, int, bool]] = {1: (1, 0, 0, False)}
    for high in divisors[1:]:
        found = (0, 0, 0, False)
        for low in divisors:
            if low >= high or high % low:
                continue
            count, digits = best[low][0], best[low][1] - 1
            moves = (count * (high // low), digits) > found[:2] and table.step(low, high) is not None
            found = max(found, (count * (high // low if moves else 1), digits, low, moves))
        best[high] = found
    chain: list[tuple[int, bool]] = []
    at = ranks
    while at > 1:
        _, _, low, moves = best[at]
        chain.append((at // low, moves))
        at = low
    chain.reverse()
    moving = [axis for axis, (_, moves) in enumerate(chain) if moves]
    return ([base for base, _ in chain], moving) if moving else None


@dataclass(frozen=True, eq=False)
class _Step:
    """The images of links and ports when a digit grows by one."""

    link: Indices
    port: Indices


@dataclass(frozen=True, eq=False)
class _Table:
    """``link[src, dst, n]`` is the n-th link between two ranks, -1 for none; ``cost`` is its cost class.

    ``place`` is the flat index of each link in the table.
    """

    network: Network
    link: Indices
    cost: Indices
    place: Indices

    @classmethod
    def from_network(cls, network: Network) -> _Table | None:
        """Return the table of a network; None if it would be too large."""
        ranks, ports = network.ranks, np.diff(network.link_port_start)
        pair = network.src.astype(np.int64) * ranks + network.dst
        order = np.lexsort((ports, network.beta_s_per_byte, network.alpha_s, pair))
        first = np.flatnonzero(np.diff(pair[order], prepend=-1))
        parallel = np.diff(np.append(first, network.links))
        most = int(parallel.max())
        if ranks**2 * most > _MOST_PLACES:
            return None
        place = np.empty(network.links, np.int64)
        place[order] = pair[order] * most + spans(np.zeros_like(parallel), parallel)
        link, cost = np.full(ranks**2 * most, -1), np.full(ranks**2 * most, -1)
        link[place] = np.arange(network.links)
        costs = (network.alpha_s, network.beta_s_per_byte, ports)
        by_cost = np.lexsort(costs)
        dearer = [np.diff(one[by_cost], prepend=one[by_cost[0]]) != 0 for one in costs]
        cost[place[by_cost]] = np.cumsum(np.any(dearer, axis=0))
        shape = (ranks, ranks, most)
        return cls(network, link.reshape(shape), cost.reshape(shape), place)

    def step(self, low: int, high: int) -> _Step | None:
        """Return the images when the digit between ``low`` and ``high`` grows by 1, if symmetric.

        Return None if links do not map to links of equal cost, or ports to ports. Return None also if fewer
        steps than the digit has values map some port to itself.
        """
        network, base = self.network, high // low
        rank = np.arange(network.ranks)
        digit = rank // low % base
        moved = rank + ((digit + 1) % base - digit) * low
        there = np.ix_(moved, moved)
        if not np.array_equal(self.cost[there], self.cost):
            return None
        link = self.link[there].ravel()[self.place]
        entries = spans(network.link_port_start[:-1][link], np.diff(network.link_port_start))
        port = np.full(len(network.ports), -1, np.int64)
        port[network.link_port] = network.link_port[entries]
        same = np.array_equal(port[network.link_port], network.link_port[entries])
        if not same or not np.array_equal(np.sort(port), np.arange(len(port))):
            return None
        image = port
        for _ in range(base - 1):
            if (image == np.arange(len(port))).any():
                return None
            image = port[image]
        return _Step(link, port)
