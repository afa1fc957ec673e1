"""Three-step all_to_all: within the host to the rank that speaks to the target's host, across, within.

All that a host has for another crosses together, through few and large messages (GC3 Sec. 6.2).
"""

from __future__ import annotations

import numpy as np

from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods.two_step import relayed
from synth.network import Network
from synth.networks.subnetwork import hosts_of
from synth.schedule import Schedule

__all__ = ["synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """all_to_all over hosts of equal size; raises NotApplicableError for others or where a link is missing.

    Each host has size // hosts ranks that speak to another one (at least one), so that all NICs work.
    """
    if collective.kind != "all_to_all":
        raise NotApplicableError(f"three_step does not serve {collective.kind}")
    members = hosts_of(network, "three_step")
    hosts, size = members.shape
    host, place = np.empty(network.ranks, np.int64), np.empty(network.ranks, np.int64)
    host[members] = np.arange(hosts)[:, None]
    place[members] = np.arange(size)
    source, target = collective.source_of(), collective.target_of()
    speakers = max(1, size // hosts)
    apart = (host[target] - host[source]) % hosts
    speaker = (apart * speakers + place[source] % speakers) % size
    stays = apart == 0
    leaves = np.where(stays, source, members[host[source], speaker])
    enters = np.where(stays, source, members[host[target], speaker])
    stops = [source, leaves, enters, target]
    return relayed(network, collective, chunk_bytes, stops, "three_step", seed)
