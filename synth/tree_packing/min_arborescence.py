"""The minimum spanning arborescence (Edmonds 1967): least total cost from a root to every rank.

Chu and Liu's and Edmonds' algorithm: each rank takes its cheapest incoming link. A cycle is contracted into
one node. The cost of a link into the cycle is reduced by the cost of the cycle's own link into the same rank.
This repeats until there is no cycle; then the choices are unfolded.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Longs, Mask
from synth.kernels import compiled

__all__ = ["cheapest_arborescence"]


@compiled
def cheapest_arborescence(ranks: int, src: Indices, dst: Indices, cost: Floats, root: int) -> Indices:
    """Return for each rank the row of the link that enters it, -1 at the root; all -2 if there is no tree.

    O(ranks · links) at worst, O(links) for few contractions.
    """
    nodes = ranks
    tail, head, price = src.astype(np.int64), dst.astype(np.int64), cost.copy()
    # One entry for each level of contraction; the first entry only gives the compiler the types.
    heads: list[Longs] = [np.zeros(0, np.int64)]
    chosen_at: list[Longs] = [np.zeros(0, np.int64)]
    origin_at: list[Longs] = [np.zeros(0, np.int64)]
    in_cycle: list[Mask] = [np.zeros(0, np.bool_)]
    top = root
    while True:
        best = _best_in(nodes, tail, head, price, top)
        for node in range(nodes):
            if best[node] < 0 and node != top:
                return np.full(ranks, -2)
        label, count, looped = _contract(nodes, tail, best, top)
        heads.append(head)
        chosen_at.append(best)
        in_cycle.append(looped)
        if not looped.any():
            break
        kept = np.flatnonzero(label[tail] != label[head])
        spared = np.zeros(nodes)
        for node in range(nodes):
            if looped[node]:
                spared[node] = price[best[node]]
        price = (price - spared[head])[kept]
        tail, head = label[tail][kept], label[head][kept]
        origin_at.append(kept)
        top = label[top]
        nodes = count
    return _unfold(heads, chosen_at, origin_at, in_cycle)


@compiled
def _best_in(nodes: int, tail: Longs, head: Longs, price: Floats, root: int) -> Longs:
    best = np.full(nodes, -1)
    for row in range(len(tail)):
        node = head[row]
        if node != root and tail[row] != node and (best[node] < 0 or price[row] < price[best[node]]):
            best[node] = row
    return best


@compiled
def _contract(nodes: int, tail: Longs, best: Longs, root: int) -> tuple[Longs, int, Mask]:
    """Return (new number of each node, number of nodes, whether a node is on a cycle of best links)."""
    label = np.full(nodes, -1)
    seen = np.full(nodes, -1)
    looped = np.zeros(nodes, np.bool_)
    count = 0
    for start in range(nodes):
        node = start
        while node != root and seen[node] < 0 and label[node] < 0:
            seen[node] = start
            node = tail[best[node]]
        if node != root and seen[node] == start and label[node] < 0:
            member = node
            while label[member] < 0:
                label[member] = count
                looped[member] = True
                member = tail[best[member]]
            count += 1
    for node in range(nodes):
        if label[node] < 0:
            label[node] = count
            count += 1
    return label, count, looped


@compiled
def _unfold(
    heads: list[Longs], chosen_at: list[Longs], origin_at: list[Longs], in_cycle: list[Mask]
) -> Longs:
    chosen = chosen_at[-1]
    for level in range(len(chosen_at) - 2, 0, -1):
        before = np.full(len(chosen_at[level]), -1)
        for node in range(len(before)):
            if in_cycle[level][node]:
                before[node] = chosen_at[level][node]
        for row in chosen:
            if row >= 0:
                origin = origin_at[level][row]
                before[heads[level][origin]] = origin
        chosen = before
    return chosen
