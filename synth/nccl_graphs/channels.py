"""The channels of a host's graph: orders of its GPUs that share its links, and their common speed.

All channels of an NCCL graph have the same speed, which the busiest resource limits. Channels are chosen
greedily, each so that the busiest resource stays least busy, and are then replaced one by one while that
helps. A linear program over all candidates gives an upper bound on the rate of any set of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from probes.base import Floats, Indices
from synth.nccl_graphs.capacities import PathCapacities

__all__ = ["MOST_CHANNELS", "GraphChannel", "Packed", "candidates", "packed", "total_gbs", "usage"]

# NCCL doubles the channels of a file, and has room for 32 up to version 2.19.
MOST_CHANNELS = 16
# The most candidates; the most GPUs of which all orders may be candidates; the most random orders that begin
# at one GPU.
_MOST_CANDIDATES, _MOST_ALL_ORDERS, _MOST_DRAWN = 12_000, 8, 4000
# The most times that each chosen channel is replaced by a better one.
_SWEEPS = 4
# More channels are chosen only if they raise the total rate by more than about 2 %.
_ALIKE = 0.98
# About the rate in GB/s at which one block of threads copies; a faster channel is split in two.
_DOUBLED_GBS = 25.0


@dataclass(frozen=True)
class GraphChannel:
    """The GPUs of a channel in order, as indices of the host's GPUs, and the NIC at both ends.

    ``nic`` is None for jobs of one host.
    """

    gpus: tuple[int, ...]
    nic: int | None = None


@dataclass(frozen=True)
class Packed:
    """Channels of ``gbs`` each; ``most_gbs`` is an upper bound on the total of any set of candidates."""

    channels: tuple[GraphChannel, ...]
    gbs: float
    most_gbs: float

    @property
    def total_gbs(self) -> float:
        return self.gbs * len(self.channels)


def candidates(host: PathCapacities, *, between_hosts: bool, seed: int = 0) -> list[GraphChannel]:
    """Return candidate channels: all orders of up to 8 GPUs, or a random sample that prefers fast neighbours.

    Between hosts each order begins at a GPU that is nearest to the channel's NIC. The NIC is the same at both
    ends, because NCCL keeps rails apart.
    """
    size = len(host.gpus)
    if not between_hosts:
        found = [GraphChannel((0, *rest)) for rest in _orders(host, 0, _MOST_CANDIDATES, seed)]
        return found if size > 1 else [GraphChannel((0,))]
    starts = [(nic, first) for nic in range(len(host.nics)) for first in host.near[nic]]
    each = max(1, _MOST_CANDIDATES // max(1, len(starts)))
    return [
        GraphChannel((first, *rest), nic)
        for nic, first in starts
        for rest in _orders(host, first, each, seed + 31 * nic + first)
    ]


def _orders(host: PathCapacities, first: int, most: int, seed: int) -> list[tuple[int, ...]]:
    rest = [at for at in range(len(host.gpus)) if at != first]
    if len(host.gpus) <= _MOST_ALL_ORDERS and math.factorial(len(rest)) <= most:
        return list(permutations(rest))
    chance = np.random.default_rng(seed)
    return list(dict.fromkeys(_near_first(host, first, chance) for _ in range(min(most, _MOST_DRAWN))))


def _near_first(host: PathCapacities, first: int, chance: np.random.Generator) -> tuple[int, ...]:
    """Return a random order in which the next GPU is mostly the one with the fastest path."""
    order, left = [first], set(range(len(host.gpus))) - {first}
    while left:
        ways = sorted(left)
        cost = host.between[order[-1], ways].max(axis=1) * chance.uniform(1.0, 1.6, len(ways))
        onward = ways[int(cost.argmin())]
        order.append(onward)
        left.remove(onward)
    return tuple(order[1:])


def usage(host: PathCapacities, channels: Sequence[GraphChannel], *, tree: bool = False) -> Floats:
    """Return [channel, resource]: the share of the resource that the channel takes at 1 GB/s.

    A ring returns to its first GPU, or between hosts leaves through the NIC through which it entered. A tree
    is NCCL's chain: it ends at its last GPU, and its second GPU sends to the NIC (a balanced tree).
    """
    orders: Indices = np.array([channel.gpus for channel in channels])
    found = np.zeros((len(orders), host.between.shape[-1]))
    for at in range(orders.shape[1] - 1):
        found += host.between[orders[:, at], orders[:, at + 1]]
    if channels[0].nic is not None:
        nics: Indices = np.array([channel.nic for channel in channels])
        leaves = orders[:, min(1, orders.shape[1] - 1)] if tree else orders[:, -1]
        return np.asarray(found + host.into[nics, orders[:, 0]] + host.out[leaves, nics])
    if not tree and orders.shape[1] > 1:
        found += host.between[orders[:, -1], orders[:, 0]]
    return found


def packed(
    host: PathCapacities, offered: Sequence[GraphChannel], *, tree: bool = False, channels: int | None = None
) -> Packed:
    """Return the channels with the largest total rate; of about equal sets, the smallest.

    ``channels`` fixes their number. Otherwise a channel that is faster than one block of threads copies
    (25 GB/s) becomes two of half the speed, as in NCCL's own search.
    """
    shares, kept = np.unique(usage(host, offered, tree=tree).round(12), axis=0, return_index=True)
    most_gbs, good = _bound(shares)
    shares, offered = shares[good], [offered[int(at)] for at in kept[good]]
    best: tuple[float, list[int]] = (0.0, [])
    for count in [channels] if channels is not None else range(1, MOST_CHANNELS + 1):
        chosen = _chosen(shares, count)
        together = count / float(shares[chosen].sum(axis=0).max())
        if together * _ALIKE > best[0] or not best[1]:
            best = (together, chosen)
        if best[0] >= most_gbs * _ALIKE:
            break
    together, chosen = best
    found = [offered[at] for at in chosen]
    while channels is None and together / len(found) > _DOUBLED_GBS and 2 * len(found) <= MOST_CHANNELS:
        found = found + found
    return Packed(tuple(found), together / len(found), most_gbs)


def total_gbs(host: PathCapacities, channels: Sequence[GraphChannel]) -> float:
    """Return the total GB/s of these rings, all at the same speed."""
    return len(channels) / float(usage(host, channels).sum(axis=0).max())


def _bound(shares: Floats) -> tuple[float, Indices]:
    """Return (largest total GB/s of a mix of candidates, candidates in or close to such a mix)."""
    from scipy.optimize import linprog

    solved = linprog(-np.ones(len(shares)), A_ub=shares.T, b_ub=np.ones(shares.shape[1]), method="highs")
    if solved.status != 0:
        raise RuntimeError(f"channels of {len(shares)} candidates: {solved.message}")
    prices = shares @ -solved.ineqlin.marginals
    order = np.argsort(prices, kind="stable")
    return float(-solved.fun), np.asarray(order[: max(64, int((prices < 1 + 1e-6).sum()))])


def _chosen(shares: Floats, count: int) -> list[int]:
    chosen: list[int] = []
    load = np.zeros(shares.shape[1])
    for _ in range(count):
        at = _least_busy(shares, load)
        chosen.append(at)
        load += shares[at]
    for _ in range(_SWEEPS):
        before = list(chosen)
        for place, at in enumerate(before):
            load -= shares[at]
            chosen[place] = _least_busy(shares, load)
            load += shares[chosen[place]]
        if chosen == before:
            break
    return sorted(chosen)


def _least_busy(shares: Floats, load: Floats) -> int:
    """Return the candidate that keeps the busiest resource least busy; the other resources break ties."""
    then = shares + load
    return int(np.argmin(then.max(axis=1) + 1e-6 * (then**4).sum(axis=1)))
