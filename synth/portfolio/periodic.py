"""Synthesizes periodic all_reduces: as many chunks as fill the pipeline, at the cost of one period.

A plain schedule lists every send, so memory limits its number of chunks, and on a thousand ranks its pipeline
hardly fills. Here one period holds a chunk for each of a set of trees that load the network evenly, and is
modulo-scheduled; more chunks only add periods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from probes.base import Floats, Indices, bytes_of, floats, ints
from synth.bounds import least_s_per_byte
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.portfolio.attempts import SMALLEST_CHUNK_BYTES
from synth.portfolio.plain import bounds_of
from synth.portfolio.request import Request
from synth.schedules import Bound, PeriodicSchedule, Schedule
from synth.scheduling import coloured, least_period_s, modulo_scheduled
from synth.tree_packing import Edges, TwoWayTree, balanced_trees, exchanged, hung, pair_links

__all__ = [
    "body_of",
    "fastest_periodic",
    "in_periods",
    "periodic_bounds",
    "timed_periodic",
    "unserved",
]

# Trees of a period: few make it short, many load the network more evenly.
_FEWEST_TREES, _MOST_TREES = 16, 128
_MOST_SENDS = 400_000
_COARSEST_PERIODS = 4
# Every send costs its ranks some time that no alpha holds.
_NOTICEABLE = 0.005
# With more chunks, bounds count the bytes only.
_MANY_CHUNKS = 1 << 20
_WHOLE = 1e-6
_AS_GOOD = 1.001
# More trees than the fewest that load the network evenly leave more ways to do so by low ones.
_MORE_TREES = (1, 2, 4, 8)
# Into so many periods a buffer is cut where trees are compared.
_FINE_PERIODS = 1024
# How much longer than its busiest link or port needs a period may be, where ports leave gaps.
_STRETCHED = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)


def unserved(request: Request) -> str:
    """Return why no periodic schedule is made for a request: other collectives, or nothing keeps to times.

    Or "".
    """
    network, asked = request.network, request.asked
    if len(asked) > 1 or asked[0].kind != "all_reduce" or asked[0].members or asked[0].sets:
        return "periodic schedules are made for an all_reduce on all ranks"
    if network.queues:
        return f"{network.name} queues, where sends keep to no times"
    return f"{network.name} has a single rank" if network.ranks < 2 else ""


def fastest_periodic(request: Request) -> PeriodicSchedule:
    """Return the fastest periodic schedule of an all_reduce on all ranks, neither judged nor with an outcome.

    Of a size, cuts are tried four times finer each until that gains hardly anything; of a number of chunks
    a period takes as many as divide it. Raises NotApplicableError where links do not lead both ways.
    """
    network = request.network
    edges, least = pair_links(network), least_s_per_byte(network, "all_reduce")
    fewest, most = _trees_of(request, edges, least)
    counts = [more * fewest for more in _MORE_TREES if more * fewest <= most]
    packed = [
        _trees(edges, count, least, request.seed, low=low)
        for count, low in product(counts, (False, True))
        if request.chunks is None or request.chunks % count == 0
    ]
    trees = min(packed, key=lambda one: _foretold_s(request, one))
    best: PeriodicSchedule | None = None
    for periods, chunk_bytes in _cuts(request, len(trees)):
        found = timed_periodic(body_of(network, trees, chunk_bytes, request.seed), periods)
        if best is not None and found.time_s >= best.time_s * (1 - _NOTICEABLE):
            break
        best = found
    assert best is not None
    return best


def _foretold_s(request: Request, trees: list[TwoWayTree]) -> float:
    """Return what a buffer takes over ``trees``, cut finely: its busiest link, and the way up and
    down the tallest.

    At each hop a send waits for its place, about a quarter of a period.
    """
    if request.size_bytes is None:
        assert request.chunks is not None and request.chunk_bytes is not None
        periods, chunk_bytes = request.chunks // len(trees), request.chunk_bytes
    else:
        chunk_bytes = max(SMALLEST_CHUNK_BYTES, request.size_bytes // (_FINE_PERIODS * len(trees)))
        periods = -(-request.size_bytes // (chunk_bytes * len(trees)))
    body = body_of(request.network, trees, chunk_bytes, request.seed)
    period_s = least_period_s(body)
    hop_s = float(np.median(request.network.travel_s(chunk_bytes)[body.link])) + period_s / 4
    return periods * period_s + 2 * max(int(tree.up_depth.max()) for tree in trees) * hop_s


def periodic_bounds(request: Request) -> tuple[Bound, ...]:
    """Return every proven lower bound on what is asked, in however many chunks."""
    if request.chunks is not None and request.chunks > _MANY_CHUNKS:
        assert request.chunk_bytes is not None
        size_bytes = request.chunk_bytes * request.chunks
        request = replace(request, size_bytes=size_bytes, chunk_bytes=None, chunks=None)
    return bounds_of(request)


def _trees_of(request: Request, edges: Edges, least_s_per_byte: float) -> tuple[int, int]:
    """Return how many trees a period has at least and at most.

    At least as few as load the network within a thousandth as evenly as any number; of a given number of
    chunks it is a part that divides it.
    """
    most = max(1, min(_MOST_TREES, _MOST_SENDS // (2 * (request.network.ranks - 1))))
    if request.chunks is not None:
        most = min(most, request.chunks)
        parts = [part for part in range(1, most + 1) if request.chunks % part == 0]
        tried = [part for part in parts if part >= _FEWEST_TREES] or parts[-1:]
    else:
        assert request.size_bytes is not None
        most = max(1, min(most, request.size_bytes // (_COARSEST_PERIODS * SMALLEST_CHUNK_BYTES)))
        tried = list(range(min(_FEWEST_TREES, most), most + 1))
    # Trees come in whole numbers: so many times each kind of edge's share is rounded up.
    uses = np.outer(tried, least_s_per_byte / np.unique(_edge_s_per_byte(edges)))
    worse = (np.ceil(uses - _WHOLE) / uses).max(axis=1)
    return tried[int(np.argmax(worse <= worse.min() * _AS_GOOD))], most


def _cuts(request: Request, trees: int) -> Iterator[tuple[int, int]]:
    """Yield (periods, bytes of a chunk), from coarse to fine."""
    if request.chunks is not None:
        assert request.chunk_bytes is not None
        yield request.chunks // trees, request.chunk_bytes
        return
    assert request.size_bytes is not None
    periods = _COARSEST_PERIODS
    while periods == _COARSEST_PERIODS or request.size_bytes >= periods * trees * SMALLEST_CHUNK_BYTES:
        yield periods, max(1, -(-request.size_bytes // (periods * trees)))
        periods *= 4


def _trees(edges: Edges, count: int, least_s_per_byte: float, seed: int, *, low: bool) -> list[TwoWayTree]:
    """Return ``count`` trees that load the network alike; exact balance is tried if no ports are shared."""
    found = balanced_trees(edges, count, seed=seed, low=low)
    if not len(edges.network.link_port):
        shares = count * least_s_per_byte / _edge_s_per_byte(edges)
        found = exchanged(edges, found, np.ceil(shares - _WHOLE).astype(np.int64))
    return [hung(edges, tree) for tree in found]


def _edge_s_per_byte(edges: Edges) -> Floats:
    """Return what an edge needs for a byte in the slower of its directions."""
    beta = edges.network.beta_s_per_byte
    return np.maximum(beta[edges.there], beta[edges.back])


def body_of(network: Network, trees: list[TwoWayTree], chunk_bytes: int, seed: int) -> Schedule:
    """Return one chunk over each tree, level by level."""
    columns: list[tuple[Indices, Indices, Indices, Indices]] = []
    for chunk, tree in enumerate(trees):
        for links, op, level in tree.ways():
            columns.append((np.full(len(links), chunk), links, np.full(len(links), op), level))
    chunk_of, link, ops, levels = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(levels, kind="stable")
    return Schedule(
        network,
        collective("all_reduce", network.ranks, len(trees)),
        chunk_bytes,
        "periodic",
        seed,
        ints(chunk_of[order]),
        ints(link[order]),
        bytes_of(ops[order]),
    )


def timed_periodic(body: Schedule, periods: int) -> PeriodicSchedule:
    """Return the sends of ``body`` in the shortest period in which they find places."""
    least_s = least_period_s(body)
    for stretched in _STRETCHED:
        placed = modulo_scheduled(body, least_s * stretched)
        if placed is None and stretched == _STRETCHED[0]:
            placed = coloured(body)
        if placed is None:
            continue
        return in_periods(body, periods, *placed)
    raise NotApplicableError(f"{body.network.name}: no period of up to {_STRETCHED[-1]:g} times the least")


def in_periods(body: Schedule, periods: int, start_s: Floats, period_s: float) -> PeriodicSchedule:
    """Return ``body`` repeated for ``periods`` periods of ``period_s``, each send at its ``start_s``."""
    order = np.argsort(start_s, kind="stable")
    return PeriodicSchedule(
        body.network,
        body.collective,
        body.chunk_bytes,
        body.method,
        body.seed,
        periods,
        period_s,
        ints(body.chunk[order]),
        ints(body.link[order]),
        bytes_of(body.op[order]),
        floats(start_s[order]),
    )
