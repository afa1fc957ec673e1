"""Link-centric greedy synthesis over bitsets: TACOS's matching of chunks to links (Sec. IV), event by event.

At every instant, each free link with free ports takes a chunk that its source holds and its destination
neither holds nor awaits. Four choices decide the quality:

- *rarest of K*: among K sampled candidates the chunk with the fewest copies goes first;
- *cluster-first*: a slow link prefers chunks that no rank in the destination's cluster of faster links holds
  or awaits, so that each chunk enters a cluster over a slow link only once;
- *strict*: a slow link never carries a chunk that its destination's cluster already holds or awaits;
- *rotate*: when many links are free at once, links of equal distance between their ranks choose together. On
  a switch they are a perfect matching, so that no port is left without a partner.

Unlike in TACOS's release, a chunk is chosen when its link starts, among the chunks that the source then
holds, and is never exchanged later. O(sends · chunks / 64) at worst.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Bytes, Floats, Indices, Ints, Mask, bytes_of, floats, ints
from synth.bounds import cost_levels
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import calendar_of, link_state
from synth.network import Network
from synth.networks import distances_s, strong_components
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import (
    CLUSTER,
    PLAIN,
    STRICT,
    LinkFigures,
    MatchingPolicy,
    backwards,
    in_start_order,
    match,
    pruned,
)
from synth.simulation import replay

__all__ = ["POLICIES", "MatchingPolicy", "centre_counts", "policies", "synthesize", "through"]

# The most levels of links by cost; more expensive links count as the last level. Measured costs may all
# differ.
_MOST_LEVELS = 8
# The most starts of a search, and the most sends of all starts together.
_MOST_STARTS, _MOST_SENDS = 8, 50_000
# Starts of a search differ only by their random seeds, which are this far apart. So searches with consecutive
# seeds share no start.
_STRIDE = 1_000_003
# One rank in two, four or eight may own sums, unless the way through the farthest rank is at most _AS_NEAR
# times the way through the nearest. Seconds are rounded to so many digits.
_PARTS_OF_CENTRES, _AS_NEAR, _DIGITS_S = (2, 4, 8), 1.1, 15

# The policies that spread chunks through relays.
_POLICIES_THROUGH = 3

POLICIES = (
    MatchingPolicy(CLUSTER, 16, rotate=True),
    MatchingPolicy(STRICT, 16, rotate=True),
    MatchingPolicy(CLUSTER, 16),
    MatchingPolicy(PLAIN, 16),
    MatchingPolicy(STRICT, 16),
    MatchingPolicy(CLUSTER, 1),
)


def policies(network: Network) -> tuple[MatchingPolicy, ...]:
    """Return the policies that differ on this network, the most promising first.

    If all links are of one level, all ranks are one cluster, and preferences for clusters make no difference.
    If a switch joins clusters of faster links, the strict policy comes first.
    """
    if not _levels(network).any():
        return tuple({(each.sample, each.rotate): each for each in reversed(POLICIES)}.values())[::-1]
    if len(network.ports) and len(cost_levels(network)) > 1:
        return (POLICIES[1], POLICIES[0], *POLICIES[2:])
    return POLICIES


@dataclass(frozen=True)
class _Search:
    """Parameters of a search; starts are tried until ``time.perf_counter()`` reaches ``end_s``."""

    chunk_bytes: int
    seed: int
    policy: MatchingPolicy
    end_s: float


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    policy: MatchingPolicy = POLICIES[0],
    centres: int | None = None,
    time_limit_s: float = float("inf"),
) -> Schedule:
    """Return the best schedule of one policy, from several starts if they take milliseconds.

    reduce_scatter and reduce are the reversal in time of all_gather and broadcast on the transposed network.
    all_reduce is a reduce_scatter and an all_gather in one table, so that each chunk is spread as soon as its
    sum is complete (TACOS Sec. IV-D). With ``centres``, only so many ranks, those nearest to all others, own
    sums of an all_reduce. After ``time_limit_s`` no further start is tried. Raises NotApplicableError if a
    rank cannot be reached.
    """
    search = _Search(chunk_bytes, seed, policy, time.perf_counter() + time_limit_s)
    if collective.kind == "all_reduce":
        owner = collective.owner_of()[0]
        if centres is not None:
            nearest = np.argsort(_way_s(network, chunk_bytes), kind="stable")[:centres]
            owner = np.resize(nearest, collective.chunks)
        chunk, link, op = _all_reduce(network, collective, owner, search)
    elif collective.reduced.all() and (collective.targets.sizes() == 1).all():
        chunk, link = _gathered(network, collective.wanted(), collective.held(), search)
        op = np.full(len(chunk), REDUCE, np.uint8)
    elif not collective.reduced.any():
        chunk, link = _spread(network, collective.held(), collective.wanted(), search)[:2]
        op = np.full(len(chunk), COPY, np.uint8)
    else:
        raise NotApplicableError(f"greedy serves copies or sums, not {collective.label} at once")
    rough = Schedule(network, collective, chunk_bytes, "greedy", seed, ints(chunk), ints(link), bytes_of(op))
    return in_start_order(rough) if collective.reduces else rough


def through(found: Schedule) -> Schedule:
    """Return the copies of ``found`` to the same ranks, over links that choose their chunks themselves.

    Ranks that only relay in ``found`` may relay here, too. Sends that serve nobody are left out.
    """
    network, collective = found.network, found.collective
    wanted = collective.wanted().copy()
    wanted[network.dst[found.link], found.chunk] = True
    made = []
    # A strict policy finds no way to a chunk's relays if others in their cluster hold it.
    for policy in [one for one in policies(network) if one.preference != STRICT][:_POLICIES_THROUGH]:
        search = _Search(found.chunk_bytes, found.seed, policy, float("inf"))
        chunk, link, _ = _spread(network, collective.held(), wanted, search)
        copies = bytes_of(np.full(len(chunk), COPY))
        made.append(replace(found, chunk=ints(chunk), link=ints(link), op=copies))
    return pruned(min(made, key=lambda schedule: replay(schedule).time_s))


def centre_counts(network: Network, chunk_bytes: int) -> list[int]:
    """Return numbers of ranks that may own all sums; [] if every rank is about as near to the others.

    Fewer owners are nearer, but their links carry more.
    """
    way_s = _way_s(network, chunk_bytes)
    if way_s.max() <= _AS_NEAR * way_s.min() or not np.isfinite(way_s).all():
        return []
    return sorted({max(1, network.ranks // part) for part in _PARTS_OF_CENTRES}, reverse=True)


def _way_s(network: Network, chunk_bytes: int) -> Floats:
    """Return the time from the farthest rank to each rank, and on to the farthest."""
    way_s = distances_s(network, network.travel_s(chunk_bytes), np.arange(network.ranks))
    # Sums of floats round: ranks that are as near as others keep their order.
    return floats((way_s.max(axis=0) + way_s.max(axis=1)).round(_DIGITS_S))


def _all_reduce(
    network: Network, collective: Collective, owner: Indices, search: _Search
) -> tuple[Ints, Ints, Bytes]:
    """Return sends that reduce each chunk at its owner, and spread it from there."""
    members = collective.held()
    owned = np.arange(network.ranks)[:, None] == owner
    there_chunk, there_link, arrival_s = _spread(network, owned, members, search)
    large = np.count_nonzero(members & ~owned) >= _MOST_SENDS
    opposite = network.opposite_links() if large else None
    if opposite is None:
        back_chunk, back_link = _gathered(network, owned, members, search)
    else:
        # If each link has an opposite one, the network equals its transpose, and one search serves both
        # phases.
        order = backwards(arrival_s)
        back_chunk, back_link = there_chunk[order], ints(opposite[there_link[order]])
    op = np.concatenate((np.full(len(back_chunk), REDUCE), np.full(len(there_chunk), COPY)))
    return np.concatenate((back_chunk, there_chunk)), np.concatenate((back_link, there_link)), op


def _gathered(network: Network, wanted: Mask, held: Mask, search: _Search) -> tuple[Ints, Ints]:
    """Return sends from all holders to the one rank that wants the sum: spreading, reversed in time."""
    chunk, link, arrival_s = _spread(network.transposed(), wanted, held, search)
    order = backwards(arrival_s)
    return chunk[order], link[order]


def _spread(network: Network, held: Mask, wanted: Mask, search: _Search) -> tuple[Ints, Ints, Floats]:
    """Return (chunk, link, arrival) of sends to all ranks that want a chunk, in the order of starts.

    Ranks that do not want a chunk do not relay it.
    """
    total = int(np.count_nonzero(wanted & ~held))
    hold_s, travel_s = network.hold_s(search.chunk_bytes), network.travel_s(search.chunk_bytes)
    turns = np.argsort((network.dst - network.src) % network.ranks, kind="stable")
    wires = LinkFigures(
        network.src, network.dst, hold_s, travel_s, *_by_first_port(network), *_clusters(network), turns
    )
    calendar = calendar_of(hold_s, travel_s, total)
    state = link_state(network.link_port_start, network.link_port, *network.port_links)

    def started(seed: int) -> tuple[tuple[Ints, Ints, Floats], float]:
        """Return the sends of one start, and the arrival of the last one."""
        chunk, link, arrival_s, missing = match(wires, state, calendar, held, wanted, search.policy, seed)
        if missing >= 0:
            raise NotApplicableError(
                f"greedy: {network.name}: rank {missing} cannot be reached over ranks that want the same "
                "chunks"
            )
        return (chunk, link, arrival_s), float(arrival_s.max(initial=0.0))

    starts = int(np.clip(_MOST_SENDS / max(1, total), 1, _MOST_STARTS))
    best, best_s = started(search.seed)
    for start in range(1, starts):
        if time.perf_counter() > search.end_s:
            break
        found, found_s = started(search.seed + start * _STRIDE)
        if found_s < best_s:
            best, best_s = found, found_s
    return best


def _by_first_port(network: Network) -> tuple[Ints, Ints, Ints]:
    """Return (start, each rank's links by first port, end of each link's run with the same port).

    A rank's many links through one busy port can then be skipped in one step.
    """
    start, links = network.out_links
    has_port = np.diff(network.link_port_start) > 0
    first = np.full(network.links, -1)
    first[has_port] = network.link_port[network.link_port_start[:-1][has_port]]
    links = links[np.lexsort((first[links], network.src[links]))]
    group_starts = np.flatnonzero(
        np.diff(first[links], prepend=-2).astype(bool) | np.diff(network.src[links], prepend=-1).astype(bool)
    )
    ends = np.append(group_starts[1:], len(links))
    return start, ints(links), ints(np.repeat(ends, np.diff(np.append(group_starts, len(links)))))


def _clusters(network: Network) -> tuple[Ints, Ints]:
    """Return (level of each link, cluster [level, rank]); links of lower levels form clusters."""
    level = _levels(network)
    levels = int(level.max(initial=0)) + 1
    cluster = np.empty((levels, network.ranks), np.int32)
    for at in range(levels):
        cluster[at] = strong_components(network, level < at)
    return level, cluster


def _levels(network: Network) -> Ints:
    """Return the level of each link, cheap links first.

    Among links of equal cost, those between hosts form a level of their own, above those inside hosts.
    """
    costs = cost_levels(network)[:_MOST_LEVELS]
    cost = np.minimum(np.searchsorted(costs * (1 + 1e-9), network.beta_s_per_byte), len(costs) - 1)
    _, level = np.unique(2 * cost + (~network.within_host), return_inverse=True)
    return ints(level)
