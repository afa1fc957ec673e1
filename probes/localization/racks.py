"""Racks: which hosts share a leaf switch, from the plan, from latencies, or from what shares a trunk.

Hosts of one rack reach each other over one switch, hosts of different racks over three or more. So latencies
between hosts have two levels, unless something else dominates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from probes.base import Floats, Indices, Mask, floats, longs
from probes.link_costs import SharedPort
from probes.localization.groups import quantiles
from probes.localization.links import LinkTable
from probes.localization.model import FabricPlan
from probes.statistics import robust_level

__all__ = ["Racks", "by_latency", "by_plan", "by_ports", "by_reach", "moved"]

# The latencies within and between racks count as two levels if they differ by _APART standard deviations of a
# latency, and by at least the ratio _LEAST_GAP (as a logarithm).
_APART, _LEAST_GAP = 4.0, 0.05
# At most this many gaps between sorted latencies are tried, the widest first. Each host with extra latency to
# all others adds a gap.
_MOST_GAPS = 24
# At least this share of the pairs of hosts within racks must be on the near side of the gap. The other pairs
# have another reason for their latency.
_CLEAN = 0.8
# A host is moved to another rack if its links fit better there by this much (logarithm of the likelihood). A
# link's deviation counts at most _MOST_MISFIT standard deviations. _FITS is the largest mean misfit of the
# host's links in the new rack, where a misfit is half the squared deviation.
_MOVES, _MOST_MISFIT = 20.0, 4.0
_FITS = 3.0
# The levels within and between racks are these quantiles of the latencies there. A host in the wrong rack
# spoils over half of the links within a small rack; a host far from all others spoils a quarter of the links
# between racks.
_NEAR_SHARE, _FAR_SHARE = 0.25, 0.6
# The smallest standard deviation of a latency's logarithm: undisturbed round trips vary by a few per cent.
_LEAST_SIGMA = 0.02
# 30 % of normal values lie within this many standard deviations of the mean. Sigma is taken from the 30 %
# smallest deviations, which wrong hosts do not spoil: two wrong hosts in racks of four spoil half of the
# links within these racks.
_SIGMAS_OF_30_PERCENT = 0.385


@dataclass(frozen=True, eq=False)
class Racks:
    """A division of hosts: the rack of each host, -1 if unknown, and the names of the racks."""

    of_host: Indices
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def key(self) -> tuple[frozenset[int], ...]:
        """Return the sets of hosts in the racks, which are the same whatever the racks' names."""
        sides = (frozenset(np.flatnonzero(self.of_host == rack).tolist()) for rack in range(len(self)))
        return tuple(sorted(sides, key=sorted))

    def apart(self) -> Indices:
        """Return the rack of each host; hosts of unknown racks have racks of their own."""
        return np.where(self.of_host < 0, len(self) + np.arange(len(self.of_host)), self.of_host)

    @property
    def is_division(self) -> bool:
        """Whether there are two racks, at least one of them with several hosts."""
        sizes = np.bincount(self.of_host[self.of_host >= 0], minlength=len(self))
        return int((sizes > 0).sum()) > 1 and int(sizes.max()) > 1


def by_plan(plan: FabricPlan, hosts: Sequence[str]) -> Racks:
    """Return the planned racks."""
    names = tuple(plan.racks)
    number = {host: at for at, rack in enumerate(names) for host in plan.racks[rack]}
    return Racks(longs([number.get(host, -1) for host in hosts]), names)


def by_ports(ports: Iterable[SharedPort], hosts: Sequence[str]) -> Racks | None:
    """Return the racks that measured trunks' names imply: hosts on the same sides share a rack."""
    sides: dict[str, list[str]] = {host: [] for host in hosts}
    for near, far in (map(set, port.trunk_sides) for port in ports if len(port.trunk_sides) == 2):
        for host in hosts:
            sides[host].append("near" if host in near else "far" if host in far else "")
    keys = {host: tuple(found) for host, found in sides.items() if any(found)}
    if not keys:
        return None
    return _named(hosts, [keys.get(host) for host in hosts])


def by_latency(table: LinkTable, alpha: Floats, hosts: Sequence[str]) -> Racks | None:
    """Return the racks that latencies between hosts show; None if the latencies show no two levels.

    ``alpha`` has logarithms of latencies, from which the differences between classes of NICs are removed.
    """
    count = len(hosts)
    known = np.isfinite(alpha)
    if count < 4 or not known.any():
        return None
    low, high = (
        np.minimum(table.src_host, table.dst_host)[known],
        np.maximum(table.src_host, table.dst_host)[known],
    )
    pairs = quantiles(longs(low.astype(np.int64) * count + high), alpha[known], count * count, 0.5)
    first, second = np.divmod(np.flatnonzero(np.isfinite(pairs)), count)
    values = pairs[np.isfinite(pairs)]
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    best: tuple[float, Indices, float] | None = None
    for at in np.argsort(-gaps)[:_MOST_GAPS]:
        if gaps[at] < _LEAST_GAP / 4:
            break
        near = values <= ordered[at]
        if near.sum() < 2:
            continue
        found = _components(count, first[near], second[near])
        division = _without_single(found)
        if len(set(division[division >= 0].tolist())) < 2:
            continue
        within = (division[first] >= 0) & (division[first] == division[second])
        across = (division[first] >= 0) & (division[second] >= 0) & ~within
        if not across.any() or near[within].mean() < _CLEAN:
            continue
        levels = float(np.median(values[within])), float(np.median(values[across]))
        spread = max(robust_level(values[of])[1] for of in (within, across))
        gap = levels[1] - levels[0]
        if gap < max(_LEAST_GAP, _APART * spread):
            continue
        # Links of hosts without a rack are expected at the far level. A deviation counts at most one gap,
        # because a larger deviation has another reason.
        misfit = float(np.minimum(np.abs(values - np.where(within, *levels)), gap).sum())
        if best is None or misfit < best[0]:
            best = misfit, division, gap
    if best is None:
        return None
    division = _with_single(best[1], first, second, values, best[2])
    return _named(hosts, [int(rack) if rack >= 0 else None for rack in division])


def by_reach(table: LinkTable, normal: Mask, hosts: Sequence[str]) -> Racks | None:
    """Return groups of hosts within which links are ``normal`` both ways; None if there is one group."""
    count = len(hosts)
    total = np.zeros((count, count))
    good = np.zeros((count, count))
    np.add.at(total, (table.src_host, table.dst_host), 1.0)
    np.add.at(good, (table.src_host, table.dst_host), normal.astype(np.float64))
    with np.errstate(invalid="ignore"):
        share = np.where(total > 0, good / total, np.nan)
    both = np.fmin(share, share.T)
    first, second = np.nonzero(np.nan_to_num(both) >= 0.5)
    division = _without_single(_components(count, first, second))
    found = _named(hosts, [int(rack) if rack >= 0 else None for rack in division])
    return found if found.is_division else None


def moved(racks: Racks, groups: Indices, values: Floats, classes: Indices, jitter: Floats) -> dict[int, int]:
    """Return the hosts (or NICs) whose links fit another rack (or rail), and that rack (rail).

    ``groups`` holds two arrays, the unit (host or NIC) at the source and at the destination of each link.
    ``values`` are logarithms that are low within a rack and high between racks; both levels differ by the
    ``classes``. A value with ``jitter`` is that much less certain. One unit at a time is moved, the clearest
    first.
    """
    division = racks.of_host.copy()
    found: dict[int, int] = {}
    count = len(division)
    for _ in range(count):
        best = _clearest_move(division, len(racks), groups, values, classes, jitter, set(found))
        if best is None:
            break
        unit, rack = best
        found[unit] = rack
        division[unit] = rack
    return {unit: rack for unit, rack in found.items() if rack != racks.of_host[unit]}


def _clearest_move(
    division: Indices,
    racks: int,
    groups: Indices,
    values: Floats,
    classes: Indices,
    jitter: Floats,
    done: set[int],
) -> tuple[int, int] | None:
    src, dst = groups
    here, there = division[src], division[dst]
    known = (here >= 0) & (there >= 0) & np.isfinite(values)
    same = known & (here == there)
    across = known & (here != there)
    if same.sum() < 2 or across.sum() < 2:
        return None
    near, far = _levels(values, classes, same, _NEAR_SHARE), _levels(values, classes, across, _FAR_SHARE)
    deviation = np.abs(values - np.where(same, near, far))[known]
    sigma = max(float(np.quantile(deviation, 0.3)) / _SIGMAS_OF_30_PERCENT, _LEAST_SIGMA)
    if np.median(far - near) < max(_LEAST_GAP, 2.0 * sigma):
        return None

    # The best of many round trips varies by less than the median one does.
    widths = np.maximum(sigma, 0.5 * jitter)

    def misfit(expected_far: Mask, at: Indices) -> Floats:
        size = np.abs(values[at] - np.where(expected_far, far[at], near[at])) / widths[at]
        return floats(np.minimum(size, _MOST_MISFIT) ** 2 / 2)

    ends = [(src[known], there[known]), (dst[known], here[known])]
    rows = np.flatnonzero(known)
    count = len(division)
    total = np.zeros((racks, count))
    links = np.zeros(count)
    for unit, other in ends:
        links += np.bincount(unit, minlength=count)
        for rack in range(racks):
            total[rack] += np.bincount(unit, misfit(other != rack, rows), count)
    units = np.flatnonzero((division >= 0) & (links > 0))
    now = total[division[units], units]
    best_rack = total[:, units].argmin(axis=0)
    gain = now - total[best_rack, units]
    # If a unit's links do not fit well in its best rack, it has another fault and is not moved.
    gain[total[best_rack, units] > _FITS * links[units]] = 0.0
    gain[np.isin(units, list(done))] = 0.0
    if not len(gain) or gain.max() < _MOVES:
        return None
    at = int(gain.argmax())
    return int(units[at]), int(best_rack[at])


def _levels(values: Floats, classes: Indices, these: Mask, share: float) -> Floats:
    """Return each link's level: a quantile of ``these`` in its class, or of all if none."""
    found = quantiles(classes[these], values[these], int(classes.max()) + 1, share)
    return np.where(np.isfinite(found), found, np.quantile(values[these], share))[classes]


def _components(count: int, first: Indices, second: Indices) -> Indices:
    # All ranks of a profile load this module, but only one needs scipy, which takes as long as all the rest.
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(count, count))
    return longs(connected_components(graph, directed=False)[1])


def _without_single(division: Indices) -> Indices:
    """Return the division with -1 for each host that is alone: no link distinguishes it from its rack."""
    sizes = np.bincount(division)
    return np.where(sizes[division] > 1, division, -1)


def _with_single(division: Indices, first: Indices, second: Indices, values: Floats, gap: float) -> Indices:
    """Return the division with each host of no rack put into the nearest rack, if that is clear.

    Such a host has extra latency to all others, but the least to hosts of its rack. Its rack is clear if the
    next rack is farther by over half of ``gap``.
    """
    found = division.copy()
    racks = int(division.max()) + 1
    for host in np.flatnonzero(division < 0):
        mine = (first == host) | (second == host)
        other = division[np.where(first == host, second, first)]
        here = mine & (other >= 0)
        level = quantiles(other[here], values[here], racks, 0.5)
        order = np.argsort(level)  # racks without a host are NaN, which is last
        if racks > 1 and level[order[1]] - level[order[0]] > 0.5 * gap:
            found[host] = order[0]
    return found


def _named(hosts: Sequence[str], keys: Sequence[object]) -> Racks:
    """Return racks numbered by their first host and named after their hosts."""
    numbers: dict[object, int] = {}
    of_host = [-1 if key is None else numbers.setdefault(key, len(numbers)) for key in keys]
    names = (
        ",".join(host for host, rack in zip(hosts, of_host, strict=True) if rack == number)
        for number in range(len(numbers))
    )
    return Racks(longs(of_host), tuple(names))
