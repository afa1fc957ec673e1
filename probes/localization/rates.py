"""Parts that hold rates back: the rate of a link is that of the slowest part on its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Floats, Indices, Mask
from probes.localization.fit import ENDS, Cause, CauseFit, Ceiling, Family, explain
from probes.localization.groups import quantiles
from probes.localization.links import LinkTable
from probes.localization.model import Bought, FabricPlan
from probes.localization.normal import SHORT, noise, normal
from probes.localization.parts import families, is_trunk
from probes.localization.racks import Racks, by_reach

__all__ = ["UNSTEADY", "Rates", "Unsteadiness", "fewest_causes", "rates", "unsteadiness"]

# Smallest losses of rate that count, as logarithms. A small MTU costs a host 5 % or more (headers of 66 bytes
# a packet). The limit of single links and of trunks is twice as high, because they vary more than a host with
# its many links. At 5 % for these, too, one of 142 cases drawn as in benchmarks/accept_campaign.py has a
# wrong answer. All 142 are right with the values below, and also with 3 or 7 for _Z, 1/2 or 0.85 for
# _SLOW_ANYWAY, 0.96 or 0.88 for _REACHED, 0 or 16 for _BY_CHANCE, and 1 or 16 for _MOST_SINGLE.
_END, _LINK = -float(np.log(0.95)), -float(np.log(0.9))
_LEAST = {"end": _END, "pair": _LINK, "trunk": _LINK, "fabric": SHORT}
# If hosts are unequal, a host is slow from this many standard deviations below the middle host: of 1,024
# equal hosts, one is so far below in one profile of 290. A host below 2/3 of the normal rate is slow however
# unequal the others are. At least _FEWEST_SOUND sound hosts are needed to tell how unequal hosts are, and the
# fit is repeated at most _MOST_REFITS times.
_Z, _SLOW_ANYWAY = 4.5, -float(np.log(2 / 3))
_FEWEST_SOUND, _MOST_REFITS = 3, 3
# Links at less than this distance below normal (as a logarithm) count as normal in `by_reach`, which takes
# hosts that reach each other over normal links for a rack behind a slow trunk. It is between the limits _END
# and _LINK.
_REACHED = -float(np.log(0.93))
# Two explanations with the same number of causes may differ by this much in the logarithm of the likelihood
# by chance: a ratio of e^8 is 3,000 to one, as for the least gain of a cause (`probes.localization.fit`).
_BY_CHANCE = 8.0
# If more than this many single links are slow, they count as disturbed, except those that were measured
# again, alone.
_MOST_SINGLE = 4
# Links whose ends waited for cores are left out if they are unsteady for that reason: if the quantile
# _MOST_OF_STARVED of their unsteadiness (a logarithm) is above _STEADY. The quantile is the median, because
# one unsteady host of four makes only half of all links unsteady.
_MOST_OF_STARVED, _STEADY = 0.5, 0.1
# Binomial test of a host: if its links were unsteady as often as links of other hosts, its number of unsteady
# links, or a larger one, would have at most the probability _CHANCE. If fewer than half of its links are
# unsteady, the limit is _CHANCE², and the unsteady links must lead to at least _FEWEST_PEERS hosts. A host is
# left out if its links waited for cores more often than links of other hosts, by more than the share
# _WAITS_ALIKE. At 0.01 for _CHANCE, one of the 142 cases has a wrong answer; at 0.0001, and with 2 or 5 for
# _FEWEST_PEERS, all are right.
_CHANCE, _FEWEST_PEERS, _WAITS_ALIKE = 1e-3, 3, 0.2
# A link of an unsteady host is unsteady if its slow messages take this many times as long as its fast ones,
# beyond what is usual (a logarithm).
UNSTEADY = float(np.log(1.5))
# The smallest unsteadiness that counts, as a logarithm (see `unsteadiness`). A disturbance of one pass makes
# a fifth of the samples of one link late, by a factor that is seldom above 2. The link's unsteadiness is then
# the square root of that factor, 1.41, because its median stays. Limits of single links are above this, and
# higher one way, because a disturbance does not hit both ways of a pair. A disturbance does not hit most
# links of a host or a trunk, so their limit is lower.
_LEAST_UNSTEADY = {
    "end": float(np.log(1.25)),
    "pair": float(np.log(1.75)),
    "one way": float(np.log(2.0)),
    "trunk": float(np.log(1.25)),
}
# The smallest standard deviation of unsteadiness is twice a rate's, as percentiles vary more than a fit.
_LEAST_NOISE = 0.02


@dataclass(frozen=True, eq=False)
class Rates:
    """The links' normal rates (logarithms), the deviations from these, and the causes."""

    table: LinkTable
    level: Floats
    deviation: Floats
    found: CauseFit


@dataclass(frozen=True, eq=False)
class Unsteadiness:
    """The links whose unsteadiness is known, and its causes."""

    table: LinkTable
    causes: tuple[Cause, ...] = ()


def rates(
    table: LinkTable,
    classes: Indices,
    divisions: Sequence[Racks],
    bought: Bought | None,
    plan: FabricPlan | None,
    *,
    disturbed: bool = False,
) -> Rates:
    """Explain the rates of ``table``; with ``disturbed``, also by links that may only have been disturbed."""
    several = next((racks for racks in divisions if len(racks) > 2), None)
    expected = None
    goodput = 1.0
    if bought is not None and bought.nic_bytes_per_s:
        goodput = bought.goodput
        expected = float(np.log(bought.nic_bytes_per_s * goodput))
    # Links between racks may be slower by design, but not slower than was bought.
    rack = several.of_host if several is not None and expected is None else None
    level = normal(table, table.rate, classes, rack, expected)
    if plan is not None and plan.trunk_bytes_per_s and divisions:
        level = _through_trunks(table, level, divisions[0], float(np.log(plan.trunk_bytes_per_s * goodput)))
    deviation = table.rate - level
    model = Ceiling(deviation, np.maximum(_noise_by_distance(deviation, table), table.width))
    found = fewest_causes(model, table, divisions, _LEAST, fabric=expected is not None)
    for _ in range(_MOST_REFITS):
        least = _least_of_hosts(table, model, found)
        if not any(cause.kind in ENDS and cause.severity < least for cause in found.causes):
            break
        # Hosts are more unequal than was assumed.
        found = fewest_causes(model, table, divisions, {**_LEAST, "end": least}, fabric=expected is not None)
    return Rates(table, level, deviation, found if disturbed else _without_disturbed(found, table))


def fewest_causes(
    model: Ceiling, table: LinkTable, divisions: Sequence[Racks], least: Mapping[str, float], *, fabric: bool
) -> CauseFit:
    """Return the fewest causes that explain the rates.

    Trunks connect the racks of the ``divisions`` (each a division of hosts into racks), and the racks that
    the rates themselves show.
    """
    tried = _with_reach(table, model.values > -_REACHED, divisions)
    found = _fewest(model, families(table, tried, least, fabric=fabric))
    # Some groups of hosts show only once the slow hosts are known.
    again = _with_reach(table, _explained_without_trunks(model, found), tried)
    if len(again) > len(tried):
        second = _fewest(model, families(table, again, least, fabric=fabric))
        found = min(found, second, key=lambda one: one.total)
    return found


def unsteadiness(table: LinkTable, divisions: Sequence[Racks]) -> Unsteadiness:
    """Explain which parts are often slower than at their best.

    The unsteadiness of a link is the geometric mean of two ratios: its median time to its best time, and its
    90th percentile to its best time. The 90th percentile shows a part that is slow less than half of the
    time. Links whose ends waited for cores are left out if most of them are unsteady.
    """
    busy = np.union1d(table.src_host[table.waited], table.dst_host[table.waited])
    times = 0.5 * (table.wander + table.late)
    if table.starved.any() and np.quantile(times[table.starved], _MOST_OF_STARVED) > _STEADY:
        table = table.at(np.flatnonzero(~table.starved))
        times = 0.5 * (table.wander + table.late)
    if not len(table):
        return Unsteadiness(table)
    deviation = -times
    for those in (table.distant, ~table.distant):
        if those.any():
            deviation[those] += float(np.median(times[those]))
    model = Ceiling(deviation, _noise_by_distance(deviation, table, least=_LEAST_NOISE))
    parts = families(table, divisions, _LEAST_UNSTEADY, end_pairs=False)
    found = _fewest(model, parts).causes
    ends = list(_unsteady_ends(found, parts, table))
    of_ends = {row for cause in ends for row in cause.links.tolist()}
    left = (cause for cause in found if not of_ends.issuperset(cause.links.tolist()))
    return Unsteadiness(table, (*ends, *(cause for cause in left if _is_unsteady(cause, table, busy))))


def _noise_by_distance(deviation: Floats, table: LinkTable, **least: float) -> Floats:
    """Return the noise of each link, estimated among links of long latency and among the others."""
    sigma = np.empty(len(deviation))
    for those in (table.distant, ~table.distant):
        sigma[those] = noise(deviation[those], **least)
    return sigma


def _unsteady_ends(causes: Sequence[Cause], parts: Sequence[Family], table: LinkTable) -> Iterator[Cause]:
    """Yield the hosts with more unsteady links than chance explains, though other links of theirs are steady.

    A link is measured by a few messages. If its host is slow at times, these may all meet a slow time, or all
    a normal time. So only some links of such a host look unsteady. A host that waits for cores more often
    than the others is left out.
    """
    # All ranks of a profile load this module, but only one needs scipy.
    from scipy.special import bdtrc

    unsteady = table.late > table.usual_late + UNSTEADY
    for cause in causes:
        unsteady[cause.links] |= "pair" in cause.kind
    waits = table.starved | table.waited
    # The links from one host to another count as one, however many NICs the hosts have.
    hosts = len(table.ends.host_names)
    ways, way = np.unique(table.src_host.astype(np.int64) * hosts + table.dst_host, return_inverse=True)
    often = 2 * np.bincount(way, unsteady) >= np.bincount(way)
    for kind, ends, of_way in (
        ("egress", table.src_host, ways // hosts),
        ("ingress", table.dst_host, ways % hosts),
    ):
        family = next(one for one in parts if one.kind == kind)
        for part in np.unique(of_way[often]).tolist():
            mine = of_way == part
            count, links_of_host = int(often[mine].sum()), int(mine.sum())
            usual = max(1, int(often[~mine].sum())) / max(1, int((~mine).sum()))
            most = 2 * count >= max(links_of_host, 4)
            chance = float(bdtrc(count - 1, links_of_host, usual))
            if chance > (_CHANCE if most else _CHANCE**2) or not (most or count >= _FEWEST_PEERS):
                continue
            here = ends == part
            if waits[here].mean() > waits[~here].mean() + _WAITS_ALIKE:
                continue
            links = np.flatnonzero(here & unsteady)
            severity = float(np.median(0.5 * (table.wander + table.late)[links]))
            gain = -float(np.log(max(chance, np.finfo(float).tiny)))
            yield Cause(family, part, severity, links, -float(np.log(_CHANCE)), gain)


def _is_unsteady(cause: Cause, table: LinkTable, busy: Indices) -> bool:
    """Return whether the links are unsteady for another reason than a disturbed pass or a busy host.

    If an end waits for a core, messages of single links are late. ``busy`` are the hosts with such an end.
    """
    if "pair" in cause.kind:
        # A disturbed pass makes a few messages of a link late, but not half of them.
        half = cause.kind == "pair" or np.median(table.wander[cause.links]) > _LEAST_UNSTEADY["end"]
        ends = np.concatenate((table.src_host[cause.links], table.dst_host[cause.links]))
        return bool(half) and not np.isin(ends, busy).any()
    return not table.waited[cause.links].all()


def _fewest(model: Ceiling, parts: Sequence[Family]) -> CauseFit:
    """Return the better of two explanations, one of all parts and one of hosts and NICs alone.

    A trunk of a small rack has more links than each of its hosts. So the search may add the trunk first even
    if the hosts explain more.
    """
    found = explain(model, parts)
    if any(is_trunk(cause.family) for cause in found.causes):
        of_ends = explain(model, [family for family in parts if family.kind in ENDS])
        # If two hosts explain no worse than their trunk does, up to chance, the hosts are the cause.
        fewer = len(of_ends.causes) <= len(found.causes)
        if of_ends.total < found.total + (_BY_CHANCE if fewer else 0.0):
            found = of_ends
    return found


def _without_disturbed(found: CauseFit, table: LinkTable) -> CauseFit:
    """Return the explanation without single links that were measured once, if there are many of them.

    Among a million links, some are disturbed in every pass. Many independent faults of links are unlikely.
    """
    single = [cause for cause in found.causes if len(cause.links) == 1 and not table.again[cause.links[0]]]
    if len(single) <= _MOST_SINGLE:
        return found
    return replace(found, causes=tuple(cause for cause in found.causes if cause not in single))


def _explained_without_trunks(model: Ceiling, found: CauseFit) -> Mask:
    """Return the links that are about as fast as the causes other than trunks allow."""
    state = model.start()
    for cause in found.causes:
        if not is_trunk(cause.family):
            state[cause.links] = model.put(state[cause.links], cause.severity, cause.links)
    reached: Mask = state - model.values < _REACHED
    return reached


def _with_reach(table: LinkTable, normal_links: Mask, divisions: Sequence[Racks]) -> list[Racks]:
    """Return the divisions, and the division that the normal links show (`by_reach`) if it is new."""
    found = by_reach(table, normal_links, table.ends.host_names)
    known = {racks.key() for racks in divisions}
    return [*divisions, found] if found is not None and found.key() not in known else list(divisions)


def _through_trunks(table: LinkTable, level: Floats, racks: Racks, trunk: float) -> Floats:
    """Return the levels; a link between racks has the lower level of planned trunk and NIC.

    The planned rate includes headers, whose share is known only roughly. So if the links' measured median is
    within a tenth of the planned level, the median is their level instead.
    """
    here, there = racks.of_host[table.src_host], racks.of_host[table.dst_host]
    across = (here >= 0) & (there >= 0) & (here != there)
    most = float(np.median(level[~across])) if (~across).any() else float(level.max())
    expected = min(most, trunk)
    if across.any() and abs(float(np.median(table.rate[across])) - expected) < SHORT:
        expected = float(np.median(table.rate[across]))
    return np.where(across, expected, level)


def _least_of_hosts(table: LinkTable, model: Ceiling, found: CauseFit) -> float:
    """Return the smallest slowdown of a host that counts, given how unequal the sound hosts are.

    A link is only as fast as the slower of its ends, so a host's fastest links show what it can carry.
    """
    count = len(table.ends.host_names)
    named = {part.split(" ")[0] for cause in found.causes if cause.kind in ENDS for part in cause.parts}
    sound = np.array([host not in named for host in table.ends.host_names])
    ends = np.concatenate((table.src_host, table.dst_host))
    left = np.concatenate((model.values - found.state,) * 2)
    middle, fastest = (quantiles(ends, left, count, share)[sound] for share in (0.5, 0.9))
    middle, fastest = middle[np.isfinite(middle)], fastest[np.isfinite(fastest)]
    if len(middle) < _FEWEST_SOUND:
        return _END
    # The median of normal values is one standard deviation above their 16 % quantile. The variance of the 90
    # % quantile of n values is 2.9 times the variance of their mean.
    spread = float(np.quantile(fastest, 0.5) - np.quantile(fastest, 0.16))
    by_chance = 2.9 * float(np.median(model.sigma)) ** 2 * count / max(1, 2 * len(table))
    unequal = float(np.sqrt(max(0.0, spread**2 - by_chance)))
    # Normal is the level of fast links, so the middle host of unequal hosts is below normal.
    below = max(0.0, -float(np.median(middle)))
    return max(_END, min(below + _Z * unequal, _SLOW_ANYWAY))
