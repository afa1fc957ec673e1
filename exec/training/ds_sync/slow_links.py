"""Detection of slow links: if the times of groups change, links are timed (DS-Sync, Sec. III-A).

A group takes as long as its slowest link, so its time shows that a link is slow, but not which link. The
inter-rack group of the paper's pattern even contains every rack. Links are therefore timed, but only when the
times of groups have changed. Links that share a rank or a rack's trunk are not timed at the same time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from synth.groups import Groups
from synth.network import Link, Network, build

__all__ = ["Cost", "Pair", "Time", "group_times", "have_changed", "measured", "tournament"]

# Times that differ by more than this factor have changed; smaller differences are noise. The planner keeps a
# slow rank or rack slow above the same ratio (`synth.groups.racks`).
_CHANGED = 1.25

Pair = tuple[int, int]
# (alpha_s, beta_s_per_byte)
Cost = tuple[float, float]
# A collective function that times disjoint pairs of ranks concurrently, and returns the costs of all pairs.
Time = Callable[[Sequence[Pair]], Mapping[Pair, Cost]]
# Times by (iteration within the period, group).
_Times = dict[tuple[int, tuple[int, ...]], float]


def group_times(groups: Groups, seconds: Sequence[Mapping[int, float]]) -> _Times:
    """Return the time of each group from the ranks' times in each iteration of the period.

    The time of a group is the least of its ranks' times: this rank came last and waited for no other.
    """
    return {
        (row, group): min(known)
        for row, division in enumerate(groups.iterations)
        for group in division
        if len(group) > 1 and (known := [seconds[rank][row] for rank in group if row in seconds[rank]])
    }


def have_changed(before: _Times, now: _Times) -> bool:
    """Return whether the time of a group has changed by more than noise."""
    ratios = [now[key] / before[key] for key in now.keys() & before.keys() if before[key] > 0]
    return any(not 1 / _CHANGED <= ratio <= _CHANGED for ratio in ratios)


def tournament(players: Sequence[int]) -> list[list[Pair]]:
    """Return rounds of disjoint pairs in which every two players meet once (the circle method)."""
    seats: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def measured(groups: Groups, time: Time) -> Network:
    """Return the network of ``groups`` with the current link costs; collective.

    Links within racks are timed first, in all racks concurrently. Then, for each two racks, the link between
    their fastest ranks is timed. The other links between the two racks get the same cost, but a rank's links
    never cost less per byte than its best link within its rack.
    """
    racks = groups.racks
    costs: dict[Pair, Cost] = {}
    for rounds in itertools.zip_longest(*map(tournament, racks), fillvalue=()):
        costs |= time([pair for each in rounds for pair in each])
    best_beta = dict.fromkeys(itertools.chain.from_iterable(racks), 0.0)
    for rank in best_beta:
        best_beta[rank] = min((beta for pair, (_, beta) in costs.items() if rank in pair), default=0.0)
    fastest = [min(rack, key=lambda rank: (best_beta[rank], rank)) for rack in racks]
    across: dict[Pair, Cost] = {}
    for pairs in tournament(range(len(racks))):
        ends = {tuple(sorted((fastest[a], fastest[b]))): (a, b) for a, b in pairs}
        found = time([(low, high) for low, high in ends])
        across |= {ends[pair]: cost for pair, cost in found.items()}
    for (a, b), (alpha_s, beta) in across.items():
        for u, v in itertools.product(racks[a], racks[b]):
            costs[min(u, v), max(u, v)] = (alpha_s, max(beta, best_beta[u], best_beta[v]))
    links = [Link(*ends, *cost) for pair, cost in sorted(costs.items()) for ends in (pair, pair[::-1])]
    return build("links measured in training", groups.network.hosts, links)
