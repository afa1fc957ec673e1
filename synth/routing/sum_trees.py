"""Sums of a fixed tree of additions, placed on ranks so that the busiest link or port carries little.

The tree fixes which sums are added up; the search decides at which ranks. At given prices of links and ports,
a dynamic program over the tree finds the cheapest rank for each addition and for each rank that may need the
result. The cost of a sum is the cost to make its two summands and to bring them to the rank that adds them,
and, where latency has a price, that of the longest chain of paths to it.
Chunks are placed batch by batch. In later turns each batch is removed and placed again at the prices of all
others, as in `synth.routing.min_congestion_paths`. In the first turns prices hardly depend on loads, then
more from turn to turn: steep first prices would send chunks on detours that they keep.

By weak duality any prices prove a lower bound on time: the cost of all chunks on their cheapest paths,
divided by the sum of the prices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints
from synth.kernels import compiled, copy_into
from synth.routing.congestion_prices import Resources, largest_load_s, price_of

__all__ = ["SumTree", "aligned_tree", "batch_of", "place_sums"]

# In turn t the busiest link or port costs exp(_FIRST_ETA · 2^(t / _DOUBLED)) times an idle one, at last
# exp(16). On torus:4x4, switch:16 and fat_tree:4x4/2 the busiest then carried 8, 15 and 15 chunks of a
# reduce_scatter, the optimum; with exp(10) from the first turn on, it carried 8.25 to 10, 16 and 17.
_FIRST_ETA, _DOUBLED, _TURNS = 0.5, 3, 16
# The bound is sought in _STEPS steps, at prices of exp(_ETA · load / the largest load). In each step a share
# of the chunks, at first _FIRST_SHARE, takes the cheapest paths.
_ETA, _STEPS, _FIRST_SHARE = 10.0, 200, 0.1
# The largest load counts as at least this many chunks, so that a single chunk repels no others.
_FEW = 4
# The most operations of a search: a few seconds.
_WORK = 4_000_000_000
# The price of latency along the longest chain of paths to a sum, in the price of latency on a single path.
# For all_reduces on fat_tree:4x4/2 and dgx-h100:4, 0 takes up to 1.4 times as long at 16 KiB, 16 up to 1.3
# times at 256 KiB and 1 MiB.
_DEPTH = 4.0
# Costs vary at random by up to this share, so that chunks spread over paths of equal cost.
_SPREAD = 1e-3


class SumTree(NamedTuple):
    """Nodes 0 … n − 1 are the contributions of ``source``; n + i adds ``left[i]`` and ``right[i]``.

    Children come before their parents; the last node is the complete sum.
    """

    source: Indices
    left: Indices
    right: Indices


def aligned_tree(sources: Indices) -> SumTree:
    """Return the aligned tree over these ranks: neighbours are added up level by level."""
    left, right = list[int](), list[int]()
    level = list(range(len(sources)))
    while len(level) > 1:
        after = []
        for one, other in zip(level[::2], level[1::2], strict=False):
            after.append(len(sources) + len(left))
            left.append(one)
            right.append(other)
        level = [*after, *(level[-1:] if len(level) % 2 else ())]
    return SumTree(np.asarray(sources, np.int64), np.array(left, np.int64), np.array(right, np.int64))


def batch_of(ranks: int, chunks: int) -> int:
    """Return how many chunks to place at the same prices, so that a search takes a few seconds at most."""
    return max(1, -(-chunks * _TURNS * 2 * ranks**3 // _WORK))


class _Costs(NamedTuple):
    """Cheapest paths between ranks, their last links, and the cost of each node's value at each rank.

    ``made_at[i, r]`` is the rank at which node n + i is made when rank r is to have it. ``latency`` and
    ``depth`` are the prices of latency along a path, and along the longest chain of paths to a value.
    """

    path: Floats
    came: Ints
    latency: Floats
    value: Floats
    depth: Floats
    made_at: Ints


class _Placed(NamedTuple):
    """``rank[c, v]`` makes node v of chunk c; ``link[c, v, : hops[c, v]]`` leads on to its parent's rank."""

    rank: Ints
    hops: Ints
    link: Ints


@compiled
def place_sums(
    through: Resources,
    tree: SumTree,
    roots: Indices,
    load_s: Floats,
    batch: int,
    most_hops: int,
    seed: int,
    prove: bool,
) -> tuple[Ints, Ints, Ints, float]:
    """Return (ranks, hops, links, bound): where each chunk's sums are made, and their ways to its root.

    The first three are the columns of `_Placed`; rank ``roots[chunk]`` gets a chunk's complete sum. All ranks
    are -1 if a rank cannot be reached in ``most_hops``. ``load_s`` (links, then ports) is the load before the
    call; the chunks are added to it. With ``prove`` the bound is a proven least time, in seconds, for links
    and ports to carry the chunks, without the load before; else 0. O(chunks / batch · ranks³).
    """
    np.random.seed(seed)
    chunks, ranks, leaves = len(roots), len(through.out_start) - 1, len(tree.source)
    nodes = 2 * leaves - 1
    placed = _Placed(
        np.full((chunks, nodes), -1, np.int32),
        np.zeros((chunks, nodes), np.int32),
        np.zeros((chunks, nodes, most_hops), np.int32),
    )
    best = _Placed(placed.rank.copy(), placed.hops.copy(), placed.link.copy())
    costs = _Costs(
        np.empty((ranks, ranks)),
        np.empty((ranks, ranks), np.int32),
        np.zeros((ranks, ranks)),
        np.empty((nodes, ranks)),
        np.empty((nodes, ranks)),
        np.empty((leaves - 1, ranks), np.int32),
    )
    before_s, best_s = load_s.copy(), np.inf
    price = np.ones(len(load_s))
    for turn in range(_TURNS):
        eta = _FIRST_ETA * 2.0 ** (turn / _DOUBLED)
        order = np.random.permutation(chunks)
        for begin in range(0, chunks, batch):
            part = order[begin : begin + batch]
            largest_s = max(largest_load_s(load_s), _FEW * through.held_s.max())
            for chunk in part:
                if turn:
                    _load(through, placed, chunk, load_s, -1.0)
            for at in range(len(load_s)):
                price[at] = np.exp(eta * load_s[at] / largest_s)
            _find_paths(through, price, costs)
            _find_places(tree, costs)
            for chunk in part:
                if not _place(through, tree, costs, placed, chunk, roots[chunk]):
                    best.rank[:] = -1
                    return best.rank, best.hops, best.link, 0.0
                _load(through, placed, chunk, load_s, 1.0)
        if largest_load_s(load_s) < best_s * (1 - 1e-9):
            best_s = largest_load_s(load_s)
            best = _Placed(placed.rank.copy(), placed.hops.copy(), placed.link.copy())
    bound_s = _least_s(through, tree, costs, placed, roots, load_s - before_s) if prove else 0.0
    copy_into(load_s, before_s)
    for chunk in range(chunks):
        _load(through, best, chunk, load_s, 1.0)
    return best.rank, best.hops, best.link, bound_s


@compiled
def _least_s(
    through: Resources, tree: SumTree, costs: _Costs, placed: _Placed, roots: Indices, usual_s: Floats
) -> float:
    """Return a proven least time for links and ports to carry all chunks.

    At any prices, a placement of all chunks costs at least as much as each chunk's cheapest placement, summed
    over chunks. The prices follow the mean load ``usual_s`` of the cheapest placements. ``placed`` and
    ``costs`` are overwritten.
    """
    bound_s = 0.0
    for step in range(_STEPS):
        price = np.exp(_ETA * (usual_s / largest_load_s(usual_s) - 1.0))
        _find_paths(through, price, costs)
        _find_places(tree, costs)
        least, answer_s = 0.0, np.zeros(len(usual_s))
        for chunk in range(len(roots)):
            least += costs.value[-1, roots[chunk]]
            _place(through, tree, costs, placed, chunk, roots[chunk])
            _load(through, placed, chunk, answer_s, 1.0)
        bound_s = max(bound_s, least / price.sum())
        share = _FIRST_SHARE / (1.0 + _FIRST_SHARE * step)
        usual_s = (1.0 - share) * usual_s + share * answer_s
    return bound_s / (1.0 + _SPREAD)


@compiled
def _load(through: Resources, placed: _Placed, chunk: int, load_s: Floats, times: float) -> None:
    """Add a chunk's sends to the loads, or remove them with ``times`` −1."""
    links = len(through.src)
    for node in range(placed.hops.shape[1]):
        for at in range(placed.hops[chunk, node]):
            link = placed.link[chunk, node, at]
            held_s = times * through.held_s[link]
            load_s[link] += held_s
            for port in range(through.port_start[link], through.port_start[link + 1]):
                load_s[links + through.port[port]] += held_s * through.port_part[port]


@compiled
def _find_paths(through: Resources, price: Floats, costs: _Costs) -> None:
    """Set the cheapest paths between all ranks (Floyd and Warshall)."""
    path, came = costs.path, costs.came
    ranks = len(path)
    path[:] = np.inf
    came[:] = -1
    for rank in range(ranks):
        path[rank, rank] = 0.0
    for link in range(len(through.src)):
        cost = price_of(through, price, link) * (1.0 + _SPREAD * np.random.random())
        if cost < path[through.src[link], through.dst[link]]:
            path[through.src[link], through.dst[link]] = cost
            came[through.src[link], through.dst[link]] = link
            costs.latency[through.src[link], through.dst[link]] = through.latency_s[link]
    for via in range(ranks):
        for start in range(ranks):
            first = path[start, via]
            if first == np.inf:
                continue
            for end in range(ranks):
                if first + path[via, end] < path[start, end]:
                    path[start, end] = first + path[via, end]
                    came[start, end] = came[via, end]
                    costs.latency[start, end] = costs.latency[start, via] + costs.latency[via, end]


@compiled
def _find_places(tree: SumTree, costs: _Costs) -> None:
    """Set for each node and rank the cost of its value there, and where it is best made."""
    path, latency, value, depth = costs.path, costs.latency, costs.value, costs.depth
    ranks, leaves = len(path), len(tree.source)
    for leaf in range(leaves):
        value[leaf] = path[tree.source[leaf]]
        depth[leaf] = latency[tree.source[leaf]]
    least = np.empty(ranks)
    for inner in range(leaves - 1):
        left, right, whole = tree.left[inner], tree.right[inner], leaves + inner
        least[:] = np.inf
        value[whole] = np.inf
        for maker in range(ranks):
            made = value[left, maker] + value[right, maker]
            after = max(depth[left, maker], depth[right, maker])
            for rank in range(ranks):
                deep = after + latency[maker, rank]
                cost = made + path[maker, rank]
                if cost + _DEPTH * deep < least[rank]:
                    least[rank] = cost + _DEPTH * deep
                    value[whole, rank], depth[whole, rank] = cost, deep
                    costs.made_at[inner, rank] = maker


@compiled
def _place(through: Resources, tree: SumTree, costs: _Costs, placed: _Placed, chunk: int, root: int) -> bool:
    """Place the sums of one chunk for ``root``; return False if a path is missing or too long."""
    leaves, src, most = len(tree.source), through.src, placed.link.shape[2]
    wanted_at = np.empty(2 * leaves - 1, np.int64)
    wanted_at[-1] = root
    for node in range(2 * leaves - 2, -1, -1):
        wanted = wanted_at[node]
        if costs.value[node, wanted] == np.inf:
            return False
        inner = node - leaves
        maker = tree.source[node] if inner < 0 else costs.made_at[inner, wanted]
        if inner >= 0:
            wanted_at[tree.left[inner]] = maker
            wanted_at[tree.right[inner]] = maker
        placed.rank[chunk, node] = maker
        count, rank = 0, wanted
        while rank != maker:
            rank = src[costs.came[maker, rank]]
            count += 1
        if count > most:
            return False
        placed.hops[chunk, node] = count
        rank = wanted
        for at in range(count - 1, -1, -1):
            placed.link[chunk, node, at] = costs.came[maker, rank]
            rank = src[costs.came[maker, rank]]
    return True
