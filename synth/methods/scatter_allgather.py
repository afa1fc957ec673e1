"""Scatter and all_gather: a broadcast in which the other ranks spread the chunks (van de Geijn's algorithm).

The root sends each chunk to one other rank, its relay. The relay sends it to all ranks but the root (Barnett,
Payne and van de Geijn 1991, the collect after a scatter). Relays take turns, each as often as the rate of its
links allows. The ranks do not wait for the end of the scatter: small chunks are spread while the root sends
the next ones. So behind a switch, every chunk takes two links, the root sends its buffer once, and all other
ranks send about as much. A reduce is a broadcast backwards in time.
"""

from __future__ import annotations

import numpy as np

from probes.base import Indices
from synth.collective import Collective, collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, Schedule
from synth.scheduling import Sends, in_start_order, reversed_in_time

__all__ = ["pays", "suits", "synthesize"]

_NAME = "scatter_allgather"


def synthesize(network: Network, asked: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return the schedule of a broadcast or a reduce of all ranks.

    Raises NotApplicableError for other collectives, for fewer than three ranks, and if a link between two
    ranks is missing. O(ranks · chunks) sends.
    """
    if asked.kind not in ("broadcast", "reduce") or not asked.whole or network.ranks < 3:
        raise NotApplicableError(f"{_NAME} does not serve {asked.label} of {network.ranks} ranks")
    if asked.kind == "reduce":
        turned = collective("broadcast", network.ranks, asked.chunks, root=asked.root)
        mirrored = _broadcast(network.transposed(), turned, chunk_bytes, seed)
        return in_start_order(reversed_in_time(mirrored, network, asked))
    return _broadcast(network, asked, chunk_bytes, seed)


def suits(network: Network, asked: Collective) -> bool:
    """Return whether this is a broadcast or reduce of all ranks, linked to each other through ports."""
    pairs = network.ranks * (network.ranks - 1)
    rooted = asked.kind in ("broadcast", "reduce") and asked.whole
    return rooted and network.ranks > 2 and len(network.link_port) > 0 and network.links >= pairs


def pays(network: Network, asked: Collective, chunk_bytes: int) -> bool:
    """Return whether every rank but the root relays at least one chunk."""
    return asked.chunks >= network.ranks - 1


def _broadcast(network: Network, asked: Collective, chunk_bytes: int, seed: int) -> Schedule:
    table = link_table(network, chunk_bytes)
    others = np.delete(np.arange(network.ranks), asked.root)
    chunk = np.arange(asked.chunks)
    relay = _in_turns(network, others, asked.chunks)
    sends = Sends()
    first = links_between(table, np.full(asked.chunks, asked.root), others[relay], _NAME)
    sends.add(chunk, first, COPY, 0, chunk - asked.chunks - network.ranks)
    for step in range(1, len(others)):
        target = others[(relay + step) % len(others)]
        sends.add(chunk, links_between(table, others[relay], target, _NAME), COPY, 1, chunk + step)
    return sends.schedule(network, asked, chunk_bytes, _NAME, seed)


def _in_turns(network: Network, others: Indices, chunks: int) -> Indices:
    """Return the place in ``others`` of each chunk's relay: ranks with faster links have more turns."""
    count = np.bincount(network.src, minlength=network.ranks)
    slowness = np.bincount(network.src, network.beta_s_per_byte, network.ranks) / count
    turns = np.arange(1, chunks + 1)[:, None] * slowness[others]
    place = np.broadcast_to(np.arange(len(others)), turns.shape)
    return np.asarray(place.ravel()[np.argsort(turns.ravel(), kind="stable")[:chunks]])
