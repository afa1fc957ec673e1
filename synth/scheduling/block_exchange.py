"""Exchange: all_reduces of few bytes, in which blocks of nearby ranks send each other their sums.

It is recursive doubling (Thakur, Rabenseifner, Gropp) if two blocks at a time exchange, and one-shot if all
ranks exchange at once; it works on any network and for any number of ranks. An all_reduce through a root
takes twice as long if latency dominates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from probes.base import Floats, Indices
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import distances_s, found_symmetry
from synth.schedules import Schedule
from synth.scheduling.exchanges import Collect, Exchange, ExchangePlan, HandOut, Step, plan_exchange
from synth.scheduling.nearest_blocks import Blocks, nearest_blocks
from synth.simulation import replay

__all__ = ["chunk_counts", "least_bandwidth", "pays", "suits", "synthesize"]

# The most sums of blocks exchanged at one level, and the most ranks; more take long to plan and are slow to
# run.
_MOST_SUMS, _MOST_RANKS = 5_000, 256
# The most links out of a rank, and the most ranks of a host, that get separate chunks.
_MOST_WAYS, _MOST_OF_HOST = 8, 16
# The most laps: chunks that each of these links carries one after another. A schedule of several laps has at
# most about _MOST_SENDS sends.
_MOST_LAPS, _MOST_SENDS = 32, 10_000
# If each rank of a host has a share of the chunks, this many powers of two are tried as the number of laps.
_LAPS_OF_SHARES = 6
# Plans are first compared with few chunks. Those that take at most _NEAR times the best are then made with
# all chunks: at most the fastest _LEAST_PLANS, or more if together they have at most _MOST_SENDS_OF_PLANS
# sends.
_NEAR, _LEAST_PLANS, _MOST_SENDS_OF_PLANS = 1.1, 2, 20_000
# Recursive doubling sends more bytes than a ring. These additional bytes may take at most this factor times
# the latency to the farthest rank.
_FARTHEST = 1.5


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return an all_reduce by exchange of sums between blocks of ranks, two or more at a time.

    The faster choice is made at each level: pairs give recursive doubling, all ranks at once give one-shot.
    Chunks take different links in turn. If blocks are far apart, each rank may first sum up its share of a
    block's chunks and exchange only this share. Raises NotApplicableError for other collectives and if links
    do not join the ranks. O(ranks · chunks · log ranks) sends, or ranks² · chunks.
    """
    if collective.kind != "all_reduce" or not collective.whole:
        raise NotApplicableError(f"exchange does not serve {collective.label}")
    if not 2 <= network.ranks <= _MOST_RANKS:
        raise NotApplicableError(f"exchange is for 2 to {_MOST_RANKS} ranks")
    ways = min(collective.chunks, _ways(network))
    laps = collective.chunks // ways
    # Blocks are chosen as if each way had one chunk, so that finer chunks do not change them.
    used: list[Floats] = []
    aligned = collective.sum_order == "aligned"
    if aligned:
        ladders = [[_aligned_blocks(network.ranks)] * ways]
    else:
        ladders = [[nearest_blocks(network, chunk_bytes * laps, used) for _ in range(ways)]]
        ladders += _by_digits(network, ways)
    wanted: list[_Way] = []
    for levels in ladders:
        with suppress(NotApplicableError):
            alike = levels is ladders[0] or all(one == levels[0] for one in levels)
            some = levels[:1] if alike else levels
            joined = [_joined(network, one, chunk_bytes * laps) for one in some] * (ways // len(some))
            same = all(one == joined[0] for one in joined)
            # Sums on the way to an owner keep no order.
            shared = _shares(network, levels[0], joined[0], laps) if same and not aligned else []
            wanted += [_Way(levels, joined, shares) for shares in (None, *shared)]
    if len(wanted) > 1:
        wanted = _promising(network, collective, chunk_bytes, wanted)
    every = []
    for way in wanted:
        with suppress(NotApplicableError):
            every.append(
                _planned(network, collective.chunks, chunk_bytes, way).schedule(collective, "exchange", seed)
            )
    if not every:
        raise NotApplicableError("exchange needs links within blocks of near ranks")
    return min(every, key=lambda schedule: replay(schedule).time_s)


def _aligned_blocks(ranks: int) -> list[Blocks]:
    """Return the levels of the aligned tree: blocks of 1, 2, 4 … ranks."""
    every = list(range(ranks))
    widths = [1 << level for level in range((ranks - 1).bit_length() + 1)]
    return [[every[first : first + width] for first in range(0, ranks, width)] for width in widths]


def chunk_counts(network: Network) -> list[int]:
    """Return the numbers of chunks into which to cut the buffer.

    They are 1, the number of links out of a rank, its product with the number of ranks of a host, and
    multiples of these, so that levels overlap in time.
    """
    ways = _ways(network)
    host = network.hosts.count(network.hosts[0])
    share = host if host < network.ranks and host <= _MOST_OF_HOST else 1
    most = _MOST_SENDS / (network.ranks * math.log2(max(2, network.ranks)))
    laps = [1 << power for power in range(_MOST_LAPS.bit_length())]
    if network.queues:
        # Ranks are CPUs, and each message costs them time that alpha does not include.
        return sorted({1, ways, share, 2 * share})
    counts = {1, *(ways * lap for lap in laps), *(ways * share * lap for lap in laps[:_LAPS_OF_SHARES])}
    return sorted(count for count in counts if count <= max(most, ways, 2 * ways * share))


def _ways(network: Network) -> int:
    """Return the number of ways: links over which a rank can send at once."""
    degree = int(np.bincount(network.src, minlength=network.ranks).max(initial=1))
    return 1 if network.ports else min(max(degree, 1), _MOST_WAYS)


def suits(network: Network, collective: Collective) -> bool:
    """Return whether this is an all_reduce of few enough ranks for an exchange to be found quickly."""
    few = 2 <= network.ranks <= _MOST_RANKS
    return collective.kind == "all_reduce" and collective.whole and few


def pays(network: Network, collective: Collective, chunk_bytes: int) -> bool:
    """Return whether latency dominates, so that an exchange may send more bytes than a ring.

    A ring sends less than twice the bytes of the buffer, recursive doubling log₂ N times.
    """
    ranks = network.ranks
    bandwidth = least_bandwidth(network)
    times = math.log2(ranks) - 2 * (ranks - 1) / ranks
    farthest_s = float(distances_s(network, network.travel_s(1), np.zeros(1, np.int64)).max())
    return times * collective.chunks * chunk_bytes <= _FARTHEST * farthest_s * bandwidth


def least_bandwidth(network: Network) -> float:
    """Return the receive rate in bytes per second of the slowest rank, over all its links and ports."""
    with np.errstate(divide="ignore"):
        rate = 1.0 / network.beta_s_per_byte
    start = network.link_port_start
    shared = np.diff(start) > 0
    into = np.zeros(network.ranks)
    np.add.at(into, network.dst[~shared], rate[~shared])
    # The last port of a link belongs to its receiver.
    last = network.link_port[start[1:][shared] - 1].astype(np.int64)
    key, place = np.unique(network.dst[shared] * np.int64(len(network.ports) + 1) + last, return_inverse=True)
    fastest = np.zeros(len(key))
    np.maximum.at(fastest, place, rate[shared])
    np.add.at(into, key // (len(network.ports) + 1), fastest)
    return float(into.min())


def _nodes(levels: Sequence[Blocks], low: int, high: int) -> list[Blocks]:
    """Return each block of level ``high`` as the list of its blocks of level ``low``."""
    by_first = {block[0]: block for block in levels[low]}
    return [[by_first[rank] for rank in whole if rank in by_first] for whole in levels[high]]


def _joined(network: Network, levels: Sequence[Blocks], chunk_bytes: int) -> list[int]:
    """Return the levels at which to exchange: those whose exchanges take least time in total."""
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
            try:
                trial = plan_exchange(network, chunk_bytes, [[list(map(Exchange, nodes))]])
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
    """Return the longest path time to a rank from the nearest rank of another block."""
    ranks = [rank for block in blocks for rank in block]
    return max(float(far_s[np.ix_(block, ranks)].min(axis=0).max()) for block in blocks)


@dataclass(frozen=True)
class _Shares:
    """A plan in which each rank sums up its share of its block's chunks.

    The blocks belong to level ``above[0]``; the sums are exchanged at the other levels of ``above``.
    """

    above: tuple[int, ...]


def _shares(network: Network, levels: Sequence[Blocks], joined: Sequence[int], laps: int) -> list[_Shares]:
    """Return plans for all levels whose blocks can share chunks: hosts, or blocks of ≤ ``laps`` ranks."""
    last = len(levels) - 1
    hosts = _shared_level(network, levels)
    found = []
    for shared in range(1, last):
        largest = max(map(len, levels[shared]))
        if shared == hosts or largest <= laps:
            some = [shared, *(level for level in joined if level > shared)]
            found += [_Shares(above) for above in dict.fromkeys([tuple(some), (shared, last)])]
    return found


@dataclass(frozen=True, eq=False)
class _Way:
    """A plan: for each way, its levels of blocks and the levels that exchange; and how chunks are shared."""

    levels: Sequence[Sequence[Blocks]]
    joined: Sequence[Sequence[int]]
    shares: _Shares | None


def _promising(
    network: Network, collective: Collective, chunk_bytes: int, wanted: Sequence[_Way]
) -> list[_Way]:
    """Return the few plans that are fastest if each has only as many chunks as its blocks have ranks."""
    ways = len(wanted[0].levels)
    laps = collective.chunks // ways
    rough_s: list[float] = []
    for way in wanted:
        block = 1 if way.shares is None else max(map(len, way.levels[0][way.shares.above[0]]))
        few = min(laps, block)
        try:
            rough = _planned(network, ways * few, -(-chunk_bytes * laps // few), way)
        except NotApplicableError:
            rough_s.append(math.inf)
            continue
        rough_s.append(rough.time_s)
    sends = collective.chunks * network.ranks * math.log2(max(2, network.ranks))
    most = max(_LEAST_PLANS, int(_MOST_SENDS_OF_PLANS / sends))
    order = np.argsort(rough_s, kind="stable")[:most].tolist()
    return [wanted[at] for at in order if rough_s[at] <= _NEAR * rough_s[order[0]] < math.inf]


def _planned(network: Network, chunks: int, chunk_bytes: int, way: _Way) -> ExchangePlan:
    """Return the planned sends: chunk n uses way n mod ways, and is share n div ways of a block."""
    # Chunks with the same steps are planned from one table: without shares, all chunks of a way.
    steps: dict[tuple[int, int], list[list[Step]]] = {}
    every = []
    for chunk in range(chunks):
        share, number = divmod(chunk, len(way.levels))
        key = number, share if way.shares else 0
        if key not in steps:
            steps[key] = _steps(way.levels[number], way.joined[number], way.shares, share)
        every.append(steps[key])
    return plan_exchange(network, chunk_bytes, every)


def _by_digits(network: Network, ways: int) -> list[list[list[Blocks]]]:
    """Return ladders: for each way, levels of blocks, each level with one digit more.

    The digits of a rank come from its coordinates under the network's translations. The ranks of a block
    differ only in the digits up to its level.

    The second ladder takes the digits in a different order for each way: on a torus some chunks are exchanged
    along rows first, others along columns, so that links are loaded evenly. Return [] if there are fewer than
    two coordinates.
    """
    symmetry = found_symmetry(network)
    if symmetry is None or len(symmetry.network.sizes) < 2:
        return []
    sizes, strides = symmetry.network.sizes, symmetry.network.strides
    rank = np.arange(network.ranks)
    digits = [list(_halved(rank // stride % size, size)) for size, stride in zip(sizes, strides, strict=True)]

    def rising(first: int) -> list[Blocks]:
        order = [digit for at in range(len(sizes)) for digit in digits[(first + at) % len(sizes)]]
        levels: list[Blocks] = [[[one] for one in rank.tolist()]]
        for joined in range(1, len(order) + 1):
            label = np.zeros(network.ranks, np.int64)
            for digit in order[joined:]:
                label = label * (int(digit.max()) + 1) + digit
            levels.append([np.flatnonzero(label == one).tolist() for one in np.unique(label)])
        return levels

    ladders = [[rising(0)] * ways]
    return ladders if ways == 1 else [*ladders, [rising(way) for way in range(ways)]]


def _halved(digit: Indices, size: int) -> Iterator[Indices]:
    """Yield the digit as several digits: binary ones while its size is even, then the rest."""
    while size % 2 == 0 and size > 2:
        yield digit % 2
        digit, size = digit // 2, size // 2
    yield digit


def _steps(
    levels: Sequence[Blocks], joined: Sequence[int], shares: _Shares | None, share: int
) -> list[list[Step]]:
    """Return a chunk's steps by level; with ``shares`` the ``share``-th rank of a block owns the chunk."""
    if shares is None:
        return [list(map(Exchange, nodes)) for nodes in _between(levels, joined)]
    blocks = [sorted(block) for block in levels[_level(levels, shares.above[0])]]
    owners = [block[share % len(block)] for block in blocks]
    found: list[list[Step]] = [list(map(Collect, blocks, owners))]
    taking_part = frozenset(owners)
    for nodes in _between(levels, shares.above):
        found.append([Exchange([[r for r in block if r in taking_part] for block in node]) for node in nodes])
    return [*found, list(map(HandOut, owners, blocks))]


def _between(levels: Sequence[Blocks], joined: Sequence[int]) -> Iterator[list[Blocks]]:
    """Yield the blocks that exchange between each level of ``joined`` and the next, up to all ranks."""
    for low, high in pairwise(joined):
        top = _level(levels, high, high == joined[-1])
        if low < top:
            yield _nodes(levels, low, top)


def _level(levels: Sequence[Blocks], level: int, to_the_top: bool = False) -> int:
    """Return ``level``, or the last level if there are fewer; always the last one if ``to_the_top``."""
    last = len(levels) - 1
    return last if to_the_top else min(level, last)


def _shared_level(network: Network, levels: Sequence[Blocks]) -> int | None:
    """Return the level whose blocks are the hosts; None with one host, or one rank a host."""
    hosts = set(network.hosts)
    if len(hosts) in (1, network.ranks):
        return None
    return next((at for at, blocks in enumerate(levels) if len(blocks) == len(hosts)), None)
