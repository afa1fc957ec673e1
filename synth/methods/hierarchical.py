"""Hierarchical: rings within hosts, and rings across hosts between ranks of the same place in their hosts.

To reduce a chunk, every host reduces the chunk round its ring to the rank of one place, then the ranks of
this place reduce it across hosts (GC3 Sec. 6.3; DS-Sync Table II). To spread a chunk, the order is reversed:
across hosts, then round each host. So a chunk passes from one host to the next only once in each phase, and
chunks of different places use different NICs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices
from synth.collective import Collective
from synth.methods.ring import cycle, require_served
from synth.network import Network, fastest_links
from synth.networks import host_places, hosts_of, link_table, links_between, restricted
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends

__all__ = ["synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return all_gather, reduce_scatter, all_reduce, broadcast or reduce over hosts of equal size.

    Raises NotApplicableError if hosts differ, have no ring, or lack a link to the next host, and for other
    collectives. O(ranks · chunks) sends.
    """
    require_served("hierarchical", collective)
    rings = _rings(network, chunk_bytes)
    chunk = np.arange(collective.chunks)
    owner, lap = collective.owner_of()
    hosts, size = rings.inside.shape
    period = hosts + size
    sends = Sends()
    if collective.reduces:
        rings.inwards(sends, chunk, owner, 2 * lap * period)
    if collective.kind not in ("reduce_scatter", "reduce"):
        rings.outwards(sends, chunk, owner, (2 * lap + 1) * period)
    return sends.schedule(network, collective, chunk_bytes, "hierarchical", seed)


@dataclass(frozen=True, eq=False)
class _Rings:
    """Links of the rings, and the place of every rank.

    ``inside[h, p]`` leads from place p of host h to its next place, ``across[h, p]`` to the same place of the
    next host. ``host`` and ``place`` are by rank.
    """

    inside: Indices
    across: Indices
    host: Indices
    place: Indices

    def outwards(self, sends: Sends, chunk: Indices, owner: Indices, turn: Indices) -> None:
        hosts, size = self.inside.shape
        host, place = self.host[owner], self.place[owner]
        step = np.arange(hosts - 1)
        across = self.across[(host[:, None] + step) % hosts, place[:, None]]
        sends.add(chunk[:, None], across, COPY, turn[:, None] + step)
        at, along = np.arange(hosts)[:, None], np.arange(size - 1)
        inside = self.inside[at, (place[:, None, None] + along) % size]
        after = (at - host[:, None, None]) % hosts + along
        sends.add(chunk[:, None, None], inside, COPY, turn[:, None, None] + after)

    def inwards(self, sends: Sends, chunk: Indices, owner: Indices, turn: Indices) -> None:
        hosts, size = self.inside.shape
        host, place = self.host[owner], self.place[owner]
        at, along = np.arange(hosts)[:, None], np.arange(size - 1)
        inside = self.inside[at, (place[:, None, None] + 1 + along) % size]
        sends.add(chunk[:, None, None], inside, REDUCE, turn[:, None, None] + along)
        step = np.arange(hosts - 1)
        across = self.across[(host[:, None] + 1 + step) % hosts, place[:, None]]
        sends.add(chunk[:, None], across, REDUCE, turn[:, None] + size - 1 + step)


def _rings(network: Network, chunk_bytes: int) -> _Rings:
    members = hosts_of(network, "hierarchical")
    order = np.empty_like(members)
    for at, ranks in enumerate(members):
        inner, _ = restricted(network, ranks)
        found = cycle(inner, inner.travel_s(chunk_bytes), fastest_links(inner, chunk_bytes))
        # Every ring starts at its host's first rank, so that equal places of two hosts correspond.
        first = found.index(0)
        order[at] = ranks[found[first:] + found[:first]]
    table = link_table(network, chunk_bytes)
    inside = links_between(table, order, np.roll(order, -1, axis=1), "hierarchical")
    across = links_between(table, order, np.roll(order, -1, axis=0), "hierarchical")
    return _Rings(inside, across, *host_places(order))
