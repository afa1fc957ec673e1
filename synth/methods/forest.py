"""Collectives over packings of trees, pipelined in chunks, at the full rate that the network can carry.

All_reduce uses spanning trees: a chunk is reduced up a tree and broadcast down the same tree, which uses both
directions of every link all the time. Reduce-scatter followed by all-gather would leave directions idle: the
corner of a mesh needs its egress in one half and its ingress in the other. If the directions of links differ
in cost, a chunk may be broadcast down another tree with the same root, if such pairs carry more. All_gather
and broadcast use rooted trees, as ForestColl does; reduce_scatter and reduce are their reversals in time on
the transposed network.

Chunks enter in proportion to the trees' shares. In an all_reduce, reductions of later chunks compete with
broadcasts of earlier chunks; their order decides how fast the pipeline fills and drains. Reductions are given
a lead of some chunks; a few leads are tried, and the fastest is kept. A network that queues keeps no such
order; there each link of a tree is one stream for each direction (``synth.streams``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from probes.base import Floats, Indices, bytes_of, ints, spans
from synth.bounds import least_s_per_byte
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.schedules import COPY, Schedule
from synth.scheduling import Sends, in_start_order, reversed_in_time
from synth.simulation import replay
from synth.tree_packing import (
    Packing,
    RootedPacking,
    TwoWayTree,
    depths,
    fewest,
    gathering_trees,
    hung,
    pack,
    pack_pairs,
    pack_rooted,
    pair_links,
    thinned,
)

__all__ = ["synthesize"]

# The leads of reductions over broadcasts that are tried, in chunks. With more sends than _SENDS_FOR_ALL_LEADS
# only one is tried: the first, or a twentieth of the chunks if they are very many.
_LEADS = (96, 48, 192, 0)
_SENDS_FOR_ALL_LEADS = 300_000
_SERVED = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce")
# The most ranks for which linear programs pack pairs of trees, or trees of every root.
_MOST_ROOTS = 40
# A packing of pairs of trees is used only if its load is lower by this factor; the second factor is for
# networks that queue.
_WORTH_PAIRS, _WORTH_PAIRS_IN_QUEUES = 1.01, 1.04
# Headrooms of ports that are tried, as fractions of their capacity. A packing with headroom may be slower by
# the factor _AS_GOOD, one with few trees by _FEWER_MAY_COST.
_HEADROOMS = (0.5, 0.3, 0.2, 0.1, 0.05)
_AS_GOOD, _FEWER_MAY_COST = 1.005, 1.02


def synthesize(
    network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0, solver: str = "cbc"
) -> Schedule:
    """Return pipelined trees for an all_reduce, all_gather, broadcast, reduce_scatter or reduce.

    ``solver`` divides shared ports among the trees of an all_gather. Raises UnavailableError without the
    solver. Raises NotApplicableError for other collectives and for subsets of ranks. On more than 40 ranks,
    NotApplicableError is also raised for an all_reduce if links do not lead both ways, and for an all_gather
    or reduce_scatter if bandwidths have no common unit or ports cannot be divided. O(leads · sends · log
    sends) after the packing, which is computed once for a network.
    """
    if not collective.whole or collective.kind not in _SERVED:
        raise NotApplicableError(f"forest does not serve {collective.label}, or not on a subset of ranks")
    if collective.kind != "all_reduce":
        return _rooted(network, collective, chunk_bytes, seed, solver)
    if network.queues:
        tried = [_streamed(packing, collective, chunk_bytes, seed) for packing in _packings(network, seed)]
        return min(tried, key=lambda schedule: replay(schedule).time_s)
    sends = 2 * (network.ranks - 1) * collective.chunks
    leads = (
        _LEADS
        if sends <= _SENDS_FOR_ALL_LEADS
        else (_LEADS[0] if collective.chunks <= 4096 else collective.chunks // 20,)
    )
    tried = [
        _over_trees(packing, collective, chunk_bytes, seed, lead)
        for packing in _packings(network, seed)
        for lead in leads
    ]
    return min(tried, key=lambda schedule: replay(schedule).time_s)


def _rooted(network: Network, collective: Collective, chunk_bytes: int, seed: int, solver: str) -> Schedule:
    """Return an all_gather or broadcast, or the reversal in time of either."""
    if collective.reversal:
        spread = _rooted(network.transposed(), collective.reversal, chunk_bytes, seed, solver)
        return in_start_order(reversed_in_time(spread, network, collective))
    source = collective.source_of()
    packing = _trees(network, collective, seed, solver)
    sends = Sends()
    for root in np.unique(source):
        chunks = np.flatnonzero(source == root)
        mine = np.flatnonzero(packing.root == root)
        tree_of = _interleaved(packing.share[mine] / packing.share[mine].sum(), len(chunks))
        for tree in np.unique(tree_of):
            links = packing.trees[mine[tree]]
            place = np.flatnonzero(tree_of == tree)
            parent = np.full(network.ranks, -1)
            parent[network.dst[links]] = network.src[links]
            depth = depths(parent)[network.src[links]]
            sends.add(chunks[place][:, None], links, COPY, place[:, None] * network.ranks + depth)
    return sends.schedule(network, collective, chunk_bytes, "forest", seed)


def _trees(network: Network, collective: Collective, seed: int, solver: str) -> RootedPacking:
    """Return `gathering_trees` for an all_gather if they apply, else the trees of a linear program."""
    if collective.kind == "broadcast":
        return _rooted_packing(network, collective.root, seed)
    try:
        return gathering_trees(network, collective.share, seed, solver)
    except NotApplicableError:
        if network.ranks > _MOST_ROOTS:
            raise
    return _rooted_packing(network, -1, seed)


@lru_cache(maxsize=4)
def _rooted_packing(network: Network, root: int, seed: int) -> RootedPacking:
    """Return the packing for an all_gather (root -1) or a broadcast."""
    ranks = network.ranks
    demand = np.full(ranks, 1 / ranks) if root < 0 else (np.arange(ranks) == root).astype(float)
    enough_s = least_s_per_byte(network, "all_gather" if root < 0 else "broadcast", max(root, 0))
    return pack_rooted(network, demand, enough_s_per_byte=enough_s, seed=seed)


@lru_cache(maxsize=2)
def _packings(network: Network, seed: int) -> tuple[_TwoWayPacking, ...]:
    """Return the packings to try for an all_reduce: of single trees for both ways, and of pairs of trees.

    Pairs are computed only if single trees miss the bound, and kept only if they carry more, because they are
    more trees and take longer.
    """
    enough_s = least_s_per_byte(network, "all_reduce")
    found: list[_TwoWayPacking] = []
    least_s = np.inf
    try:
        for packing in _packed(network, enough_s, seed):
            trees = tuple(hung(packing.edges, tree) for tree in packing.trees)
            found.append(_TwoWayPacking(network, trees, packing.share))
            least_s = min(least_s, packing.s_per_byte)
    except NotApplicableError:
        if network.ranks > _MOST_ROOTS:
            raise
    worth = _WORTH_PAIRS_IN_QUEUES if network.queues else _WORTH_PAIRS
    if network.ranks <= _MOST_ROOTS and least_s > enough_s * worth:
        pairs = pack_pairs(network, enough_s_per_byte=enough_s, seed=seed)
        if least_s > pairs.s_per_byte * worth:
            rows = zip(pairs.up, pairs.down, strict=True)
            trees = tuple(_paired(network, up, down) for up, down in rows)
            found.append(_TwoWayPacking(network, trees, pairs.share))
    if not found:
        raise NotApplicableError(f"forest needs links that join all ranks of {network.name}")
    return tuple(found)


def _packed(network: Network, enough_s: float, seed: int) -> list[Packing]:
    """Return packings of spanning trees; if the network queues, one with headroom and one with few trees.

    A network that queues keeps no order: flows through a resource near its limit fall behind, and trees with
    small shares forward a chunk slowly.
    """
    edges = pair_links(network)
    packing = pack(edges, enough_s_per_byte=enough_s, seed=seed)
    if not network.queues:
        return [packing]
    most_s = packing.s_per_byte * _AS_GOOD
    for headroom in _HEADROOMS:
        roomy = pack(edges, enough_s_per_byte=enough_s, headroom=headroom, seed=seed)
        if roomy.s_per_byte <= most_s:
            return [thinned(roomy), fewest(roomy, roomy.s_per_byte * _FEWER_MAY_COST)]
    return [thinned(packing), fewest(packing, packing.s_per_byte * _FEWER_MAY_COST)]


def _interleaved(share: Floats, chunks: int) -> Indices:
    """Return the tree of each chunk, in proportion to the shares and spread evenly over the sequence."""
    exact = share * chunks
    count = np.floor(exact).astype(int)
    count[np.argsort(count - exact, kind="stable")[: chunks - count.sum()]] += 1
    tree = np.repeat(np.arange(len(count)), count)
    number = spans(np.zeros_like(count), count)
    return tree[np.argsort((number + 0.5) / count[tree], kind="stable")]


@dataclass(frozen=True, eq=False)
class _TwoWayPacking:
    """The trees of an all_reduce and the share of the bytes that each carries; shares sum to 1."""

    network: Network
    trees: tuple[TwoWayTree, ...]
    share: Floats


def _over_trees(
    packing: _TwoWayPacking, collective: Collective, chunk_bytes: int, seed: int, lead: int
) -> Schedule:
    tree_of = _interleaved(packing.share, collective.chunks)
    sends = Sends()
    ranks = collective.ranks
    for at in np.unique(tree_of):
        tree = packing.trees[at]
        chunk = np.flatnonzero(tree_of == at)[:, None]
        (up, reduce, rising), (down, copy, falling) = tree.ways()
        # Order by chunk, then by level; ``lead`` delays broadcasts behind the reductions of later chunks.
        sends.add(chunk, up, reduce, chunk * 2 * ranks + rising)
        falling = chunk * 2 * ranks + falling
        sends.add(chunk, down, copy, falling, falling + lead * 2 * ranks)
    return sends.schedule(packing.network, collective, chunk_bytes, "forest", seed)


def _streamed(packing: _TwoWayPacking, collective: Collective, chunk_bytes: int, seed: int) -> Schedule:
    """Return a schedule in start order, with one stream for each link and direction of a tree."""
    tree_of = _interleaved(packing.share, collective.chunks)
    columns: list[tuple[Indices, ...]] = []
    first = 0
    for at in np.unique(tree_of):
        tree = packing.trees[at]
        chunk = np.flatnonzero(tree_of == at)[:, None]
        for links, op, level in tree.ways():
            stream = first + np.arange(len(links))
            first += len(links)
            rows = np.broadcast_arrays(chunk, links, op, stream, level)
            columns.append(tuple(column.ravel() for column in rows))
    of_chunk, of_link, kinds, of_stream, turn = (np.concatenate(one) for one in zip(*columns, strict=True))
    order = np.lexsort((turn, of_chunk))
    return in_start_order(
        Schedule(
            packing.network,
            collective,
            chunk_bytes,
            "forest",
            seed,
            ints(of_chunk[order]),
            ints(of_link[order]),
            bytes_of(kinds[order]),
            stream=ints(of_stream[order]),
        )
    )


def _paired(network: Network, up: Indices, down: Indices) -> TwoWayTree:
    """Return the links up to a root and the links down from it, with their depths."""
    above = np.full(network.ranks, -1)
    above[network.src[up]] = network.dst[up]
    below = np.full(network.ranks, -1)
    below[network.dst[down]] = network.src[down]
    return TwoWayTree(up, depths(above)[network.src[up]], down, depths(below)[network.dst[down]])
