"""Double binary trees: inner ranks of one are leaves of the other (Sanders, Speck, Träff).

Half of the chunks go through each tree, so every rank sends and receives each byte once up and once down, and
the latency is logarithmic. This is what NCCL calls Tree.
"""

from __future__ import annotations

import numpy as np

from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import link_table, links_between
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling import Sends
from synth.tree_packing import depths

__all__ = ["parents", "rooted", "synthesize"]


def synthesize(network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0) -> Schedule:
    """Return double binary trees over ranks in their order, for all_reduce, broadcast and reduce.

    Raises NotApplicableError for other collectives and if a tree edge has no link.
    """
    if collective.kind not in ("all_reduce", "broadcast", "reduce"):
        raise NotApplicableError(f"tree does not serve {collective.kind}")
    table = link_table(network, chunk_bytes)
    trees = [np.array(rooted(tree, collective)) for tree in parents(network.ranks)]
    sends = Sends()
    for number, parent in enumerate(trees):
        depth = depths(parent)
        rank = np.flatnonzero(parent >= 0)
        chunk = np.arange(number, collective.chunks, 2)[:, None]
        if not len(chunk):
            continue
        middle = chunk + depth.max()
        if collective.reduces:
            up = links_between(table, rank, parent[rank], "tree")
            sends.add(chunk, up, REDUCE, middle - depth[rank])
        if collective.kind != "reduce":
            down = links_between(table, parent[rank], rank, "tree")
            sends.add(chunk, down, COPY, middle + depth[rank])
    return sends.schedule(network, collective, chunk_bytes, "tree", seed)


def parents(ranks: int) -> tuple[list[int], list[int]]:
    """Return for each of the two trees the parent of every rank, -1 at its root.

    In the first tree a rank's height is the number of its trailing zero bits: odd ranks are leaves. The
    second is its mirror image (for an even number of ranks) or the same tree shifted by one rank (odd).
    """
    first = [-1]
    for rank in range(1, ranks):
        low = rank & -rank
        above = (rank ^ low) | (low << 1)
        first.append(above if above < ranks else rank ^ low)

    def renamed(rank: int) -> int:
        return ranks - 1 - rank if ranks % 2 == 0 else (rank + 1) % ranks

    second = [-1] * ranks
    for rank, above in enumerate(first):
        second[renamed(rank)] = renamed(above) if above >= 0 else -1
    return first, second


def rooted(parent: list[int], collective: Collective) -> list[int]:
    """Return the tree with the root of the collective, if that has one, by reversing the edges above."""
    if collective.kind == "all_reduce":
        return parent
    turned = list(parent)
    rank, below = collective.root, -1
    while rank >= 0:
        above = parent[rank]
        turned[rank] = below
        rank, below = above, rank
    return turned
