"""Two-step all_to_all: within the host to the rank of the target's place, then across hosts (GC3 Sec. 2).

Messages between hosts are as many ranks larger, and each NIC only talks to its like.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from probes.columns import Indices
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks.subnetwork import hosts_of, link_table, links_between
from synth.schedule import COPY, Schedule
from synth.scheduling.list_scheduling import Sends

__all__ = ["relayed", "synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """all_to_all over hosts of equal size; raises NotApplicableError for others, or for a missing link."""
    if collective.kind != "all_to_all":
        raise NotApplicableError(f"two_step does not serve {collective.kind}")
    members = hosts_of(network, "two_step")
    host, place = np.empty(network.ranks, np.int64), np.empty(network.ranks, np.int64)
    host[members] = np.arange(len(members))[:, None]
    place[members] = np.arange(members.shape[1])
    source, target = collective.source_of(), collective.target_of()
    relay = members[host[source], place[target]]
    return relayed(network, collective, chunk_bytes, [source, relay, target], "two_step", seed)


def relayed(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    stops: list[Indices],
    method: str,
    seed: int,
) -> Schedule:
    """Every chunk through its ``stops`` (one rank a chunk each) in turn; equal ones are one stop.

    In each step a rank begins with the rank after it. Raises NotApplicableError where a link is missing.
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
