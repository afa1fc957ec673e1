"""The best order of hosts and ranks for a library's algorithm, and a bound on the gain of any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Indices, UsageError
from synth.bounds import bounds
from synth.collective import collective
from synth.network import Network
from synth.rank_order.algorithms import LibraryAlgorithm, pattern
from synth.rank_order.costs import OrderCosts, RankPaths, both_ways, paths_of
from synth.rank_order.relaxation import least_s
from synth.rank_order.search import every_order, improved_orders

__all__ = ["MOST_RANKS", "HostRanks", "RankOrder", "pattern_time_s", "plan_order"]

# Paths between this many ranks fill tables of a quarter of a million rows.
MOST_RANKS = 512
# If the predicted gain is below this ratio, the given order is kept, which all other jobs use.
_LEAST_GAIN = 1.02
# Open MPI over TCP: the rate of two ranks that exchange data, relative to one that only sends. The value lies
# between 1.3 for recursive doubling and 1.1 for Rabenseifner's algorithm, measured on 4 hosts with 100 Mbit/s
# (benchmarks/order_lab.py).
_BOTH_WAYS = 1.18
# The most ranks for which exchanges are modelled pair by pair.
_MOST_PAIRED = 64


@dataclass(frozen=True)
class HostRanks:
    """A host and its ranks, in order; ``slots`` are their places in the host's given order."""

    host: str
    ranks: tuple[int, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class RankOrder:
    """An order of hosts and of ranks in them; a job started in this order numbers its ranks by place.

    ``as_it_comes_s`` (given order) and ``time_s`` (this order) are predicted; ``bound_s`` is a lower bound
    for every order. If ``exact``, no order is faster. If the best order gains less than 2 %, the given one is
    kept.
    """

    network: str
    algorithm: LibraryAlgorithm
    size_bytes: int
    before: tuple[HostRanks, ...]
    after: tuple[HostRanks, ...]
    as_it_comes_s: float
    time_s: float
    bound_s: float
    exact: bool

    @property
    def gain(self) -> float:
        """Predicted speed relative to the given order."""
        return self.as_it_comes_s / self.time_s if self.time_s else 1.0

    @property
    def most_gain(self) -> float:
        """Upper bound on the gain of any order."""
        return self.as_it_comes_s / self.bound_s if self.bound_s else 1.0

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank at each place."""
        return tuple(rank for host in self.after for rank in host.ranks)


def plan_order(network: Network, algorithm: LibraryAlgorithm, size_bytes: int, *, seed: int = 0) -> RankOrder:
    """Return the order that makes ``algorithm`` fastest on ``network`` for buffers of ``size_bytes``.

    The ranks of a host stay together. The result is exact if the orders are few enough to try them all, such
    as 8 hosts with one rank each. Otherwise it is the best of a local search. Raises UsageError if the
    algorithm does not fit the network.
    """
    if network.ranks > MOST_RANKS:
        raise UsageError(f"{network.name}: expected at most {MOST_RANKS} ranks, found {network.ranks}")
    hosts = _hosts(network)
    sizes = {len(ranks) for ranks in hosts}
    paths, inner = _paths(network, algorithm, size_bytes), not algorithm.by_hosts and max(sizes) > 1
    # With hosts of different sizes, each order of hosts would have another pattern.
    if len(sizes) > 1 and algorithm.by_hosts:
        raise UsageError(f" {algorithm}: only for hosts of equally many ranks", argument="for")
    costs = OrderCosts(pattern(algorithm, [len(ranks) for ranks in hosts]), paths, size_bytes)
    came = np.concatenate(hosts)
    came_s = costs.time_s(came)
    all_orders = every_order(costs, hosts, inner=inner)
    exact = all_orders is not None
    tried = all_orders if all_orders is not None else improved_orders(costs, hosts, inner=inner, seed=seed)
    best_s, best = came_s, came
    for order in tried:
        if (time_s := costs.time_s(order)) < best_s * (1 - 1e-9):
            best_s, best = time_s, order
    least = best_s if exact else _bound_s(network, algorithm, costs)
    if came_s < _LEAST_GAIN * best_s:
        best_s, best = came_s, came
    before, after = _ranks_by_host(network, came), _ranks_by_host(network, best)
    return RankOrder(
        network.name, algorithm, size_bytes, before, after, came_s, best_s, min(least, best_s), exact
    )


def pattern_time_s(
    network: Network, algorithm: LibraryAlgorithm, size_bytes: int, order: Sequence[int] | None = None
) -> float:
    """Return the seconds that the algorithm takes with an order of ranks, by default the one given."""
    hosts = _hosts(network)
    paths = _paths(network, algorithm, size_bytes)
    costs = OrderCosts(pattern(algorithm, [len(ranks) for ranks in hosts]), paths, size_bytes)
    return costs.time_s(np.concatenate(hosts) if order is None else np.asarray(order, dtype=np.int64))


def _paths(network: Network, algorithm: LibraryAlgorithm, size_bytes: int) -> RankPaths:
    """Return the paths between ranks, with the rate of exchanges for libraries that exchange over TCP."""
    paths = paths_of(network, size_bytes)
    over_tcp = algorithm.library == "openmpi" and network.queues and network.ranks <= _MOST_PAIRED
    return both_ways(paths, network.host_of.astype(np.int64), _BOTH_WAYS) if over_tcp else paths


def _hosts(network: Network) -> list[Indices]:
    """Return the ranks of each host; hosts are in the order of their first ranks."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(network.hosts):
        found.setdefault(host, []).append(rank)
    return [np.asarray(ranks, dtype=np.int64) for ranks in found.values()]


def _bound_s(network: Network, algorithm: LibraryAlgorithm, costs: OrderCosts) -> float:
    """Return the larger of two lower bounds: for any order, and for any schedule of the collective."""
    if network.ranks < 2:
        return 0.0
    kind, ranks = algorithm.kind, network.ranks
    shape = collective(kind, ranks)
    chunk_bytes = max(1, costs.size_bytes // shape.chunks)
    free = bounds(replace(network, hold_alpha=False), shape, chunk_bytes, fluid=True)
    return max(least_s(costs), free[0].time_s)


def _ranks_by_host(network: Network, order: Indices) -> tuple[HostRanks, ...]:
    slot: dict[int, int] = {}
    for ranks in _hosts(network):
        slot |= {rank: at for at, rank in enumerate(ranks.tolist())}
    found: dict[str, list[int]] = {}
    for rank in order.tolist():
        found.setdefault(network.hosts[rank], []).append(rank)
    return tuple(
        HostRanks(host, tuple(ranks), tuple(slot[rank] for rank in ranks)) for host, ranks in found.items()
    )
