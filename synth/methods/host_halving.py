"""All_reduce in few large messages: sums within each host, then halving and doubling across hosts.

A lap is one chunk for each rank, numbered by (place in the host, host). Each rank first sends every other
rank of its host the chunks of that rank's place, one for each host; these are contiguous. Ranks of the same
place then halve across hosts, as in Rabenseifner's algorithm, and double again, and each rank sends its
place's chunks to its host. A message of many contiguous chunks takes one instruction if the compiler merges
it. So the method takes 2 (size − 1 + ⌈log₂ hosts⌉) messages per rank and lap, far fewer than any method that
sends chunks one by one. Several laps overlap, so that links in hosts and between hosts work at the same time.

Halving across hosts uses distances 2^s round the ring of hosts (Bruck), or XOR if the number of hosts is a
power of two: then the chunks of a message are one or two contiguous ranges.
"""

from __future__ import annotations

import numpy as np

from probes.base import Indices, Ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods.doubling import add_tree, partners
from synth.network import Network
from synth.networks import hosts_of, link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends

__all__ = ["synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_reduce over hosts of equal size.

    Raises NotApplicableError for other collectives, on a subset of ranks, if the chunks are no multiple of
    the ranks, if hosts differ, and if a link is missing. O(ranks · chunks) sends.
    """
    if collective.kind != "all_reduce" or not collective.whole or collective.chunks % network.ranks:
        raise NotApplicableError(
            f"host_halving serves an all_reduce of all ranks in a multiple of {network.ranks} chunks"
        )
    members = hosts_of(network, "host_halving")
    table = link_table(network, chunk_bytes)
    hosts = len(members)
    chunk = np.arange(collective.chunks)
    lap, (place, host) = chunk // network.ranks, np.divmod(chunk % network.ranks, hosts)
    steps = (hosts - 1).bit_length()
    sends = Sends()
    partner_host = next(partners(hosts))

    def partner(owner: Indices, at: Indices) -> Indices:
        return members[partner_host(owner, at), place[:, None]]

    # Turns: sums in hosts, halving, doubling, results in hosts. Each lap begins one turn after the one
    # before.
    for op, first in ((REDUCE, 0), (COPY, 2 * steps + 1)):
        _add_within(sends, table, members, chunk, place, op, lap + first)
    for op, first in ((REDUCE, 1), (COPY, steps + 1)):
        add_tree(sends, table, host, partner, hosts, op, lap + first, "host_halving")
    return sends.schedule(network, collective, chunk_bytes, "host_halving", seed)


def _add_within(
    sends: Sends, table: Ints, members: Ints, chunk: Indices, place: Indices, op: int, turn: Indices
) -> None:
    """Add the sends of each chunk from the other ranks of each host to the rank of its place, or back."""
    hosts, size = members.shape
    # Every rank serves the other places in rising order from its own: ports are used evenly, and the sums of
    # all chunks between two ranks come in the same order, which merging needs.
    away = np.arange(1, size)
    other = members[np.arange(hosts)[:, None], (place[:, None, None] + away) % size]
    own = np.broadcast_to(members[np.arange(hosts)[:, None], place[:, None, None]], other.shape)
    src, dst = (other, own) if op == REDUCE else (own, other)
    link = links_between(table, src, dst, "host_halving")
    late = turn[:, None, None] + away / size
    sends.add(chunk[:, None, None], link, op, turn[:, None, None], late)
