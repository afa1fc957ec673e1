"""Blocks of near ranks, level by level: each level pairs the nearest blocks of the last."""

from __future__ import annotations

import math

import numpy as np

from probes.base import Floats, Ints, ints, offsets
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import distances_s, link_table

__all__ = ["Blocks", "nearest_blocks"]

Blocks = list[list[int]]
"""Blocks of ranks; each rank is in exactly one."""


def nearest_blocks(network: Network, chunk_bytes: int, used: list[Floats]) -> list[Blocks]:
    """Return levels of blocks, from single ranks to all; each level pairs the nearest blocks of the last.

    Blocks of different hosts are paired only when each host is one block. ``used[level]`` counts how often
    each link was taken at that level; each use makes the link longer by a chunk's hold time. This call adds
    the links of its own levels to ``used``. Raises NotApplicableError if links do not join the ranks.
    """
    travel_s, hold_s = network.travel_s(chunk_bytes), network.hold_s(chunk_bytes)
    table = link_table(network, chunk_bytes)
    plain_s: Floats | None = None
    levels: list[Blocks] = [[[rank] for rank in range(network.ranks)]]
    while len(levels[-1]) > 1:
        at = len(levels) - 1
        if at == len(used):
            used.append(np.zeros(network.links))
        if plain_s is None or used[at].any():
            distance_s = distances_s(network, travel_s + used[at] * hold_s, np.arange(network.ranks))
            plain_s = distance_s if not used[at].any() else plain_s
        else:
            distance_s = plain_s
        levels.append(_paired(levels[-1], distance_s, table, used[at], _hosts_of(network, levels[-1])))
    return levels


def _hosts_of(network: Network, blocks: Blocks) -> Ints:
    """Return the host of each block; 0 for all if each host is one block, or with one host."""
    number = {host: at for at, host in enumerate(dict.fromkeys(network.hosts))}
    hosts = ints([number[network.hosts[block[0]]] for block in blocks])
    return hosts if len(blocks) > len(number) > 1 else ints(np.zeros(len(blocks)))


def _paired(blocks: Blocks, distance_s: Floats, table: Ints, used: Floats, hosts: Ints) -> Blocks:
    order, start = np.concatenate([np.asarray(block) for block in blocks]), offsets(list(map(len, blocks)))
    nearest = np.minimum.reduceat(distance_s[order], start[:-1], axis=0)[:, order]
    farthest = np.maximum.reduceat(nearest, start[:-1], axis=1)
    cost = np.maximum(farthest, farthest.T)
    if not np.isfinite(cost).all():
        raise NotApplicableError("exchange needs a path from every rank to every other")
    # Round the lengths: sums of equal link times, added up in another order, differ in the last bits.
    one, other = np.triu_indices(len(blocks), 1)
    long = cost[one, other]
    rough = np.round(long / max(float(long.min()), math.ulp(1.0)), 6)
    free = np.ones(len(blocks), bool)
    found: dict[int, list[int]] = {}
    for at in np.lexsort((other, one, rough)).tolist():
        first, second = int(one[at]), int(other[at])
        if free[first] and free[second] and hosts[first] == hosts[second]:
            free[[first, second]] = False
            found[first] = blocks[first] + blocks[second]
            for source, target in ((first, second), (second, first)):
                among = distance_s[np.ix_(blocks[source], blocks[target])].argmin(axis=0)
                links = table[np.asarray(blocks[source])[among], blocks[target]]
                used[links[links >= 0]] += 1
    found |= {at: blocks[at] for at in np.flatnonzero(free).tolist()}
    return [found[at] for at in sorted(found)]
