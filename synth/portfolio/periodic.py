"""Synthesis of periodic all_reduces: many chunks fill the pipeline, but only one period is planned.

A plain schedule lists every send, so memory limits its number of chunks, and on a thousand ranks its pipeline
hardly fills. Here each chunk of a period follows one tree of a set that loads the network evenly. The period
is modulo-scheduled; more chunks only add periods.
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

# Trees of a period: few keep the period short, many load the network more evenly.
_FEWEST_TREES, _MOST_TREES = 16, 128
_MOST_SENDS = 400_000
# The number of periods of the coarsest cut.
_COARSEST_PERIODS = 4
# A finer cut must shorten the time by this fraction, because each send costs its ranks some time that alpha
# does not include.
_NOTICEABLE = 0.005
# With more chunks than this, bounds count bytes only.
_MANY_CHUNKS = 1 << 20
# Shares of trees that are this little above a whole number count as whole, because of rounding.
_WHOLE = 1e-6
# Numbers of trees whose balance is within this factor of the best count as equally good.
_AS_GOOD = 1.001
# Numbers of trees to try, as multiples of the fewest. With more trees, shallow trees balance loads better.
_MORE_TREES = (1, 2, 4, 8)
# Sets of trees are compared with the buffer cut into this many periods.
_FINE_PERIODS = 1024
# Periods that are tried, as factors of the busy time of the busiest link or port.
_STRETCHED = (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)


def unserved(request: Request) -> str:
    """Return the reason why a request can have no periodic schedule; "" if it can."""
    network, asked = request.network, request.asked
    if len(asked) > 1 or asked[0].kind != "all_reduce" or asked[0].members or asked[0].sets:
        return "periodic schedules are made for an all_reduce on all ranks"
    if network.queues:
        return f"{network.name} queues, where sends keep to no times"
    return f"{network.name} has a single rank" if network.ranks < 2 else ""


def fastest_periodic(request: Request) -> PeriodicSchedule:
    """Return the fastest periodic schedule of an all_reduce on all ranks, not yet checked or bounded.

    If the request gives a size, chunks are made four times smaller, again and again, until the gain is
    negligible. If it gives a number of chunks, that number is a multiple of the chunks in a period. Raises
    NotApplicableError if links are one-way.
    """
    network = request.network
    edges, least = pair_links(network), least_s_per_byte(network, "all_reduce")
    fewest, most = _tree_counts(request, edges, least)
    counts = [more * fewest for more in _MORE_TREES if more * fewest <= most]
    packed = [
        _trees(edges, count, least, request.seed, low=low)
        for count, low in product(counts, (False, True))
        if request.chunks is None or request.chunks % count == 0
    ]
    trees = min(packed, key=lambda one: _estimated_s(request, one))
    best: PeriodicSchedule | None = None
    for periods, chunk_bytes in _cuts(request, len(trees)):
        found = timed_periodic(body_of(network, trees, chunk_bytes, request.seed), periods)
        if best is not None and found.time_s >= best.time_s * (1 - _NOTICEABLE):
            break
        best = found
    assert best is not None
    return best


def _estimated_s(request: Request, trees: list[TwoWayTree]) -> float:
    """Estimate the time of a finely cut buffer: all periods, and the tallest tree up and down.

    At each hop a send waits about a quarter of a period for its slot.
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
    """Return every proven lower bound for the request; with very many chunks, by bytes only."""
    if request.chunks is not None and request.chunks > _MANY_CHUNKS:
        assert request.chunk_bytes is not None
        size_bytes = request.chunk_bytes * request.chunks
        request = replace(request, size_bytes=size_bytes, chunk_bytes=None, chunks=None)
    return bounds_of(request)


def _tree_counts(request: Request, edges: Edges, least_s_per_byte: float) -> tuple[int, int]:
    """Return the fewest and the most trees of a period.

    The fewest is the smallest number tried whose balance is within a thousandth of the best. If the request
    gives a number of chunks, only divisors of it are tried.
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
    # An edge belongs to a whole number of trees, so its share of the trees is rounded up.
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
    """Return ``count`` trees that load the network evenly; exact balance is tried if links share no ports."""
    found = balanced_trees(edges, count, seed=seed, low=low)
    if not len(edges.network.link_port):
        shares = count * least_s_per_byte / _edge_s_per_byte(edges)
        found = exchanged(edges, found, np.ceil(shares - _WHOLE).astype(np.int64))
    return [hung(edges, tree) for tree in found]


def _edge_s_per_byte(edges: Edges) -> Floats:
    """Return the seconds per byte of each edge, in the slower of its directions."""
    beta = edges.network.beta_s_per_byte
    return np.maximum(beta[edges.there], beta[edges.back])


def body_of(network: Network, trees: list[TwoWayTree], chunk_bytes: int, seed: int) -> Schedule:
    """Return the sends of one period: one chunk along each tree, level by level."""
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
    """Return ``body`` in the first period tried that modulo scheduling or edge colouring can fill.

    Raises NotApplicableError if none of the periods tried is long enough.
    """
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
