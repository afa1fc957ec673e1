"""Schedules along routes: each route of a linear program's solution carries its share of the chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.base import Indices
from synth.bounds import Route
from synth.collective import Collective
from synth.network import Network
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import Sends

__all__ = ["along_routes"]

# Chunks nearer their source go first where others are equally urgent.
_LEVEL = 1e-9


def along_routes(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    routes: Sequence[Route],
    *,
    parts: int = 1,
    lead: float = 0.0,
    seed: int = 0,
) -> Schedule:
    """Return a schedule of ``collective`` with each chunk cut into ``parts``, along ``routes``.

    ``chunk_bytes`` is the size before the cut. ``lead`` is the share of a block by which sums go ahead
    of the copies of earlier sums. O(sends · log sends).
    """
    blocks: dict[int, list[Route]] = {}
    for route in routes:
        blocks.setdefault(int(route.chunks[0]), []).append(route)
    sends = Sends()
    for own in blocks.values():
        chunks = (own[0].chunks[:, None] * parts + np.arange(parts)).ravel()
        for route, place in zip(own, _places(own, len(chunks)), strict=True):
            # A block is as urgent as its share that is already under way.
            begun = (place / len(chunks))[:, None]
            into, out = (np.array(links, dtype=np.int64) for links in (route.into, route.out))
            rising = _levels(into, network.dst, network.src)
            height = int(rising.max(initial=-1)) + 1
            rising = height - 1 - rising
            falling = height + _levels(out, network.src, network.dst)
            ahead = lead if height else 0.0
            sends.add(chunks[place][:, None], into, REDUCE, rising, begun + rising * _LEVEL)
            sends.add(chunks[place][:, None], out, COPY, falling, begun + falling * _LEVEL + ahead)
    return sends.schedule(network, collective.cut(parts), -(-chunk_bytes // parts), "routes", seed)


def _places(routes: Sequence[Route], chunks: int) -> list[Indices]:
    """Return the places of each route's chunks in a block: earlier routes first, equal ones evenly mixed."""
    exact = np.array([route.share for route in routes])
    exact *= chunks / exact.sum()
    count = np.floor(exact).astype(np.int64)
    count[np.argsort(count - exact, kind="stable")[: chunks - count.sum()]] += 1
    route = np.repeat(np.arange(len(routes)), count)
    share = np.concatenate([(np.arange(one) + 0.5) / max(1, one) for one in count.tolist()])
    start_s = np.array([one.start_s for one in routes])
    order = np.lexsort((share, start_s[route]))
    return [np.flatnonzero(route[order] == at) for at in range(len(routes))]


def _levels(links: Indices, nearer: Indices, farther: Indices) -> Indices:
    """Return the distance of each link from the root; ``nearer`` and ``farther`` are the ends of links."""
    depth: dict[int, int] = {}
    found = []
    for link in links.tolist():
        level = depth.get(int(nearer[link]), 0)
        depth[int(farther[link])] = level + 1
        found.append(level)
    return np.array(found, dtype=np.int64)
