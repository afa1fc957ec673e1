"""Stars: the owner of a chunk sends it to all ranks of its host, and over one link to each other host.

The rank that receives the chunk on another host sends it to all other ranks of its host. So on a dragonfly
(Kim, Dally, Scott, Abts) every chunk crosses to each group once, along a tree of three levels, and all links
are loaded as evenly as the network allows. Owners send their first chunks, then their second ones, and so on.
A chunk crosses to another host as soon as it is at the source of the link that leads there. Nothing is
searched: O(sends · log sends).
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.list_scheduling import in_start_order
from synth.scheduling.time_reversal import backwards

__all__ = ["suits", "synthesize"]

# On fewer ranks the search takes no longer and finds equally good schedules.
_FEWEST_RANKS = 32


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_gather, a reduce_scatter (its reverse in time) or an all_reduce (both in turn).

    Raises NotApplicableError for other collectives, on one host, and unless links join all ranks of each host
    and any two hosts.
    """
    kinds = ("all_gather", "reduce_scatter", "all_reduce")
    if collective.kind not in kinds or not collective.whole:
        raise NotApplicableError(f"stars does not serve {collective.label}")
    owner, lap = collective.owner_of()
    parts: list[tuple[Indices, Indices, int]] = []
    if collective.reduces:
        chunk, link, start_s = _spread(network.transposed(), owner, lap, chunk_bytes)
        order = backwards(start_s)
        parts.append((chunk[order], link[order], REDUCE))
    if collective.kind != "reduce_scatter":
        chunk, link, start_s = _spread(network, owner, lap, chunk_bytes)
        order = np.argsort(start_s, kind="stable")
        parts.append((chunk[order], link[order], COPY))
    return in_start_order(
        Schedule(
            network,
            collective,
            chunk_bytes,
            "stars",
            seed,
            ints(np.concatenate([chunk for chunk, _, _ in parts])),
            ints(np.concatenate([link for _, link, _ in parts])),
            bytes_of(np.concatenate([np.full(len(chunk), op) for chunk, _, op in parts])),
        )
    )


def suits(network: Network, collective: Collective) -> bool:
    """Return whether there are several hosts and many ranks, no ports, and all links of the stars."""
    hosts = len(set(network.hosts))
    if network.ranks < _FEWEST_RANKS or not 1 < hosts < network.ranks or len(network.link_port):
        return False
    inside = np.unique(
        network.src[network.within_host].astype(np.int64) * network.ranks + network.dst[network.within_host]
    )
    size = network.ranks // hosts
    return len(inside) == network.ranks * (size - 1) and len(_gateways(network)[1]) == hosts * (hosts - 1)


def _gateways(network: Network) -> tuple[Indices, Indices]:
    """Return (links between hosts, ordered by pair of hosts; number of links of each linked pair)."""
    across = np.flatnonzero(~network.within_host)
    pair = (
        network.host_of[network.src[across]].astype(np.int64) * network.ranks
        + network.host_of[network.dst[across]]
    )
    order = np.argsort(pair, kind="stable")
    return across[order], np.unique(pair, return_counts=True)[1]


def _spread(
    network: Network, owner: Indices, lap: Indices, chunk_bytes: int
) -> tuple[Indices, Indices, Floats]:
    """Return (chunk, link, estimated start) of all sends from each chunk's owner to all ranks."""
    hosts = int(network.host_of.max()) + 1
    if hosts < 2:
        raise NotApplicableError("stars needs several hosts")
    members = [np.flatnonzero(network.host_of == host) for host in range(hosts)]
    across, counts = _gateways(network)
    table = link_table(network, chunk_bytes)
    sizes = {len(ranks) for ranks in members}
    if len(sizes) > 1 or len(counts) < hosts * (hosts - 1):
        raise NotApplicableError("stars needs hosts of equal size, with a link from each to each other")
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    size = sizes.pop()
    of_host = np.array(members)
    place = np.empty(network.ranks, np.int64)
    place[of_host] = np.arange(size)

    def to_all_of_host(ranks: Indices) -> Indices:
        """Return [rank of ``ranks``, other rank of its host]: the link between them."""
        others = (place[ranks][:, None] + np.arange(1, size)) % size
        links = table[ranks[:, None], of_host[network.host_of[ranks][:, None], others]]
        if (links < 0).any():
            raise NotApplicableError("stars needs links between all ranks of a host")
        return np.asarray(links)

    chunks = np.arange(len(owner))
    near = to_all_of_host(owner)
    near_s = lap[:, None] * hold_s[near]
    # The owners in a host are spread round-robin over its links to each other host.
    far_host = (network.host_of[owner][:, None] + np.arange(1, hosts)) % hosts
    start = np.concatenate(([0], np.cumsum(counts)))
    pair = (
        network.host_of[owner][:, None] * (hosts - 1)
        + far_host
        - (far_host > network.host_of[owner][:, None])
    )
    far = across[start[pair] + place[owner][:, None] % counts[pair]]
    leaves = network.src[far]
    inside = table[owner[:, None], leaves]
    first_s = lap[:, None] * np.where(inside < 0, 0.0, hold_s[inside])
    there_s = np.where(leaves == owner[:, None], 0.0, first_s + travel_s[inside])
    far_s = _in_turns(far.ravel(), there_s.ravel(), hold_s)
    enters = network.dst[far].ravel()
    onward = to_all_of_host(enters)
    onward_s = np.broadcast_to((far_s + travel_s[far.ravel()])[:, None], onward.shape)
    crossing = np.repeat(chunks, hosts - 1)
    return (
        np.concatenate((np.repeat(chunks, size - 1), crossing, np.repeat(crossing, size - 1))),
        np.concatenate((near.ravel(), far.ravel(), onward.ravel())),
        np.concatenate((near_s.ravel(), far_s, onward_s.ravel())),
    )


def _in_turns(link: Indices, ready_s: Floats, hold_s: Floats) -> Floats:
    """Return the starts of sends if each link's sends go one after the other, in the order of ``ready_s``."""
    order = np.lexsort((ready_s, link))
    link, ready_s = link[order], ready_s[order]
    first = np.flatnonzero(np.diff(link, prepend=-1))
    number = np.arange(len(link)) - np.repeat(first, np.diff(np.append(first, len(link))))
    before_s = number * hold_s[link]
    # A send starts at before + the largest (ready - before) among the link's sends up to it. ``apart_s``
    # keeps the running maximum of one link above the maxima of earlier links.
    apart_s = float(ready_s.max() + before_s.max()) + 1.0
    group = np.cumsum(number == 0)
    since_s = np.maximum.accumulate(ready_s - before_s + group * apart_s) - group * apart_s
    start_s = np.empty(len(link))
    start_s[order] = since_s + before_s
    return start_s
