"""All_to_all in two or three steps: data that crosses between hosts is first gathered in its host.

Two-step: a chunk first goes to the rank of its own host that has the same place (position in its host) as the
target. Then it crosses to the target (GC3 Sec. 2). Messages between hosts are larger by a factor of the ranks
per host, and each NIC talks only to NICs of the same place.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from probes.base import Indices
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import host_places, hosts_of, link_table, links_between
from synth.schedules import COPY, Schedule
from synth.scheduling import Sends

__all__ = ["synthesize", "three_step"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return a two-step all_to_all over hosts of equal size.

    Raises NotApplicableError for other collectives, if hosts differ, and if a link is missing.
    """
    if collective.kind != "all_to_all":
        raise NotApplicableError(f"two_step does not serve {collective.kind}")
    members = hosts_of(network, "two_step")
    host, place = host_places(members)
    source, target = collective.source_of(), collective.target_of()
    relay = members[host[source], place[target]]
    return _relayed(network, collective, chunk_bytes, [source, relay, target], "two_step", seed)


def three_step(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_to_all in three steps: to a rank for the target's host, across, to the target.

    As in GC3 Sec. 6.2, all data of one host for another crosses together, in few and large messages. A host
    assigns size // hosts of its ``size`` ranks (at least one) to each other host, so that all NICs work.
    Raises the same errors as `synthesize`.
    """
    if collective.kind != "all_to_all":
        raise NotApplicableError(f"three_step does not serve {collective.kind}")
    members = hosts_of(network, "three_step")
    hosts, size = members.shape
    host, place = host_places(members)
    source, target = collective.source_of(), collective.target_of()
    speakers = max(1, size // hosts)
    apart = (host[target] - host[source]) % hosts
    speaker = (apart * speakers + place[source] % speakers) % size
    stays = apart == 0
    leaves = np.where(stays, source, members[host[source], speaker])
    enters = np.where(stays, source, members[host[target], speaker])
    return _relayed(network, collective, chunk_bytes, [source, leaves, enters, target], "three_step", seed)


def _relayed(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    stops: list[Indices],
    method: str,
    seed: int,
) -> Schedule:
    """Return the schedule that moves chunks along ``stops`` (arrays of ranks), without sends to oneself.

    In each step, chunks go in the order of (final target − source) modulo the number of ranks. Raises
    NotApplicableError if a link is missing.
    """
    table = link_table(network, chunk_bytes)
    chunk = np.arange(collective.chunks)
    sends = Sends()
    for step, (src, dst) in enumerate(pairwise(stops)):
        moves = np.flatnonzero(src != dst)
        link = links_between(table, src[moves], dst[moves], method)
        distance = (stops[-1] - stops[0])[moves] % network.ranks
        sends.add(chunk[moves], link, COPY, step * network.ranks + distance)
    return sends.schedule(network, collective, chunk_bytes, method, seed)
