"""Exchange: all_reduces of few bytes, in which near blocks of ranks send each other their sums.

Recursive doubling (Thakur, Rabenseifner, Gropp) where two blocks at a time do, one-shot where all ranks do at
once; on any network and for any number of ranks. An all_reduce that goes in to a root and out again takes
twice as long where latency counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np

from probes.columns import Floats
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks.shortest_paths import distances_s
from synth.schedule import Schedule
from synth.scheduling.exchanges import Blocks, Exchanges, nearest_blocks
from synth.simulation.schedule import replay

__all__ = ["chunk_counts", "pays", "suits", "synthesize"]

# Up to so many sums of blocks are handed on at a level; more take long to plan, and are slow.
_MOST_SUMS = 5_000
_MOST_RANKS = 256
# The most chunks into which a buffer is cut for the ways out of a rank, and for the ranks of a host.
_MOST_WAYS, _MOST_OF_HOST = 8, 16
# How many times the way to the farthest rank it may cost to send all bytes at every level.
_FARTHEST = 1.5


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """All_reduce by exchange of sums between blocks of ranks, two or more at a time, whichever is faster.

    Recursive doubling where two at a time are, one-shot where all are. Chunks take different links in
    turn. Where blocks are far apart, each rank may first sum up its share of what is near, and exchange only
    that. Raises NotApplicableError for other collectives and where ranks are apart. O(ranks · chunks ·
    log ranks) sends, or ranks² · chunks.
    """
    if collective.kind != "all_reduce" or not collective.whole:
        raise NotApplicableError(f"exchange does not serve {collective.label}")
    if not 2 <= network.ranks <= _MOST_RANKS:
        raise NotApplicableError(f"exchange is for 2 to {_MOST_RANKS} ranks")
    used: list[Floats] = []
    levels = [nearest_blocks(network, chunk_bytes, used) for _ in range(collective.chunks)]
    joined = _joined(network, levels[0], chunk_bytes)
    every = [_exchanged(network, collective, chunk_bytes, levels, joined, seed)]
    shared = _shared_level(network, levels[0])
    if shared is not None:
        last = len(levels[0]) - 1
        some = [shared, *(level for level in joined if level > shared)]
        for above in dict.fromkeys([tuple(some), (shared, last)]):
            with suppress(NotApplicableError):
                every.append(_shared(network, collective, chunk_bytes, levels[0], above, seed))
    return min(every, key=lambda schedule: replay(schedule).time_s)


def chunk_counts(network: Network) -> list[int]:
    """Into how many chunks it is worth to cut the buffer: as many as a rank, or a host, has ways out."""
    degree = int(np.bincount(network.src, minlength=network.ranks).max(initial=1))
    ways = 1 if network.ports else min(max(degree, 1), _MOST_WAYS)
    host = network.hosts.count(network.hosts[0])
    share = host if host < network.ranks and host <= _MOST_OF_HOST else 1
    return sorted({1, ways, share, 2 * share})


def suits(network: Network, collective: Collective) -> bool:
    """Whether there is an exchange, and few enough ranks for it to be found soon."""
    few = 2 <= network.ranks <= _MOST_RANKS
    return collective.kind == "all_reduce" and collective.whole and few


def pays(network: Network, collective: Collective, chunk_bytes: int) -> bool:
    """Whether latency weighs enough: a ring moves twice the bytes at most, doubling log₂ N times."""
    ranks = network.ranks
    bandwidth = _least_bandwidth(network)
    times = math.log2(ranks) - 2 * (ranks - 1) / ranks
    farthest_s = float(distances_s(network, network.travel_s(1), np.zeros(1, np.int64)).max())
    return times * collective.chunks * chunk_bytes <= _FARTHEST * farthest_s * bandwidth


def _least_bandwidth(network: Network) -> float:
    """Bytes per second that come in at the rank that has the least, by all of its links and ports."""
    with np.errstate(divide="ignore"):
        rate = 1.0 / network.beta_s_per_byte
    start = network.link_port_start
    shared = np.diff(start) > 0
    into = np.zeros(network.ranks)
    np.add.at(into, network.dst[~shared], rate[~shared])
    # The last port of a link is that of its receiver.
    last = network.link_port[start[1:][shared] - 1].astype(np.int64)
    key, place = np.unique(network.dst[shared] * np.int64(len(network.ports) + 1) + last, return_inverse=True)
    fastest = np.zeros(len(key))
    np.maximum.at(fastest, place, rate[shared])
    np.add.at(into, key // (len(network.ports) + 1), fastest)
    return float(into.min())


def _nodes(levels: Sequence[Blocks], low: int, high: int) -> list[Blocks]:
    """The blocks of level ``high``, each as the blocks of level ``low`` in it."""
    of = {block[0]: block for block in levels[low]}
    return [[of[rank] for rank in whole if rank in of] for whole in levels[high]]


def _joined(network: Network, levels: Sequence[Blocks], chunk_bytes: int) -> list[int]:
    """The levels at which to exchange: of all ways to leave levels out the fastest, each level by itself."""
    last = len(levels) - 1
    travel_s = network.travel_s(chunk_bytes)
    far_s = distances_s(network, travel_s, np.arange(network.ranks))
    best_s, before = [0.0] + [math.inf] * last, [0] * (last + 1)
    for high in range(1, last + 1):
        for low in range(high - 1, -1, -1):
            if best_s[low] == math.inf:
                continue
            nodes = _nodes(levels, low, high)
            sums = sum(sum(map(len, blocks)) * (len(blocks) - 1) for blocks in nodes)
            if low < high - 1:
                least_s = max(_diameter_s(blocks, far_s) for blocks in nodes)
                if sums > _MOST_SUMS or best_s[low] + least_s >= best_s[high] * (1 - 1e-9):
                    continue
            trial = Exchanges(network, 1, chunk_bytes)
            try:
                trial.exchange(0, nodes)
            except NotApplicableError:
                continue
            if best_s[low] + trial.time_s < best_s[high] * (1 - 1e-9):
                best_s[high], before[high] = best_s[low] + trial.time_s, low
    if best_s[last] == math.inf:
        raise NotApplicableError("exchange needs links within blocks of near ranks")
    found = [last]
    while found[-1] > 0:
        found.append(before[found[-1]])
    return found[::-1]


def _diameter_s(blocks: Blocks, far_s: Floats) -> float:
    """The longest way that a block's sum has to go to a rank of another."""
    ranks = [rank for block in blocks for rank in block]
    return max(float(far_s[np.ix_(block, ranks)].min(axis=0).max()) for block in blocks)


def _exchanged(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    levels: Sequence[Sequence[Blocks]],
    joined: Sequence[int],
    seed: int,
) -> Schedule:
    """Every chunk by its own blocks, all level by level."""
    found = Exchanges(network, collective.chunks, chunk_bytes)
    for low, high in pairwise(joined):
        for chunk, own in enumerate(levels):
            last = len(own) - 1
            top = last if high == joined[-1] else min(high, last)
            if low < top:
                found.exchange(chunk, _nodes(own, low, top))
    return found.schedule(collective, "exchange", seed)


def _shared_level(network: Network, levels: Sequence[Blocks]) -> int | None:
    """The level whose blocks are the hosts, of which there are several with several ranks; None without."""
    hosts = set(network.hosts)
    if len(hosts) in (1, network.ranks):
        return None
    return next((at for at, blocks in enumerate(levels) if len(blocks) == len(hosts)), None)


def _shared(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    levels: Sequence[Blocks],
    above: Sequence[int],
    seed: int,
) -> Schedule:
    """In each host one rank sums up a chunk; these exchange it at the levels ``above``, and hand it out."""
    found = Exchanges(network, collective.chunks, chunk_bytes)
    hosts = [sorted(block) for block in levels[above[0]]]
    chunks = range(collective.chunks)
    owners = [[block[chunk % len(block)] for block in hosts] for chunk in chunks]
    for chunk in chunks:
        for block, owner in zip(hosts, owners[chunk], strict=True):
            found.collect(chunk, block, owner)
    for low, high in pairwise(above):
        for chunk in chunks:
            found.exchange(chunk, _nodes(levels, low, high), frozenset(owners[chunk]))
    for chunk in chunks:
        for block, owner in zip(hosts, owners[chunk], strict=True):
            found.hand_out(chunk, owner, block)
    return found.schedule(collective, "exchange", seed)
