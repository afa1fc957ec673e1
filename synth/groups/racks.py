"""Racks of a network, and its slow racks and ranks, by the cost of its links (DS-Sync, Sec. III-A, B).

A rack is a set of hosts with no trunk between them. A trunk is a port shared by links from several hosts to
several other hosts. Without such ports, racks are clusters of hosts: links within a cluster are clearly
faster than links between clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.base import Floats, Mask
from synth.groups.consensus_rate import parties
from synth.groups.patterns import RackLayout
from synth.network import Network

__all__ = ["find_racks", "slow_parts"]

# The least ratio of the cost of links across racks to the cost of links within. Measured links of one rack
# differ by a few per cent; links across racks have half the rate (Sec. II-A).
_STEP = 1.3
# A delayed pair has half the throughput of a regular pair, so twice the cost (Sec. II-A). A rank or rack
# becomes slow above _SLOW times the median cost, half-way to twice the cost. It stays slow above _STILL_SLOW
# times the median.
_SLOW, _STILL_SLOW = 1.5, 1.25
# The nearest cluster of a rank is certain if the mean cost to the second nearest is higher by this factor.
# Means vary less than single links, so the factor is less than _STEP.
_TELLING = 1.1

Racks = tuple[tuple[int, ...], ...]


def find_racks(network: Network) -> tuple[Racks, tuple[str, ...]]:
    """Return the racks by lowest rank, and remarks on uncertain ranks. O(ranks² log ranks)."""
    beta = _both_ways(network, network.beta_s_per_byte)
    by_trunk = _by_trunks(network)
    if 1 < len(by_trunk) < network.ranks:
        return by_trunk, ()
    unit_of = network.host_of if len(set(network.hosts)) > 1 else np.arange(network.ranks)
    units = tuple(sorted(tuple(np.flatnonzero(unit_of == unit).tolist()) for unit in np.unique(unit_of)))
    between = _between_units(beta, units)
    clusters, remarks = _clusters(between, _between_units(_both_ways(network, network.alpha_s), units))
    if len(clusters) > 1:
        return tuple(sorted(_joined(units, cluster) for cluster in clusters)), tuple(
            f"rank {', '.join(map(str, units[unit]))}: its links to all racks are alike, so it was put into "
            f"the rack of rank {min(_joined(units, cluster))}"
            for unit, cluster in remarks
        )
    inside = [beta[np.ix_(unit, unit)][_off_diagonal(len(unit))] for unit in units if len(unit) > 1]
    if (
        len(units) > 1
        and inside
        and between[_off_diagonal(len(units))].min() > _STEP * np.concatenate(inside).max()
    ):
        return units, ()
    return (tuple(range(network.ranks)),), ()


def slow_parts(network: Network, racks: Racks, before: RackLayout | None = None) -> RackLayout:
    """Return the racks, the slow ones among them, and the ranks with slow NICs.

    The best link of a rank is its fastest within the rack, to another host if the rack has several. A rank is
    slow if the beta of its best link is over 1.5 times that of the median rank. A rack is slow if the beta of
    its best link to another rack is over 1.5 times that of the median rack. A rank or rack that was slow
    ``before`` stays slow above 1.25 times the median.
    """
    beta = _both_ways(network, network.beta_s_per_byte)
    ranks = _slow_ranks(network, racks, beta, before.slow_ranks if before else ())
    sound = RackLayout(racks, (), ranks)
    across = _between_units(beta, tuple(sound.candidates(rack) for rack in range(len(racks))))
    if len(racks) < 3:
        # Between two racks there is only one cost, which cannot show which of them is slow.
        return sound
    np.fill_diagonal(across, np.inf)
    return RackLayout(racks, _slow(across.min(axis=0), before.slow_racks if before else ()), ranks)


def _slow_ranks(network: Network, racks: Racks, beta: Floats, before: Sequence[int]) -> tuple[int, ...]:
    best: Floats = np.full(network.ranks, np.nan)
    for rack in racks:
        for rank in rack:
            peers = [other for other in rack if other != rank]
            away = [other for other in peers if network.host_of[other] != network.host_of[rank]]
            if peers:
                best[rank] = beta[rank, away or peers].min()
    slow = set(_slow(best, before))
    for rack in racks:
        if len(rack) > 1 and slow.issuperset(rack):
            # Links inside the rack cannot show which of its ranks is slow; links to other racks may.
            others = [rank for rank in range(network.ranks) if rank not in rack]
            outside = beta[np.ix_(rack, others)].min(axis=1) if others else np.ones(len(rack))
            slow -= {rank for rank, cost in zip(rack, outside, strict=True) if cost < _SLOW * outside.min()}
    return tuple(sorted(slow))


def _slow(beta: Floats, before: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of costs clearly above the median (the lower of two middle values)."""
    known = np.sort(beta[np.isfinite(beta)])
    if len(known) < 2:
        return ()
    middle = known[(len(known) - 1) // 2]
    limit = np.full(len(beta), _SLOW)
    limit[[number for number in before if number < len(beta)]] = _STILL_SLOW
    return tuple(np.flatnonzero(np.isfinite(beta) & (beta > limit * middle)).tolist())


def _both_ways(network: Network, cost: Floats) -> Floats:
    """Return the cost between each pair of ranks, in the more expensive direction; 0 on the diagonal."""
    table: Floats = np.full((network.ranks, network.ranks), np.inf)
    np.minimum.at(table, (network.src, network.dst), cost)
    np.fill_diagonal(table, 0.0)
    return np.maximum(table, table.T)


def _by_trunks(network: Network) -> Racks:
    """Return the sets of ranks that no trunk (a port of links between several hosts) separates."""
    crosses: Mask = np.zeros((network.ranks, network.ranks), dtype=np.bool_)
    start, links = network.port_links
    for port in range(len(network.ports)):
        rows = links[start[port] : start[port + 1]]
        ends = [set(network.host_of[column[rows]].tolist()) for column in (network.src, network.dst)]
        if min(map(len, ends)) > 1 and not ends[0] & ends[1]:
            crosses[network.src[rows], network.dst[rows]] = True
    crosses |= crosses.T
    pairs = tuple((int(a), int(b)) for a, b in np.argwhere(~crosses) if a < b)
    return tuple(map(tuple, parties(network.ranks, [pairs])))


def _clusters(beta: Floats, alpha: Floats) -> tuple[list[list[int]], list[tuple[int, list[int]]]]:
    """Return clusters of units that no step in bandwidth separates, and (unit, cluster) of uncertain units.

    A unit is uncertain if neither bandwidth nor latency shows which cluster is its nearest.
    """
    count = len(beta)
    costs = np.unique(beta[_off_diagonal(count)])
    for fast, next_one in zip(costs[:-1].tolist(), costs[1:].tolist(), strict=True):
        if next_one < _STEP * fast:
            continue
        pairs = tuple((int(a), int(b)) for a, b in np.argwhere(beta <= fast) if a < b)
        found = parties(count, [pairs])
        clusters = [cluster for cluster in found if len(cluster) > 1]
        separated = _within_step(beta, clusters)
        if clusters and separated:
            strays = [cluster[0] for cluster in found if len(cluster) == 1]
            placed = [(stray, _nearest(stray, clusters, beta, alpha)) for stray in strays]
            uncertain = []
            for stray, (cluster, sure) in placed:
                clusters[cluster].append(stray)
                uncertain += [] if sure else [(stray, clusters[cluster])]
            return clusters, uncertain
    return [list(range(count))], []


def _within_step(beta: Floats, clusters: Sequence[Sequence[int]]) -> bool:
    """Return whether the median link within each cluster is faster than every link across clusters.

    A chain of fast links alone makes no cluster.
    """
    inside = [
        float(np.median(beta[np.ix_(cluster, cluster)][_off_diagonal(len(cluster))])) for cluster in clusters
    ]
    across = [
        beta[np.ix_(one, other)].min() for at, one in enumerate(clusters) for other in clusters[at + 1 :]
    ]
    return not across or max(inside) < min(across)


def _nearest(stray: int, clusters: Sequence[Sequence[int]], beta: Floats, alpha: Floats) -> tuple[int, bool]:
    """Return (cluster of a unit, whether it is certain): the fastest to reach, by bandwidth, then latency.

    If neither decides, the cluster is the one whose lowest unit is next below ``stray``.
    """
    for cost in (beta, alpha):
        means = [float(cost[stray, list(cluster)].mean()) for cluster in clusters]
        order = sorted(range(len(means)), key=means.__getitem__)
        if len(order) == 1 or means[order[1]] > _TELLING * means[order[0]]:
            return order[0], True
    before = [at for at, cluster in enumerate(clusters) if min(cluster) < stray]
    return (max(before, key=lambda at: min(clusters[at])) if before else 0), False


def _between_units(cost: Floats, units: Racks) -> Floats:
    """Return, for each pair of units, the least cost between their ranks."""
    table: Floats = np.zeros((len(units), len(units)))
    for at, one in enumerate(units):
        for other in range(at):
            table[at, other] = table[other, at] = cost[np.ix_(one, units[other])].min()
    return table


def _joined(units: Racks, cluster: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(rank for unit in cluster for rank in units[unit]))


def _off_diagonal(count: int) -> Mask:
    return ~np.eye(count, dtype=np.bool_)
