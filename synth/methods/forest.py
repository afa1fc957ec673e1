"""All-reduce over a packing of spanning trees, pipelined in chunks.

Reduce-scatter followed by all-gather cannot use both directions of every link all the time: the
corner of a mesh needs its egress for one half and its ingress for the other. A chunk that is reduced
up a tree and broadcast down the same tree does; the trees and their shares are ``synth.packing``'s.
Chunks enter in the proportion of the shares. Which of two ready sends goes first, the reduction of a
later chunk or the broadcast of an earlier one, decides how fast the pipeline fills and drains: a few
leads of reductions, in chunks, are tried, and the fastest by simulation is kept.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from probes.columns import Indices
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.ordering import Sends
from synth.packing import Edges, Packing, pack, pair_links
from synth.schedule import COPY, REDUCE, Schedule
from synth.simulate import replay

__all__ = ["synthesize"]

_LEADS = (96, 48, 192, 0)
_SENDS_FOR_ALL_LEADS = 300_000


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """The pipelined trees, for all_reduce on networks whose links lead both ways.

    Raises NotApplicableError elsewhere. O(leads · sends · log sends) after the packing, which is made
    once for a network.
    """
    if collective.kind != "all_reduce":
        raise NotApplicableError(f"forest does not serve {collective.kind}")
    packing = _packing(network, seed)
    tree_of = _interleaved(packing, collective.chunks)
    sends = 2 * (network.ranks - 1) * collective.chunks
    leads = _LEADS if sends <= _SENDS_FOR_ALL_LEADS else _LEADS[:1]
    tried = [_over_trees(packing, tree_of, collective, chunk_bytes, seed, lead) for lead in leads]
    return min(tried, key=lambda schedule: replay(schedule).time_s)


@lru_cache(maxsize=2)
def _packing(network: Network, seed: int) -> Packing:
    from synth.bounds import bounds

    # Per byte the bound is that of a buffer so large that no alpha counts.
    shape = Collective("all_reduce", network.ranks, 1)
    size_bytes = 1 << 40
    least_s = bounds(network, shape, size_bytes, fluid=True)[0].time_s - float(network.alpha_s.max())
    return pack(pair_links(network), enough_s_per_byte=least_s / size_bytes, seed=seed)


def _interleaved(packing: Packing, chunks: int) -> Indices:
    """For each chunk its tree: as many as its share, spread evenly over the sequence."""
    exact = packing.share * chunks
    count = np.floor(exact).astype(int)
    count[np.argsort(count - exact, kind="stable")[: chunks - count.sum()]] += 1
    tree = np.repeat(np.arange(len(count)), count)
    number = np.arange(chunks) - np.repeat(np.cumsum(count) - count, count)
    return tree[np.argsort((number + 0.5) / count[tree], kind="stable")]


def _over_trees(
    packing: Packing, tree_of: Indices, collective: Collective, chunk_bytes: int, seed: int, lead: int
) -> Schedule:
    sends = Sends()
    ranks = collective.ranks
    for tree in np.unique(tree_of):
        up, down, depth = _hung(packing.edges, packing.trees[tree])
        height = int(depth.max())
        chunk = np.flatnonzero(tree_of == tree)[:, None]
        # By chunk, then by level; `lead` moves broadcasts among the reductions of other chunks.
        rising = chunk * 2 * ranks + height - depth
        falling = chunk * 2 * ranks + height + depth
        sends.add(chunk, up, REDUCE, rising)
        sends.add(chunk, down, COPY, falling, falling + lead * 2 * ranks)
    return sends.schedule(packing.edges.network, collective, chunk_bytes, "forest", seed)


def _hung(edges: Edges, tree: Indices) -> tuple[Indices, Indices, Indices]:
    """(link to the parent, link from it, depth) of each rank but the root, hung from the tree's centre."""
    network = edges.network
    near: list[list[tuple[int, int]]] = [[] for _ in range(network.ranks)]
    for edge in tree.tolist():
        a, b = int(edges.a[edge]), int(edges.b[edge])
        near[a].append((b, edge))
        near[b].append((a, edge))
    far = _walk(near, 0)[-1][0]
    longest = _walk(near, far)
    parent = {rank: above for rank, above, _, _ in longest}
    middle = longest[-1][0]
    for _ in range(longest[-1][3] // 2):
        middle = parent[middle]
    rows = _walk(near, middle)[1:]
    upwards = [edges.there[edge] if edges.a[edge] == rank else edges.back[edge] for rank, _, edge, _ in rows]
    downwards = [
        edges.back[edge] if edges.a[edge] == rank else edges.there[edge] for rank, _, edge, _ in rows
    ]
    return np.array(upwards), np.array(downwards), np.array([depth for _, _, _, depth in rows])


def _walk(near: list[list[tuple[int, int]]], root: int) -> list[tuple[int, int, int, int]]:
    """(rank, parent, edge, depth) of every rank, breadth first from ``root``."""
    rows = [(root, -1, -1, 0)]
    for rank, above, _, depth in rows:
        rows += [(other, rank, edge, depth + 1) for other, edge in near[rank] if other != above]
    return rows
