"""Strongly connected components, and whether a network can carry a collective.

A network can carry it if a path leads from the holders of each chunk to every rank that needs the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from probes.base import Indices, Ints, Mask, UsageError, cpu_list, some
from synth.collective import Collective
from synth.network import Network

__all__ = ["missing_way", "require_ways", "strong_components"]

# Most parts of a network that a message names, and most characters for the ranks of one part.
_MOST_PARTS = 6
_MOST_LETTERS = 60


def strong_components(network: Network, links: Indices | Mask) -> Indices:
    """Return for each rank the number of its strongly connected component over ``links``, from 0."""
    graph = _graph(network, links)
    return np.asarray(connected_components(graph, directed=True, connection="strong")[1])


def require_ways(network: Network, collective: Collective) -> None:
    """Raise UsageError, naming the parts of the network, if ``missing_way`` finds a missing path."""
    if lacking := missing_way(network, collective):
        raise UsageError(
            f"{network.name}: {collective.label} needs {lacking}",
            hint="Leave the ranks that are cut off out of the collective, or mend a link between the parts.",
        )


def missing_way(network: Network, collective: Collective) -> str:
    """Describe a path that a chunk needs and the network lacks, with the network's parts; "" for none.

    A sum needs a path from every rank that contributes, a copy from one of the holders of the chunk. So a
    network that is connected in one direction only still serves a broadcast from a rank that reaches all
    others. O(links) if every rank can reach every other, else O(links · parts).
    """
    everything = np.arange(network.links)
    part = strong_components(network, everything)
    if not part.any():
        return ""
    graph = _graph(network, everything)
    reached: dict[int, Mask] = {}

    def reach(rank: int) -> Mask:
        at = int(part[rank])
        if at not in reached:
            found = np.zeros(network.ranks, dtype=bool)
            found[breadth_first_order(graph, rank, return_predecessors=False)] = True
            reached[at] = found
        return reached[at]

    for sources, targets, summed in _needs(collective):
        apart = [[rank] for rank in sources.tolist()] if summed else [sources.tolist()]
        for holders in apart:
            lost = targets[~np.logical_or.reduce([reach(rank) for rank in holders])[targets]]
            if len(lost):
                path = f"a path from rank {holders[0]} to rank {lost[0]}"
                return f"{path}, and there is none: {_in_parts(collective, part)}"
    return ""


def _graph(network: Network, links: Indices | Mask) -> csr_array:
    ends = network.src[links], network.dst[links]
    return coo_array((np.ones(len(ends[0])), ends), shape=(network.ranks,) * 2).tocsr()


def _needs(collective: Collective) -> Iterator[tuple[Ints, Ints, bool]]:
    """Yield (holders, targets, whether they are summed) of chunks, each distinct combination once."""
    sources, targets = collective.sources, collective.targets
    kinds = np.stack((sources.group, targets.group, collective.reduced), axis=1)
    chunks = np.unique(kinds, axis=0, return_index=True)[1]
    for chunk in chunks.tolist():
        if len(sources.of(chunk)):
            yield sources.of(chunk), targets.of(chunk), bool(collective.reduced[chunk])


def _in_parts(collective: Collective, part: Indices) -> str:
    there = np.sort(np.concatenate((collective.sources.rank, collective.targets.rank)))
    numbers = list(dict.fromkeys(part[there].tolist()))
    named = some([_ranks_in_words(np.flatnonzero(part == number)) for number in numbers], _MOST_PARTS, "; ")
    return f"the network is in {len(numbers)} parts that are not joined both ways: {named}"


def _ranks_in_words(ranks: Indices) -> str:
    text = cpu_list(ranks.tolist())
    if len(text) <= _MOST_LETTERS:
        return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
    return f"ranks {text[:_MOST_LETTERS].rpartition(',')[0]},… ({len(ranks)} of them)"
