"""Integral packing of arborescences (Edmonds 1973): integer numbers of trees in integer capacities.

Every rank is the root of m trees, and every link carries at most its capacity of trees. Such trees exist if
and only if m units from every rank can flow to each rank at once (Edmonds; Tarjan; ForestColl Sec. 5). Trees
grow one by one, link by link. A tree may take a link if one unit from the root of each later tree can still
flow to the rank that the link enters. The flow to each rank is stored, and repaired when a link that it uses
is taken, so a step costs a few searches and no max-flow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Indices, Longs, Mask
from synth.kernels import argsorted, compiled
from synth.network import Network

__all__ = ["CapacityGraph", "flows_fit", "graph_of", "whole_trees"]


class CapacityGraph(NamedTuple):
    """The links of a network, with the links out of and into each rank as in ``Network.out_links``."""

    src: Indices
    dst: Indices
    out_start: Indices
    out_links: Indices
    in_start: Indices
    in_links: Indices


class _Search(NamedTuple):
    """Buffers of a search: the link by which each rank was reached (-1: none), and the order of ranks."""

    came: Longs
    queue: Longs


def graph_of(network: Network) -> CapacityGraph:
    """Return the links of a network for the loops of this module."""
    return CapacityGraph(network.src, network.dst, *network.out_links, *network.in_links)


@compiled
def _path(
    graph: CapacityGraph, origin: int, goal: int, flow: Longs, capacity: Longs, search: _Search
) -> bool:
    """Grow the flow from ``origin`` to ``goal`` by one along a shortest path; return False without one."""
    came, queue, src, dst = search.came, search.queue, graph.src, graph.dst
    came[:] = -1
    queue[0] = origin
    came[origin] = -2
    first, last = 0, 1
    links = len(src)
    while first < last and came[goal] == -1:
        rank = queue[first]
        first += 1
        for at in range(graph.out_start[rank], graph.out_start[rank + 1]):
            link = graph.out_links[at]
            if flow[link] < capacity[link] and came[dst[link]] == -1:
                came[dst[link]] = link
                queue[last] = dst[link]
                last += 1
        for at in range(graph.in_start[rank], graph.in_start[rank + 1]):
            link = graph.in_links[at]
            if flow[link] > 0 and came[src[link]] == -1:
                came[src[link]] = links + link
                queue[last] = src[link]
                last += 1
    if came[goal] == -1:
        return False
    rank = goal
    while rank != origin:
        step = came[rank]
        if step < links:
            flow[step] += 1
            rank = src[step]
        else:
            flow[step - links] -= 1
            rank = dst[step - links]
    return True


@compiled
def flows_fit(graph: CapacityGraph, capacity: Longs, supply: Longs, flow: Longs) -> Mask:
    """Fill ``flow[v]`` so that the supply of each rank reaches v.

    Return a set of ranks that cannot receive it all; an empty set on success.
    """
    ranks = len(supply)
    search = _Search(np.empty(ranks, np.int64), np.empty(ranks, np.int64))
    for sink in range(ranks):
        for rank in range(ranks):
            for _ in range(supply[rank] if rank != sink else 0):
                if not _path(graph, rank, sink, flow[sink], capacity, search):
                    inside = np.zeros(ranks, np.bool_)
                    inside[search.came == -1] = True
                    return inside
    return np.zeros(ranks, np.bool_)


@compiled
def _withdraw(graph: CapacityGraph, root: int, sink: int, flow: Longs) -> None:
    """Reduce the flow from ``root`` to ``sink`` by one unit."""
    rank = root
    while rank != sink:
        for at in range(graph.out_start[rank], graph.out_start[rank + 1]):
            link = graph.out_links[at]
            if flow[link] > 0:
                flow[link] -= 1
                rank = graph.dst[link]
                break


@compiled
def whole_trees(
    graph: CapacityGraph, roots: Longs, capacity: Longs, flow: Longs, seed: int
) -> tuple[Longs, Longs]:
    """Return (links of each tree in the order they joined, heights), one tree for each of ``roots``.

    ``flow[v]`` brings one unit from every root to v within ``capacity``; both are used up. Low trees are
    preferred: links join level by level, those with most capacity left first. O(trees · ranks · links) at
    worst, mostly a few searches a link.
    """
    np.random.seed(seed)
    ranks = len(graph.out_start) - 1
    search = _Search(np.empty(ranks, np.int64), np.empty(ranks, np.int64))
    table, height = np.full((len(roots), ranks - 1), -1), np.zeros(len(roots), np.int64)
    member = np.empty(ranks, np.int64)
    for number in range(len(roots)):
        root = roots[number]
        for sink in range(ranks):
            if sink != root:
                _withdraw(graph, root, sink, flow[sink])
        depth = np.full(ranks, -1)
        depth[root] = 0
        member[0] = root
        begin, size = 0, 1
        while begin < size < ranks:
            end = size
            for link in _leaving_links(graph, member[begin:end], capacity):
                rank = graph.dst[link]
                if depth[rank] >= 0 or capacity[link] <= 0:
                    continue
                if _may_take(graph, link, flow[rank], capacity, search):
                    depth[rank] = depth[graph.src[link]] + 1
                    table[number, size - 1] = link
                    member[size] = rank
                    size += 1
            begin = end
        height[number] = depth.max()
    return table, height


@compiled
def _leaving_links(graph: CapacityGraph, level: Longs, capacity: Longs) -> Longs:
    """Return the links that leave ``level``, most capacity left first; ties break at random."""
    count = 0
    for rank in level:
        count += graph.out_start[rank + 1] - graph.out_start[rank]
    offered, left = np.empty(count, np.int64), np.empty(count)
    count = 0
    for rank in level:
        for at in range(graph.out_start[rank], graph.out_start[rank + 1]):
            offered[count] = graph.out_links[at]
            left[count] = np.random.random() - capacity[graph.out_links[at]]
            count += 1
    return offered[argsorted(left)]


@compiled
def _may_take(graph: CapacityGraph, link: int, flow: Longs, capacity: Longs, search: _Search) -> bool:
    """Take one unit of ``link``'s capacity if the flow to its target allows; return whether it does."""
    src, dst = graph.src, graph.dst
    for other in range(len(src)):
        while flow[other] > capacity[other]:
            flow[other] -= 1
            _path(graph, src[other], dst[other], flow, capacity, search)
    capacity[link] -= 1
    if flow[link] <= capacity[link]:
        return True
    flow[link] -= 1
    if _path(graph, src[link], dst[link], flow, capacity, search):
        return True
    flow[link] += 1
    capacity[link] += 1
    return False
