"""Recovery of a schedule from the moves of a time-expanded network, completed by shortest paths.

A chunk that the moves do not bring to a rank takes a shortest path from the nearest rank that holds it (TACOS
Sec. V-B, early termination and recovery).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from probes.base import Indices, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.networks import shortest_paths
from synth.schedules import COPY, Schedule
from synth.scheduling import Sends
from synth.tacos_ilp.time_expanded_milp import LinkMove
from synth.tacos_ilp.time_expanded_network import Bundles

__all__ = ["completed"]


def completed(
    bundles: Bundles,
    collective: Collective,
    chunk_bytes: int,
    moves: Sequence[LinkMove],
    method: str,
    seed: int,
) -> Schedule:
    """Return the schedule of ``moves``, which must be in causal order, completed by shortest paths.

    Raises NotApplicableError if a rank cannot be reached. O(missing · ranks + ranks²·log ranks).
    """
    network = bundles.network
    links = _links(bundles, moves)
    chunks = np.array([move.chunk for move in moves], dtype=np.int64)
    held = collective.held()
    held[network.dst[links], chunks] = True
    if not (collective.wanted() & ~held).any():
        ops = bytes_of(np.full(len(links), COPY))
        return Schedule(network, collective, chunk_bytes, method, seed, ints(chunks), ints(links), ops)
    sends = Sends()
    sends.add(chunks, links, COPY, np.arange(len(links)))
    for chunk, link, depth in _paths(bundles, collective, chunk_bytes, held):
        sends.add(chunk, link, COPY, len(links) + depth)
    return sends.schedule(network, collective, chunk_bytes, method, seed)


def _links(bundles: Bundles, moves: Sequence[LinkMove]) -> Indices:
    """Return for each move the link of its bundle whose last start is longest ago."""
    last = [dict.fromkeys(rows.tolist(), -1) for rows in bundles.links]
    chosen = []
    for move in moves:
        starts = last[move.bundle]
        link = min(starts, key=starts.__getitem__)
        starts[link] = move.tick
        chosen.append(link)
    return np.array(chosen, dtype=np.int64)


def _paths(
    bundles: Bundles, collective: Collective, chunk_bytes: int, held: np.ndarray
) -> Iterator[tuple[int, int, int]]:
    """Yield (chunk, link, hops before it) that bring every chunk to every rank that lacks it."""
    network = bundles.network
    paths = shortest_paths(network.ranks, network.src, network.dst, network.travel_s(chunk_bytes))
    distance_s = paths.cost
    wanted = collective.wanted()
    for chunk in np.flatnonzero((wanted & ~held).any(axis=0)).tolist():
        holding = held[:, chunk].copy()
        depth = np.zeros(network.ranks, dtype=np.int64)
        lacking = np.flatnonzero(wanted[:, chunk] & ~holding)
        nearest_s = distance_s[holding][:, lacking].min(axis=0)
        if np.isinf(nearest_s).any():
            rank = int(lacking[np.isinf(nearest_s)][0])
            raise NotApplicableError(f"{network.name}: rank {rank} cannot be reached by chunk {chunk}")
        for rank in lacking[np.argsort(nearest_s, kind="stable")].tolist():
            if holding[rank]:
                continue
            source = int(np.where(holding, distance_s[:, rank], np.inf).argmin())
            for link in paths.edges(source, rank):
                tail, head = int(network.src[link]), int(network.dst[link])
                if holding[head]:
                    continue
                yield chunk, link, int(depth[tail])
                depth[head] = depth[tail] + 1
                holding[head] = True
