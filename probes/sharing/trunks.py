"""Shared trunks: ports between hosts through which links without a common host slow each other down.

Links that were slower under concurrent load are loaded together with others of their round. Flows that the
slowdown does not need are removed; the remaining ones cross one port. Every other host is then tried as a
sender and as a receiver beside flows that fill the port, so the number of trials grows with hosts, not with
pairs. Last, as many concurrent flows as possible cross the port, to measure its rate. One side of a trunk may
consist of several racks. To find them, every two neighbouring hosts of the side are tried together: one sends
to a host of the same side, the other to a host of the opposite side. They slow each other down if both flows
leave the same rack.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from probes.link_costs import TRUNK
from probes.sampling import Pair, Place, first_fit
from probes.sharing.model import Share
from probes.sharing.trials import ACCEPT_ANY, SHARED, Accept, ContentionTrials, Known, SpentError, Trial

__all__ = ["one_at_a_time", "trunk_shares"]

# Each seed and each trunk takes several of the MOST_TRIALS trials.
_MOST_SEEDS = 6
_MOST_TRUNKS = 8
# A host is tried only if its flow through the trunk would slow the others down by at least this factor.
_LEAST_CONTRAST = 1.15
# Above this contrast, one trial that finds the expected slowdown is enough.
_CLEAR_CONTRAST = 1.3
# A host is tried by one of its _MOST_LINKS fastest links to the trunk's other side, beside at most
# _MOST_IN_COMPANY of the trunk's _MOST_FLOWS fastest links. These fill the trunk, and are few enough to
# compare all combinations.
_MOST_LINKS, _MOST_FLOWS, _MOST_IN_COMPANY = 4, 12, 3
# A trunk that carries this many times more than its fastest link has a rate of its own.
_FASTER = 1.05


@dataclass
class _Trunk:
    """Hosts that send through a port, hosts that receive through it, and its rate in bytes/s."""

    near: list[str]
    far: list[str]
    rate: float

    def slowdown(self, flows: Trial, known: Known) -> float:
        """Return the factor by which flows through the trunk take longer together than alone."""
        return max(1.0, _rate(flows, known) / self.rate)

    def links(self, known: Known) -> list[Pair]:
        """Return the measured links that cross it, fastest first."""
        ends = set(self.near), set(self.far)
        found = [
            pair for pair in known.beta if known.host(pair[0]) in ends[0] and known.host(pair[1]) in ends[1]
        ]
        return sorted(found, key=lambda pair: (known.beta[pair], pair))

    def share(self, known: Known) -> Share:
        order, links = list(known.ranks_of()), self.links(known)
        sides = (",".join(sorted(side, key=order.index)) for side in (self.near, self.far))
        fastest = 1 / known.beta[links[0]]
        s_per_byte = 1 / self.rate if self.rate > _FASTER * fastest else 0.0
        return Share(f"{TRUNK}{' → '.join(sides)}", tuple(sorted(links)), s_per_byte)


def trunk_shares(known: Known, trials: ContentionTrials) -> tuple[list[Share], list[str]]:
    """Find the trunks; return them, and findings about contention without a trunk."""
    found: list[Share] = []
    left = {**known.kept_waiting, **known.contended}
    with contextlib.suppress(SpentError):
        while left and len(found) < _MOST_TRUNKS:
            seed, slowdown = _seed(left, known, trials)
            if not seed:
                sure = {pair: gain for pair, gain in known.contended.items() if pair in left}
                return found, [_unexplained(sure)] if len(sure) > 1 else []
            found += (first := _through(seed, slowdown, known, trials))
            found += _racks_within(first[0], found, known, trials) if first else ()
            covered = {pair for share in found for pair in share.pairs} | set(seed)
            left = {pair: gain for pair, gain in left.items() if pair not in covered}
    return found, []


def one_at_a_time(
    pairs: Sequence[Pair], shares: Sequence[Share], places: Sequence[Place]
) -> list[list[Pair]]:
    """Cut ``pairs`` into waves in which no two have a host, or one of ``shares``, in common."""

    def needed(pair: Pair) -> set[str]:
        hosts = {places[rank].host for rank in pair}
        return hosts | {share.name for share in shares if pair in share.pairs}

    return first_fit(pairs, needed)


def _seed(contended: Mapping[Pair, float], known: Known, trials: ContentionTrials) -> tuple[Trial, float]:
    """Return (the fewest links without common hosts that slow each other down, the slowdown).

    Returns ((), 1.0) if there are none. Intermediate trials are not repeated, because the last one confirms
    them.
    """
    for pair in sorted(contended, key=lambda pair: (-contended[pair], pair))[:_MOST_SEEDS]:
        for loaded in _loads(pair, contended, known):
            if trials.shared([loaded], ACCEPT_ANY)[0]:
                seed = _fewest(loaded, known, trials)
                slowdown = trials.slowdowns([seed], Accept(below=SHARED))[0]
                if slowdown > SHARED:
                    return seed, slowdown
    return (), 1.0


def _loads(pair: Pair, contended: Mapping[Pair, float], known: Known) -> Iterator[Trial]:
    """Yield sets of flows from the round of ``pair``, as large as possible, until each flow was in a set."""
    # One of the links that share a port may take all its bandwidth and not look contended, so all links of
    # the round are candidates.
    left = [
        other
        for other in known.beta
        if _stride(other, known) == _stride(pair, known) and _are_apart((pair, other), known)
    ]
    left.sort(key=lambda other: (-contended.get(other, 0.0), known.beta[other], other))
    tried: list[Pair] = []
    while left:
        found = _without_common_host([pair, *left, *tried], known)
        yield found
        tried += [other for other in left if other in found]
        left = [other for other in left if other not in found]


def _fewest(flows: Trial, known: Known, trials: ContentionTrials) -> Trial:
    """Return a small subset of ``flows`` that still share a port; the rest is found by halving."""
    flows = tuple(sorted(flows, key=lambda pair: (-known.beta[pair], pair)))
    size = len(flows) // 2
    while size:
        first = 0
        while first < len(flows):
            rest = flows[:first] + flows[first + size :]
            if len(rest) > 1 and trials.shared([rest], ACCEPT_ANY)[0]:
                flows = rest
            else:
                first += size
        size //= 2
    return flows


def _stride(pair: Pair, known: Known) -> int:
    order = list(known.ranks_of())
    return (order.index(known.host(pair[1])) - order.index(known.host(pair[0]))) % len(order)


def _through(
    seed: Trial, slowdown: float, known: Known, trials: ContentionTrials, beyond: Sequence[str] = ()
) -> list[Share]:
    """Return the trunk that the links of ``seed`` cross, and the trunk in the other direction.

    The links of ``seed`` are ``slowdown`` times slower together than alone. The hosts ``beyond`` are known to
    be on the far side.
    """
    near, far = ([known.host(pair[end]) for pair in seed] for end in (0, 1))
    there = _Trunk(near, far, _rate(seed, known) / slowdown)
    _find_sides(there, beyond, known, trials)
    back = _Trunk(there.far, there.near, there.rate)
    shares = []
    for trunk in (there, back):
        # As many concurrent flows as possible fill it.
        flows = _without_common_host(trunk.links(known), known)
        expected = trunk.slowdown(flows, known)
        if expected > _LEAST_CONTRAST:
            least = min(math.sqrt(expected), SHARED)
            found = trials.slowdowns([flows], Accept(below=least, near=expected))[0]
            if found > least:
                trunk.rate = _rate(flows, known) / found
                trunk.rate = trials.carried(_fair(flows, trunk.rate, known))
                shares.append(trunk.share(known))
    return shares


def _fair(flows: Trial, rate: float, known: Known) -> dict[Pair, float]:
    """Return the max-min fair rates (bytes/s) of flows through a port of this rate."""
    found: dict[Pair, float] = {}
    for left, pair in zip(
        range(len(flows), 0, -1), sorted(flows, key=lambda pair: -known.beta[pair]), strict=True
    ):
        found[pair] = min(1 / known.beta[pair], rate / left)
        rate -= found[pair]
    return found


def _find_sides(trunk: _Trunk, beyond: Sequence[str], known: Known, trials: ContentionTrials) -> None:
    """Add to ``trunk`` the hosts that send through its port, and those that receive through it.

    The hosts ``beyond`` are known to receive. Each other host is tried beside links of the seed, which share
    that port and no other. If that cannot show whether a slow host uses the port, the host is tried beside
    all links through the port that are known by then.
    """
    seed = replace(trunk, near=[*trunk.near], far=[*trunk.far])
    trunk.far += [host for host in beyond if host not in trunk.far]
    for host in known.ranks_of():
        if host in (*trunk.near, *trunk.far):
            continue
        for side, end in ((trunk.near, 0), (trunk.far, 1)):
            crosses = _crosses(host, end, seed, known, trials)
            if crosses is None:
                crosses = _crosses(host, end, trunk, known, trials)
            if crosses:
                side.append(host)
                break


def _crosses(host: str, end: int, trunk: _Trunk, known: Known, trials: ContentionTrials) -> bool | None:
    """Return whether a host sends (``end`` 0) or receives (1) through a trunk, as its slowdown shows.

    Uses the most sensitive trial, beside flows that just fill the trunk. None if no trial is sensitive
    enough.
    """
    others = trunk.far if end == 0 else trunk.near
    mine = [
        pair for pair in known.beta if known.host(pair[end]) == host and known.host(pair[1 - end]) in others
    ]
    across = trunk.links(known)[:_MOST_FLOWS]
    contrast = _LEAST_CONTRAST
    trial: Trial = ()
    company: Trial = ()
    for link in sorted(mine, key=lambda pair: (known.beta[pair], pair))[:_MOST_LINKS]:
        for beside in _companies([pair for pair in across if _are_apart((link, pair), known)], known):
            times = trunk.slowdown((link, *beside), known) / trunk.slowdown(beside, known)
            if times > contrast:
                contrast, trial, company = times, (link, *beside), beside
    if not trial:
        return None
    # The threshold is the geometric mean of the slowdowns expected with and without crossing.
    least = trunk.slowdown(company, known) * math.sqrt(contrast)
    near = trunk.slowdown(trial, known) if contrast > _CLEAR_CONTRAST else math.inf
    return trials.slowdowns([trial], Accept(least, near))[0] > least


def _racks_within(
    outer: Share, found: Sequence[Share], known: Known, trials: ContentionTrials
) -> list[Share]:
    """Return the trunks of the racks on each side of ``outer``.

    The hosts on the opposite side of ``outer`` are on the far side of each such trunk.
    """
    inner: list[Share] = []
    sides = [list(dict.fromkeys(known.host(pair[end]) for pair in outer.pairs)) for end in (0, 1)]
    for here, there in (sides, sides[::-1]):
        order = [host for host in known.ranks_of() if host in here]
        for at, (one, other) in enumerate(pairwise(order if len(order) > 2 else [])):
            half = len(order) // 2
            # The most distant host comes first, because it is most likely in another rack.
            others = [
                host
                for host in (order[half:][::-1] if at < half else order[:half])
                if host not in (one, other)
            ]
            stays, leaves = _fastest(one, others, known), _fastest(other, there[::-1], known)
            if stays is None or leaves is None or any({stays, leaves} <= {*share.pairs} for share in inner):
                continue
            seed = (stays, leaves)
            if len(found) + len(inner) < _MOST_TRUNKS and trials.shared([seed], ACCEPT_ANY)[0]:
                slowdown = trials.slowdowns([seed], Accept(below=SHARED))[0]
                if slowdown > SHARED:
                    names = {share.name for share in (*found, *inner)}
                    through = _through(seed, slowdown, known, trials, there)
                    inner += [share for share in through if share.name not in names]
    return inner


def _fastest(src: str, hosts: Sequence[str], known: Known) -> Pair | None:
    """Return the fastest measured link from ``src`` to ``hosts``; earlier hosts win ties; None if none."""
    found = [pair for pair in known.beta if known.host(pair[0]) == src and known.host(pair[1]) in hosts]
    return min(found, key=lambda pair: (known.beta[pair], hosts.index(known.host(pair[1]))), default=None)


def _rate(flows: Trial, known: Known) -> float:
    """Return the sum of the bytes/s of flows, each alone."""
    return sum(1 / known.beta[pair] for pair in flows)


def _companies(flows: Sequence[Pair], known: Known) -> Iterator[Trial]:
    """Yield every combination of a few ``flows`` without a common host."""
    for count in range(1, _MOST_IN_COMPANY + 1):
        for company in combinations(flows, count):
            if _are_apart(company, known):
                yield company


def _without_common_host(flows: Sequence[Pair], known: Known) -> Trial:
    """Return the members of ``flows`` that have no host in common with an earlier returned one."""
    found: Trial = ()
    for pair in flows:
        if _are_apart((*found, pair), known):
            found = (*found, pair)
    return found


def _are_apart(flows: Trial, known: Known) -> bool:
    return len({known.host(rank) for pair in flows for rank in pair}) == 2 * len(flows)


def _unexplained(contended: Mapping[Pair, float]) -> str:
    return (
        f"{len(contended)} links between hosts are up to {max(contended.values()):.1f} times faster alone "
        "than under load, but no port shared by a few of them explains it: the network carries less than its "
        "hosts can send together"
    )
