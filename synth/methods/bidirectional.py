"""The bidirectional ring: every chunk goes both ways round, half of the ring each way.

This takes half the steps of a ring, and half the bandwidth time if links are full duplex.
"""

from __future__ import annotations

import numpy as np

from probes.base import Indices, Ints, Mask
from synth.collective import Collective
from synth.methods.ring import best_cycle, owner_places, require_served
from synth.network import Network, fastest_links
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends, link_of

__all__ = ["synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_gather, reduce_scatter, all_reduce, broadcast or reduce round the cheapest cycle.

    Raises NotApplicableError for other collectives, and if the cycle lacks a link in either direction.
    O(ranks · chunks) sends.
    """
    require_served("bidirectional", collective)
    links = fastest_links(network, chunk_bytes)
    order = best_cycle(network, chunk_bytes)
    ranks = network.ranks
    forward = [link_of(links, order[at], order[(at + 1) % ranks], "bidirectional") for at in range(ranks)]
    backward = [link_of(links, order[at], order[at - 1], "bidirectional") for at in range(ranks)]
    hops = np.array([forward, backward])
    chunk = np.arange(collective.chunks)
    owner, lap = owner_places(collective, order)
    sends = Sends()
    if collective.reduces:
        _inwards(sends, chunk, owner, hops, lap)
    if collective.kind not in ("reduce_scatter", "reduce"):
        _outwards(sends, chunk, owner, hops, lap)
    return sends.schedule(network, collective, chunk_bytes, "bidirectional", seed)


def _reach(ranks: int, lap: Indices, way: int) -> Indices:
    """Return the number of hops that the chunks of each lap go in this direction.

    An odd hop goes in alternate directions from lap to lap, so that both carry equal loads.
    """
    return (ranks - 1 + (lap + way) % 2) // 2


def _outwards(sends: Sends, chunk: Indices, owner: Indices, hops: Ints, lap: Indices) -> None:
    ranks = hops.shape[1]
    turn = (2 * lap + 1) * ranks
    step = np.arange(ranks // 2)
    for way, sign in ((0, 1), (1, -1)):
        used = step < _reach(ranks, lap + 1, way)[:, None]
        link = hops[way][(owner[:, None] + sign * step) % ranks]
        _add(sends, used, chunk, link, COPY, turn[:, None] + step)


def _inwards(sends: Sends, chunk: Indices, owner: Indices, hops: Ints, lap: Indices) -> None:
    ranks = hops.shape[1]
    turn = 2 * lap * ranks
    step = np.arange(ranks // 2)
    for way, sign in ((0, 1), (1, -1)):
        reach = _reach(ranks, lap, way)[:, None]
        link = hops[way][(owner[:, None] - sign * (reach - step)) % ranks]
        _add(sends, step < reach, chunk, link, REDUCE, turn[:, None] + step)


def _add(sends: Sends, used: Mask, chunk: Indices, link: Indices, op: int, turn: Indices) -> None:
    chunks = np.broadcast_to(chunk[:, None], used.shape)
    sends.add(chunks[used], link[used], op, np.broadcast_to(turn, used.shape)[used])
