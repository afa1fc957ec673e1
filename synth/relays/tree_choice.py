"""The choice of each chunk's tree in a phase: the tree that keeps the busiest link or port least busy.

The trees of a schedule are balanced for the data of all ranks. If only a few ranks have data, the trees may
overload some links: where each rank is the root of one tree, a late rank sends to the roots of all other
trees, and as a root also to all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probes.base import Floats, Indices
from synth.network import Network

__all__ = ["dealt", "loads"]

# The lots in which chunks are dealt to trees. A lot is below 2 % of the chunks, so loads become even; time
# grows with the number of lots.
_LOTS = 64


def loads(network: Network, chunk_bytes: int, links: Sequence[Indices]) -> Floats:
    """Return (trees, links + ports): seconds for which a chunk on the links ``links[t]`` occupies each."""
    return np.stack([network.busy_s(used, chunk_bytes) for used in links])


def dealt(held: Sequence[Floats], chunks: Sequence[int]) -> list[Indices]:
    """Return a tree for each of the ``chunks[n]`` chunks of each item n, which has its own choice of trees.

    ``held[n]`` is `loads` of the item's trees. Chunks are dealt greedily, in at most 64 lots an item, items
    in turn. Each lot takes the tree that keeps the busiest link or port least busy; among equal trees, the
    tree on which a chunk occupies links and ports least in total. O(64 · items · trees · links).
    """
    found: list[Indices] = [np.zeros(count, dtype=np.int64) for count in chunks]
    # Items with a single tree have no choice, but their load counts.
    busy_s = np.zeros(held[0].shape[1])
    for tree_loads, count in zip(held, chunks, strict=True):
        if len(tree_loads) == 1:
            busy_s += tree_loads[0] * count
    choosing = [item for item, tree_loads in enumerate(held) if len(tree_loads) > 1]
    total_s = [tree_loads.sum(axis=1) for tree_loads in held]
    edges = [np.arange(_LOTS + 1) * count // _LOTS for count in chunks]
    for lot in range(_LOTS):
        for item in choosing:
            first, end = edges[item][lot : lot + 2].tolist()
            if end > first:
                added_s = held[item] * (end - first)
                tree = int(np.lexsort((total_s[item], (busy_s + added_s).max(axis=1)))[0])
                found[item][first:end] = tree
                busy_s += added_s[tree]
    return found
