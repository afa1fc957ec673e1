"""A lower bound for broadcasts: at first only the ranks near the root have data to send.

Take a set S of ranks without the root. Each of them receives all bytes, over links into S. A byte that
starts over a link at time t was at the link's source by then, so t is at least the time of the shortest path
from the root to that source. Let R(t) be a rate that the links from ranks within t into S cannot exceed
together, and α the least latency of a link into S. A broadcast that ends at T has sent all bytes into S by
T − α, so the integral of R from 0 to T − α is at least the number of ranks in S times the bytes.

R is the least of three sums of rates: over the busiest ports of these links, over the ports by which they
leave their sources, and over those by which they enter S. The bound exceeds others where the slowest ranks
share what the root sends until others can help. O(sets · distances · links).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from probes.base import Floats, Indices, Mask, floats, plural, rate_text
from synth.bounds.cuts import gates_along
from synth.network import Network
from synth.schedules import Bound

__all__ = ["early_sends"]

# The most ranks of a network: all its links are looked at for each of up to _MOST_SETS sets of each kind and
# of up to _MOST_TIMES times.
_MOST_RANKS, _MOST_SETS, _MOST_TIMES = 256, 8, 8
# Distances and rates are equal within this share: sums of floats round.
_ALIKE = 1e-9


def early_sends(network: Network, root: int, distance_s: Floats, each_bytes: float) -> Bound:
    """Return the largest bound over some sets of ranks; its time is 0 on networks that are too large.

    The sets are the ranks of the least rates of ingress, and the ranks farthest from the root. ``distance_s``
    is the time of the shortest path from ``root`` to each rank, ``each_bytes`` the bytes that each receives.
    """
    best = Bound("early sends", 0.0)
    if network.ranks > _MOST_RANKS:
        return best
    groupings = _groupings(network)
    from_s = distance_s[network.src]
    after_s = floats(np.zeros(network.links) if network.hold_alpha else network.alpha_s)
    for inside in _sets(network, root, distance_s, groupings):
        links = np.flatnonzero(inside[network.dst])
        if not len(links):
            continue
        needed = each_bytes * int(inside.sum())
        begun_s, first_rate, time_s = _levels(from_s[links], _MOST_TIMES), 0.0, 0.0
        # Each link counts from one of the times on, its own or an earlier one.
        begins = np.searchsorted(begun_s, from_s[links], side="right") - 1
        for at, now_s in enumerate(begun_s):
            rate = min(_rate(links[begins <= at], *grouping) for grouping in groupings)
            first_rate = first_rate or rate
            ends_s = begun_s[at + 1] if at + 1 < len(begun_s) else np.inf
            if rate * (ends_s - now_s) >= needed:
                time_s = now_s + needed / rate + float(after_s[links].min())
                break
            needed -= rate * (ends_s - now_s)
        if time_s > best.time_s:
            receivers = plural(int(inside.sum()), "rank")
            detail = f"at most {rate_text(first_rate)} into {receivers} at first"
            best = Bound("early sends", time_s, detail)
    return best


def _sets(
    network: Network, root: int, distance_s: Floats, groupings: Sequence[tuple[Indices, Floats]]
) -> Iterator[Mask]:
    """Yield the ranks up to each of some rates of ingress, then those beyond each of some distances."""
    start, entering = network.in_links
    into = np.split(entering.astype(np.int64), start[1:-1])
    rate = np.array([min(_rate(links, *grouping) for grouping in groupings) for links in into])
    others = np.arange(network.ranks) != root
    for least in _levels(rate[others], _MOST_SETS):
        yield others & (rate <= least * (1 + _ALIKE))
    for far_s in _levels(distance_s[others], _MOST_SETS)[1:]:
        yield others & (distance_s >= far_s * (1 - _ALIKE))


def _levels(values: Floats, most: int) -> list[float]:
    """Return at most ``most`` of the distinct values, rising, among them the least and the greatest."""
    found = np.unique(values)
    found = found[np.append(True, np.diff(found) > _ALIKE * found[1:])]
    if len(found) > most:
        found = found[np.linspace(0, len(found) - 1, most).astype(int)]
    return [float(value) for value in found]


def _groupings(network: Network) -> list[tuple[Indices, Floats]]:
    """Return (gate of each link, its rate over this link): of links together, by source, and by target."""
    found, parted = list[tuple[Indices, Floats]](), [[np.arange(network.links)]]
    for start, by_end in (network.out_links, network.in_links):
        parted.append(np.split(by_end.astype(np.int64), start[1:-1]))
    for parts in parted:
        gate, rate, count = np.zeros(network.links, np.int64), np.zeros(network.links), 0
        for links in parts:
            passed, held_s_per_byte = gates_along(network, links)
            gate[links], rate[links] = passed + count, 1.0 / held_s_per_byte
            count += len(links)
        found.append((gate, floats(rate)))
    return found


def _rate(links: Indices, gate: Indices, rate: Floats) -> float:
    """Return the joint rate of the gates of some links, each over the link that holds it least."""
    order = np.lexsort((-rate[links], gate[links]))
    first = np.flatnonzero(np.diff(gate[links][order], prepend=-1))
    return float(rate[links][order][first].sum())
