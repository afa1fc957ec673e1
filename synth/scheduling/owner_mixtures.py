"""Mixtures by owner: each chunk takes the plan that some schedule has for a chunk of the same owner.

`synth.scheduling.mixtures` serves collectives whose chunks all have the same sources and targets. Here the
chunks of an owner do: those that one rank sends or receives, or in an all_to_all those of a pair of ranks.
Each chunk is packed several times, at the prices of all others, and then may take another tree. A chunk of an
all_to_all may take any path that has no more latency than the longest of the shortest paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from probes.base import Floats, Indices, floats, ints
from synth.collective import Collective
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import COPY, Schedule
from synth.scheduling.chunk_plans import ChunkPlan, plans_of
from synth.scheduling.mixtures import faster_step
from synth.scheduling.packing import ChunkPacking

__all__ = ["mixed_by_owner"]

# Chunks are packed within _WORTH of the best time, then each time within _SHORTER, until _IN_VAIN steps gain
# nothing, or one takes _HOPELESS times the best time.
_WORTH, _SHORTER, _IN_VAIN, _HOPELESS = 0.98, 0.95, 2, 1.4
# Each pair of ranks has at most this many paths. None are taken if a search visits more than _MOST_SEEN.
_MOST_PATHS, _MOST_SEEN = 8, 200_000
# Sums of floats round by less than this share.
_ROUNDED = 1e-9


def mixed_by_owner(
    schedules: Sequence[Schedule], shape: Collective, chunk_bytes: int, best_s: float, seed: int = 0
) -> Iterator[Schedule]:
    """Yield mixtures of the plans of ``schedules`` for the collective ``shape``.

    Each is packed within less time than the one before. The schedules are of the same kind, on the same
    ranks, without exchanges. ``best_s`` is the best time so far. O(chunks · sends of an owner's plans) for
    each of about four steps.
    """
    network = schedules[0].network
    owners, plans = _plans_by_owner(schedules, shape, chunk_bytes, best_s)
    if not plans:
        return
    packing = ChunkPacking(network, plans, np.arange(network.links)[None], owners)
    # Chunks of an owner that needs no sends have none.
    moving = np.flatnonzero(np.isin(np.arange(shape.chunks) // shape.share, _moving(schedules[0])))
    chunk = np.random.default_rng(seed).permutation(moving)
    within_s, vain, least_s = _WORTH * best_s, 0, np.inf
    while vain < _IN_VAIN:
        packed = packing.packed_by_owner(chunk // shape.share, chunk_bytes, within_s)
        if packed is None:
            return
        step = faster_step(packing, packed, shape, chunk_bytes, within_s, seed, chunk)
        if step.time_s > _HOPELESS * best_s:
            return
        vain, least_s = (0, step.time_s) if step.time_s < least_s else (vain + 1, least_s)
        within_s *= _SHORTER
        yield step.made


def _moving(schedule: Schedule) -> Indices:
    """Return the owners whose chunks are sent."""
    return np.unique(schedule.chunk // schedule.collective.share)


def _plans_by_owner(
    schedules: Sequence[Schedule], shape: Collective, chunk_bytes: int, within_s: float
) -> tuple[Indices, list[ChunkPlan]]:
    """Return (owner of each plan, distinct plans that take less than ``within_s`` without queueing)."""
    found: dict[tuple[int, bytes, bytes], ChunkPlan] = {}
    if shape.kind == "all_to_all":
        for owner, plan in _paths(schedules[0].network, chunk_bytes):
            found[owner, plan.link.tobytes(), b""] = plan
    for schedule in () if found else schedules:
        numbers = np.unique(schedule.chunk) // schedule.collective.share
        for owner, plan in zip(numbers.tolist(), plans_of(schedule, chunk_bytes), strict=True):
            found[owner, plan.link.tobytes(), plan.op.tobytes()] = plan
    kept = sorted(
        ((owner, plan) for (owner, _, _), plan in found.items() if plan.length_s < within_s),
        key=lambda pair: pair[0],
    )
    return np.array([owner for owner, _ in kept], np.int64), [plan for _, plan in kept]


def _paths(network: Network, chunk_bytes: int) -> Iterator[tuple[int, ChunkPlan]]:
    """Yield (source · ranks + target, plan) for the fastest short paths of each pair of ranks."""
    travel_s, alpha_s = network.travel_s(chunk_bytes), network.alpha_s
    longest_s = float(distances_s(network, alpha_s, np.arange(network.ranks)).max()) * (1 + _ROUNDED)
    start, links = network.out_links
    ways = [
        [(link, int(network.dst[link]), float(alpha_s[link])) for link in links[first:past].tolist()]
        for first, past in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
    ]
    seen, found = 0, dict[int, list[tuple[float, list[int]]]]()
    for source in range(network.ranks):
        left: list[tuple[float, int, list[int], set[int]]] = [(0.0, source, [], {source})]
        while left:
            seen += 1
            if seen > _MOST_SEEN:
                return
            past_s, rank, path, met = left.pop()
            if path:
                found.setdefault(source * network.ranks + rank, []).append((past_s, path))
            left += [
                (past_s + more_s, target, [*path, link], met | {target})
                for link, target, more_s in ways[rank]
                if target not in met and past_s + more_s <= longest_s
            ]
    for owner, paths in found.items():
        for _, path in sorted(paths)[:_MOST_PATHS]:
            yield owner, _path_plan(ints(path).astype(np.int64), travel_s)


def _path_plan(link: Indices, travel_s: Floats) -> ChunkPlan:
    end_s = np.cumsum(travel_s[link])
    ops, none = np.full(len(link), COPY, np.uint8), np.zeros(len(link) + 1, np.int64)
    return ChunkPlan(link, ops, none, np.zeros(0, np.int64), floats(end_s - travel_s[link]), float(end_s[-1]))
