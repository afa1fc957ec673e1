"""Lower bounds on collectives of all ranks of a symmetric network, computed from one link of each orbit.

The digits of a rank are those of its number, such as (GPU, host, pod); a translation adds to the digits
(`SymmetricNetwork`). A block is all ranks that agree in all digits from some digit on: a rank, a host, a pod.
Translations map blocks to blocks, so the rate into a block is computed once for each orbit:

- *ingress*, *egress*, *cut*: data that the ranks of a block need from outside enters over the block's links
  and ports (ForestColl, Sec. 4); data that is summed outside leaves over them.
- *partition*: in an all_reduce each byte crosses between k blocks at least 2(k - 1) times (Nash-Williams,
  Tutte; for blocks of one rank Patarasuk and Yuan).
- *distance*: an all_to_all occupies links for as long as the shortest paths between all pairs do.
- *latency*: the largest sum of alphas on the shortest path between two ranks.

Each link is limited either by its own rate or by one of its ports; both limits hold in any schedule. So the
bounds hold for all schedules, symmetric or not, in which only ranks reduce.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from probes.base import Floats, Indices, rate_text, size_text, spans
from synth.collective import Kind
from synth.networks import SymmetricNetwork
from synth.schedules import Bound

__all__ = ["host_bounds", "symmetric_bounds"]

# The most links among which shortest paths are computed.
_MOST_LINKS = 1 << 22


def symmetric_bounds(network: SymmetricNetwork, kind: Kind, size_bytes: int) -> list[Bound]:
    """Return the largest bound of each kind, the largest first; at least one.

    ``size_bytes`` is the size that nccl-tests reports: in an all_gather the bytes that a rank ends with, in
    an all_to_all the bytes that it sends in all. ``kind`` is a collective that symmetric schedules serve.
    O(link orbits · digits), and for shortest paths O(links · log ranks) for each orbit of ranks.
    """
    found: dict[str, Bound] = {}
    turned = network.transposed()
    alpha_s, part = float(network.alpha_s.min(initial=math.inf)), size_bytes / network.ranks
    for level in range(len(network.sizes)):
        block = math.prod(network.sizes[:level])
        blocks = network.ranks // block
        if blocks < 2 or (level and network.sizes[level - 1] == 1):
            continue
        into, out = _into_blocks(network, level), _into_blocks(turned, level)
        ways = {"all_gather": into, "reduce_scatter": out}.get(kind, np.minimum(into, out))
        needed = part * (network.ranks - block)
        if kind == "all_to_all":
            needed *= block
        elif kind == "all_reduce":
            needed = float(size_bytes)
        least = float(ways.min())
        what = "one rank" if block == 1 else f"{block} ranks of {network.ranks}"
        name = {"all_gather": "ingress", "reduce_scatter": "egress"}.get(kind, "cut") if block == 1 else "cut"
        detail = f"{size_text(needed)} into or out of {what} over {rate_text(least)}"
        _keep(found, Bound(name, alpha_s + _transfer_s(needed, least), detail))
        if kind == "all_reduce":
            each = blocks // len(into)
            total = each * min(float(into.sum()), float(out.sum()))
            crossing = 2 * (blocks - 1) * float(size_bytes)
            parts = f"{blocks} ranks" if block == 1 else f"{blocks} blocks of {block} ranks"
            detail = f"{size_text(crossing)} in all between {parts} over {rate_text(total)}"
            _keep(found, Bound("partition", alpha_s + _transfer_s(crossing, total), detail))
    for bound in _path_bounds(network, turned, kind, part):
        _keep(found, bound)
    return sorted(found.values(), key=lambda bound: -bound.time_s)


def host_bounds(network: SymmetricNetwork, members: Sequence[int], size_bytes: int) -> list[Bound]:
    """Return bounds on an all_reduce of ``members``, the ranks left after failures, by rates into hosts.

    Data enters a host through the ports at which links between hosts end. Return [] unless each rank has
    exactly one port at which all its links from other hosts end; ranks may share a port.
    """
    size = network.ranks_per_host
    rows = np.flatnonzero(network.src // size != network.dst // size)
    entry, row = _ports_there(network, rows, size)
    dst = network.dst[rows[row]]
    orbit = network.link_port[entry].astype(np.int64)
    at = network.moved(network.link_port_at[entry], network.back(network.shift_of(dst)))
    cell = np.searchsorted(network.cells, network.cell_of(dst))
    known, port_of, users = np.unique(
        np.stack([cell, orbit, at], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    ends = np.searchsorted(network.cells, network.cell_of(network.dst[rows]))
    shared = users == np.bincount(ends, minlength=len(network.cells))[known[:, 0]]
    known, chosen = known[shared], shared[port_of]
    orbit, row = orbit[chosen], row[chosen]
    if not np.array_equal(known[:, 0], np.arange(len(network.cells))):
        return []
    rate = np.zeros(len(network.ports))
    np.maximum.at(rate, orbit, 1.0 / network.beta_s_per_byte[rows[row]])
    ranks = np.asarray(members, np.int64)
    which = np.searchsorted(network.cells, network.cell_of(ranks))
    port = known[which, 1] * network.ranks + network.moved(known[which, 2], network.shift_of(ranks))
    ports, first = np.unique(port, return_index=True)
    hosts, host = np.unique(ranks[first] // size, return_inverse=True)
    into = np.bincount(host, weights=rate[ports // network.ranks])
    if len(hosts) < 2:
        return []
    alpha_s = float(network.alpha_s[rows].min())
    crossing, least = 2 * (len(hosts) - 1) * size_bytes, float(into.min())
    between = f"{size_text(crossing)} in all between {len(hosts)} hosts over {rate_text(float(into.sum()))}"
    narrowest = f"{size_text(size_bytes)} into the host with the fewest ports over {rate_text(least)}"
    return [
        Bound("partition", alpha_s + crossing / float(into.sum()), between),
        Bound("cut", alpha_s + size_bytes / least, narrowest),
    ]


def _keep(found: dict[str, Bound], bound: Bound) -> None:
    if bound.name not in found or bound.time_s > found[bound.name].time_s:
        found[bound.name] = bound


def _transfer_s(size_bytes: float, bytes_per_s: float) -> float:
    return size_bytes / bytes_per_s if bytes_per_s else math.inf


def _into_blocks(network: SymmetricNetwork, level: int) -> Floats:
    """Return the most bytes per second that can enter a block, for each orbit of blocks."""
    block = math.prod(network.sizes[:level])
    inner = math.prod(network.sizes[axis] for axis in network.axes if axis < level)
    src, dst = network.src.astype(np.int64), network.dst.astype(np.int64)
    rows = np.flatnonzero(src // block != dst // block)
    # ``inner`` translations map a block to itself, so ``inner`` links and ports of each orbit lead into it.
    orbit_of = network.cell_of(np.arange(0, network.ranks, block))
    orbits, of_block = np.unique(orbit_of, return_inverse=True)
    rate = 1.0 / network.beta_s_per_byte[rows]
    entry, row = _ports_there(network, rows, block)
    port = network.link_port[entry] + of_block[dst[rows[row]] // block] * len(network.ports)
    demanded, capacity = np.zeros((2, len(orbits) * len(network.ports)))
    np.add.at(demanded, port, rate[row])
    np.maximum.at(capacity, port, rate[row])
    # Each link is charged to the port that is most oversubscribed.
    over = np.divide(demanded, capacity, out=np.zeros_like(demanded), where=capacity > 0)
    order = np.lexsort((-over[port], row))
    first = np.unique(row[order], return_index=True)[1]
    charged, at = row[order][first], port[order][first]
    worth = over[at] > 1
    charged, at = charged[worth], at[worth]
    ports = np.zeros_like(demanded)
    np.add.at(ports, at, rate[charged])
    alone = np.ones(len(rows), bool)
    alone[charged] = False
    found = np.zeros(len(orbits))
    np.add.at(found, of_block[dst[rows[alone]] // block], rate[alone])
    if len(network.ports):
        found = found + np.minimum(ports, capacity).reshape(len(orbits), -1).sum(axis=1)
    return np.asarray(found * inner)


def _ports_there(network: SymmetricNetwork, rows: Indices, block: int) -> tuple[Indices, Indices]:
    """Return (entry of ``link_port``, index into ``rows``) of ports in the block where their link ends."""
    counts = np.diff(network.link_port_start)[rows]
    entry = spans(network.link_port_start[:-1][rows], counts)
    row = np.repeat(np.arange(len(rows)), counts)
    in_block = network.link_port_at[entry] // block == network.shift_of(network.dst[rows[row]]) // block
    return entry[in_block], row[in_block]


def _path_bounds(network: SymmetricNetwork, turned: SymmetricNetwork, kind: Kind, part: float) -> list[Bound]:
    """Return bounds by shortest paths; only the latency of one link if there are too many links to list."""
    alpha_s = float(network.alpha_s.min(initial=math.inf))
    if network.links > _MOST_LINKS:
        return [Bound("latency", alpha_s, "of one link")]
    on = turned if kind == "reduce_scatter" else network
    found = [Bound("latency", float(_distances_s(on, on.alpha_s).max()), "of the farthest rank")]
    if kind == "all_to_all" and not len(network.ports):
        src, dst = network.src.astype(np.int64), network.dst.astype(np.int64)
        ways = [(np.ones(len(src), bool), "over all links")]
        for axis, (size, stride) in enumerate(zip(network.sizes, network.strides, strict=True)):
            along = (src - dst) == (src // stride % size - dst // stride % size) * stride
            ways.append((along, f"over links along digit {axis}"))
        # Links that are not counted cost nothing.
        for counted, what in ways:
            if counted.any():
                busy_s = _distances_s(network, np.where(counted, network.beta_s_per_byte, 0.0)).sum() * part
                found.append(Bound("distance", alpha_s + float(busy_s) / int(counted.sum()), what))
    return found


def _distances_s(network: SymmetricNetwork, cost_s: Floats) -> Floats:
    """Return (cells, ranks): the least cost from a rank of each orbit to each rank."""
    link = np.repeat(np.arange(len(network.src)), network.translations)
    shift = np.tile(network.shifts, len(network.src))
    src, dst = network.moved(network.src[link], shift), network.moved(network.dst[link], shift)
    # Only the cheapest of parallel links is kept. The solver reads a cost of 0 as no link.
    order = np.lexsort((cost_s[link], dst, src))
    key = (src * network.ranks + dst)[order]
    order = order[np.diff(key, prepend=-1) != 0]
    least = max(float(cost_s.max(initial=0.0)) * 1e-15, 1e-300)
    cost = np.maximum(cost_s[link[order]], least)
    graph = csr_array((cost, (src[order], dst[order])), shape=(network.ranks, network.ranks))
    # Subtract at least what the raised costs added, so that the bounds stay valid: a path has fewer links
    # than there are ranks.
    return np.asarray(np.maximum(0.0, dijkstra(graph, indices=network.cells) - network.ranks * least))
