"""Part of a network: some of its ranks, numbered anew, and which links it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probes.columns import Indices, Ints, ints
from synth.errors import NotApplicableError
from synth.failures import kept_links
from synth.network import Network

__all__ = ["hosts_of", "link_table", "links_between", "restricted"]


def restricted(network: Network, ranks: Indices | Sequence[int]) -> tuple[Network, Ints]:
    """(the network of ``ranks``, numbered in their order, and for each of its links the row here)."""
    chosen = np.asarray(ranks)
    number = np.full(network.ranks, -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero((number[network.src] >= 0) & (number[network.dst] >= 0))
    kept = kept_links(network, rows)
    hosts = tuple(network.hosts[rank] for rank in chosen.tolist())
    return replace(kept, hosts=hosts, src=ints(number[kept.src]), dst=ints(number[kept.dst])), ints(rows)


def link_table(network: Network, chunk_bytes: int) -> Ints:
    """(ranks, ranks): the row of the link that brings a chunk from one to the other first, or -1."""
    table = np.full((network.ranks, network.ranks), -1, dtype=np.int32)
    rows = np.argsort(-network.travel_s(chunk_bytes), kind="stable")
    table[network.src[rows], network.dst[rows]] = rows
    return table


def links_between(table: Ints, src: Indices, dst: Indices, method: str) -> Indices:
    """The links of many pairs at once; raises NotApplicableError naming a pair that has none."""
    found = table[src, dst]
    if (found < 0).any():
        at = np.unravel_index(int(np.argmax(found < 0)), found.shape)
        src, dst = np.broadcast_arrays(src, dst)
        raise NotApplicableError(f"{method} needs a link from rank {src[at]} to rank {dst[at]}")
    return np.asarray(found)


def hosts_of(network: Network, method: str) -> Ints:
    """(hosts, ranks a host): the ranks of every host.

    Raises NotApplicableError unless there are two hosts or more, all with as many ranks, at least two.
    """
    names = list(dict.fromkeys(network.hosts))
    number = {name: at for at, name in enumerate(names)}
    host = np.array([number[name] for name in network.hosts])
    sizes = np.bincount(host)
    if len(names) < 2 or sizes.min() != sizes.max() or sizes.max() < 2:
        raise NotApplicableError(
            f"{method} needs two hosts or more with equally many ranks, at least two; {network.name} has "
            f"{len(names)} with {sizes.min()} to {sizes.max()}"
        )
    return ints(np.argsort(host, kind="stable").reshape(len(names), -1))
