"""Paths of least congestion: cheapest paths under prices that rise with load.

Chunks are routed batch by batch. In later passes each batch is removed and routed again at the prices of all
others. With these multiplicative weights the largest load falls towards the optimum of the concurrent-flow LP
(Garg and Könemann). The best pass is kept; two passes without gain end the search.

In a clique a search over all links takes so long that large batches share a path. There each chunk goes
directly or over one other rank, and is a batch of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints
from synth.kernels import compiled, copy_into
from synth.routing.congestion_prices import (
    ETA,
    PathSearch,
    Resources,
    charge,
    cheapest,
    largest_load_s,
    price_of,
    search_over,
)

__all__ = ["Demands", "route"]


class Demands(NamedTuple):
    """Chunks, sorted by source; the s-th source has chunks ``first[s]`` to before ``first[s + 1]``."""

    source: Indices
    target: Indices
    first: Indices


class _Paths(NamedTuple):
    """The paths: chunk c takes ``link[c, : hops[c]]``; all hops are -1 if some chunk has no path."""

    hops: Ints
    link: Ints


@compiled
def route(
    through: Resources,
    demands: Demands,
    load_s: Floats,
    passes: int,
    batch: int,
    most_hops: int,
    stretch: float,
    seed: int,
    clique: Ints,
) -> tuple[Ints, Ints]:
    """Return (hops, links): chunk c takes the path ``links[c, : hops[c]]``.

    All hops are -1 if some chunk has no path. ``load_s`` (links, then ports) is the load before the call; the
    chunks are added to it. The first pass takes the shortest paths. The latency of a later path is at most
    ``stretch`` times the largest latency of these. ``clique[a, b]`` is the link from rank a to rank b of a
    clique, whose paths have two hops at most; it is empty on other networks.
    """
    np.random.seed(seed)
    chunks = len(demands.source)
    paths = _Paths(np.zeros(chunks, np.int32), np.zeros((chunks, most_hops), np.int32))
    best_hops, best_link, best_s = paths.hops.copy(), paths.link.copy(), np.inf
    search = search_over(through)
    own = np.zeros(len(through.src), np.int64)
    price = np.ones(len(load_s))
    before_s, stale = load_s.copy(), 0
    largest_s = largest_load_s(load_s)
    order = np.arange(len(demands.first) - 1)
    most_latency_s = np.inf
    for turn in range(passes + 1):
        largest_s = largest_load_s(load_s)
        for at in range(len(load_s)):
            # The first pass has no loads yet and takes the shortest paths.
            price[at] = np.exp(ETA * load_s[at] / largest_s) if turn else 1.0
        np.random.shuffle(order)
        # The first pass finds the paths of a group by one search.
        size = 0 if turn == 0 else 1 if len(clique) else batch
        for group in order:
            mine = np.arange(demands.first[group], demands.first[group + 1])
            if not _reroute_group(
                through,
                demands,
                mine,
                size,
                paths,
                search,
                own,
                clique,
                load_s,
                price,
                largest_s,
                most_latency_s,
            ):
                paths.hops[:] = -1
                return paths.hops, paths.link
        if turn == 0 and stretch < np.inf:
            most_latency_s = stretch * _largest_latency_s(through, paths)
        stale += 1
        if largest_load_s(load_s) < best_s * (1 - 1e-3):
            stale = 0
        if largest_load_s(load_s) < best_s * (1 - 1e-9):
            best_s = largest_load_s(load_s)
            best_hops, best_link = paths.hops.copy(), paths.link.copy()
        if stale == 2:
            break
    copy_into(load_s, before_s)
    for chunk in range(chunks):
        for at in range(best_hops[chunk]):
            charge(through, load_s, price, best_link[chunk, at], 1.0, largest_s)
    return best_hops, best_link


@compiled
def _reroute_group(
    through: Resources,
    demands: Demands,
    mine: Indices,
    size: int,
    paths: _Paths,
    search: PathSearch,
    own: Indices,
    clique: Ints,
    load_s: Floats,
    price: Floats,
    largest_s: float,
    most_latency_s: float,
) -> bool:
    """Give the chunks ``mine`` of a group new paths, in batches of ``size``; return False if one has none.

    ``size`` is 0 while the chunks have no paths yet; then the group is one batch without a largest load.
    """
    np.random.shuffle(mine)
    step = size if size else max(1, len(mine))
    most_s = largest_s if size else np.inf
    for begin in range(0, len(mine), step):
        part = mine[begin : begin + step]
        if size:
            _unload(through, part, paths, load_s, price, largest_s)
        if size and len(clique):
            _reroute_in_clique(
                through, demands, part[0], paths, clique, load_s, price, most_s, most_latency_s
            )
        elif not _reroute(through, demands, part, paths, search, own, load_s, price, most_s, most_latency_s):
            return False
    return True


@compiled
def _largest_latency_s(through: Resources, paths: _Paths) -> float:
    most_s = 0.0
    for chunk in range(len(paths.hops)):
        latency_s = 0.0
        for at in range(paths.hops[chunk]):
            latency_s += through.latency_s[paths.link[chunk, at]]
        most_s = max(most_s, latency_s)
    return most_s


@compiled
def _unload(
    through: Resources, part: Indices, paths: _Paths, load_s: Floats, price: Floats, largest_s: float
) -> None:
    """Remove the chunks of ``part`` from the loads."""
    for chunk in part:
        for at in range(paths.hops[chunk]):
            charge(through, load_s, price, paths.link[chunk, at], -1.0, largest_s)


@compiled
def _reroute(
    through: Resources,
    demands: Demands,
    part: Indices,
    paths: _Paths,
    search: PathSearch,
    own: Indices,
    load_s: Floats,
    price: Floats,
    largest_s: float,
    most_latency_s: float,
) -> bool:
    """Give the chunks of ``part``, of one source, their cheapest paths; return False if one has none.

    ``own`` (by link) is zero before and after.
    """
    search.wanted[:] = False
    enough = 0
    for chunk in part:
        if not search.wanted[demands.target[chunk]]:
            search.wanted[demands.target[chunk]] = True
            enough += 1
    seeds = np.full(1, np.int64(demands.source[part[0]]))
    if cheapest(through, search, price, seeds, enough) < 0:
        return False
    for chunk in part:
        _lay(through, demands, search, paths, chunk, most_latency_s)
        for at in range(paths.hops[chunk]):
            own[paths.link[chunk, at]] += 1
    for chunk in part:
        for at in range(paths.hops[chunk]):
            link = paths.link[chunk, at]
            if own[link]:
                charge(through, load_s, price, link, own[link], largest_s)
                own[link] = 0
    return True


@compiled
def _reroute_in_clique(
    through: Resources,
    demands: Demands,
    chunk: int,
    paths: _Paths,
    clique: Ints,
    load_s: Floats,
    price: Floats,
    largest_s: float,
    most_latency_s: float,
) -> None:
    """Give a chunk the direct link or the cheapest path over one other rank."""
    source, target = demands.source[chunk], demands.target[chunk]
    best, relay = price_of(through, price, clique[source, target]), -1
    for rank in range(len(clique)):
        if rank in (source, target):
            continue
        to, on = clique[source, rank], clique[rank, target]
        cost = price_of(through, price, to) + price_of(through, price, on)
        if cost < best and through.latency_s[to] + through.latency_s[on] <= most_latency_s:
            best, relay = cost, rank
    paths.hops[chunk] = 1
    paths.link[chunk, 0] = clique[source, target]
    if relay >= 0:
        paths.hops[chunk] = 2
        paths.link[chunk, 0], paths.link[chunk, 1] = clique[source, relay], clique[relay, target]
    for at in range(paths.hops[chunk]):
        charge(through, load_s, price, paths.link[chunk, at], 1.0, largest_s)


@compiled
def _lay(
    through: Resources,
    demands: Demands,
    search: PathSearch,
    paths: _Paths,
    chunk: int,
    most_latency_s: float,
) -> None:
    """Store the path to a chunk's target; too long a path is ignored (in the first pass, no path is left)."""
    src, came = through.src, search.came
    count, rank, latency_s = 0, demands.target[chunk], 0.0
    while rank != demands.source[chunk]:
        latency_s += through.latency_s[came[rank]]
        rank = src[came[rank]]
        count += 1
    if count > paths.link.shape[1] or latency_s > most_latency_s:
        return
    paths.hops[chunk] = count
    rank = demands.target[chunk]
    for at in range(count - 1, -1, -1):
        paths.link[chunk, at] = came[rank]
        rank = src[came[rank]]
