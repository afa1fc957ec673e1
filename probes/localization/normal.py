"""Normal values of links, and their noise: what a sound link of each class carries, and its latency.

A class of links is a pair of positions, one in each host (NIC 0 to NIC 2 crosses rails, NIC 0 to NIC 0 does
not), within a rack or between racks. The normal value comes from the fast links of most hosts, so up to half
of the hosts may be slow without changing it. If the cluster as a whole falls short of what was bought, the
bought value is normal instead.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Mask
from probes.localization.groups import quantiles, upper_median
from probes.localization.links import LinkTable
from probes.statistics import robust_level

__all__ = ["SHORT", "level", "noise", "normal", "slots"]

# The bought value is taken for normal if the fast links fall short of it by over a tenth. A smaller shortfall
# may be due to headers, whose share is not known before the first measurement.
SHORT = -float(np.log(0.9))
# Links within this distance of the first estimate (as a logarithm) refine it.
_NEAR = 0.10
# Classes whose levels differ by less than this (as a logarithm) share one level, which more links make more
# certain.
_ALIKE = 0.05
# The share of a host's links that may be slow without hiding what it can carry.
_SLOW_LINKS = 0.75
# A class of links is as bought if at least this share of its links is: if two of six hosts are as bought, the
# links between them are a fifteenth of all. _FEWEST_HOSTS and _FEWEST_IN_CLASS are the fewest hosts, and the
# fewest links in each class, for which classes are distinguished.
_AS_BOUGHT = 0.05
_FEWEST_HOSTS, _FEWEST_IN_CLASS = 3, 3
# Noise is estimated from the deviations within a window: at first _WINDOW (as a logarithm), then _SIGMAS
# standard deviations of the last estimate.
_WINDOW, _SIGMAS = 0.2, 4.5
# The smallest standard deviation of the noise: clocks and the choice of sizes make equal links differ by
# about 1 %.
_LEAST_SIGMA = 0.01


def normal(
    table: LinkTable,
    values: Floats,
    classes: Indices,
    rack: Indices | None = None,
    bought: float | None = None,
) -> Floats:
    """Return the normal value of each link; larger ``values`` are better.

    ``classes`` has the class of each link. ``rack`` is the rack of each host (-1 if unknown). If it is given,
    links between racks have a level of their own, which may be lower by design. ``bought`` is the value that
    was bought.
    """
    found = np.empty(len(values))
    hosts = table.src_host, table.dst_host
    across = np.zeros(len(values), dtype=np.bool_)
    if rack is not None:
        here, there = rack[hosts[0]], rack[hosts[1]]
        across = (here >= 0) & (there >= 0) & (here != there)
        if across.any():
            found[across] = _by_class(values, classes, across, (here, there), racks=True)
    if (~across).any():
        found[~across] = _by_class(values, classes, ~across, hosts, racks=False)
    if across.any() and (~across).any():
        gap = float(np.median(found[~across]) - np.median(found[across]))
        if abs(gap) < _ALIKE:
            found[across] += gap
    if bought is None:
        return found
    short = bought - float(found.max())
    near = np.isfinite(values) & (np.abs(values - bought) < SHORT)
    expected = float(np.median(values[near])) if near.sum() >= 2 else bought
    found += max(0.0, expected - float(found.max())) if short >= SHORT else 0.0
    # If some links of a class are as bought, the class is not slower by design, however many are slow.
    every, reached = np.bincount(classes), np.bincount(classes[near], minlength=int(classes.max()) + 1)
    as_bought = (reached >= _AS_BOUGHT * every) & (reached >= 2)
    return np.where(as_bought[classes], np.maximum(found, expected), found)


def level(values: Floats, first: Indices, second: Indices, count: int, *, racks: bool = False) -> float:
    """Return the level that the fast links of most of ``count`` hosts reach.

    ``first`` and ``second`` are the hosts at the ends of each link. With ``racks`` they are racks, and each
    pair of racks counts once, because a small rack has few links.
    """
    ok = np.isfinite(values)
    first, second, values = first[ok], second[ok], values[ok]
    if racks:
        pairs = quantiles(first * count + second, values, count * count, 0.5).reshape(count, count)
        pairs = np.where(np.isfinite(pairs), pairs, -np.inf)
        best = upper_median(np.maximum(pairs, pairs.T).max(axis=1))
    else:
        ends, twice = np.concatenate((first, second)), np.concatenate((values, values))
        best = upper_median(quantiles(ends, twice, count, _SLOW_LINKS))
    near = values[np.abs(values - best) < _NEAR]
    return float(np.median(near)) if len(near) else best


def noise(deviation: Floats, least: float = _LEAST_SIGMA) -> float:
    """Return the standard deviation of links near normal, or near the median if few are."""
    deviation = deviation[np.isfinite(deviation)]
    if len(deviation) and (np.abs(deviation) < _WINDOW).mean() < _AS_BOUGHT:
        deviation = deviation - np.median(deviation)
    window, sigma = _WINDOW, least
    for _ in range(3):
        near = deviation[np.abs(deviation) < window]
        if not len(near):
            return sigma
        sigma = max(least, robust_level(near)[1])
        window = _SIGMAS * sigma
    return sigma


def slots(table: LinkTable, slot: Indices) -> Indices:
    """Return each link's class by its ends' positions; 0 for few or unequal hosts."""
    ends = table.ends
    sizes = np.bincount(ends.host)
    hosts = len(sizes)
    if hosts < _FEWEST_HOSTS or (sizes != sizes[0]).any():
        return np.zeros(len(table), dtype=np.int64)
    return slot[table.src].astype(np.int64) * int(slot.max() + 1) + slot[table.dst]


def _by_class(
    values: Floats, classes: Indices, these: Mask, ends: tuple[Indices, Indices], *, racks: bool
) -> Floats:
    """Return normal values of ``these`` links; classes share one value if alike or if one is small."""
    ok = these & np.isfinite(values)
    if not ok.any():
        return np.zeros(int(these.sum()))
    count = int(max(end.max() for end in ends)) + 1

    def level_of(here: Mask) -> float:
        return level(values[here], ends[0][here], ends[1][here], count, racks=racks)

    whole = level_of(ok)
    found = np.full(int(classes.max()) + 1, whole)
    sizes = np.bincount(classes[ok], minlength=len(found))
    used = np.flatnonzero(sizes)
    if len(used) > 1 and sizes[used].min() >= _FEWEST_IN_CLASS:
        found[used] = [level_of(ok & (classes == one)) for one in used]
        if np.ptp(found[used]) < _ALIKE:
            found[used] = whole
    return found[classes[these]]
