"""Part of a network: some of its ranks, renumbered, and the links among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probes.base import Indices, Ints, Mask, ints, offsets
from synth.collective import Collective, Custom
from synth.errors import NotApplicableError
from synth.network import Network, cheapest_of_parallel
from synth.networks.failures import kept_links
from synth.rank_sets import RankSets

__all__ = [
    "embedded",
    "host_places",
    "hosts_of",
    "link_table",
    "links_between",
    "named_back",
    "rank_list",
    "reachable",
    "renumbered",
    "restricted",
]


# A list names at most so many ranks.
_LISTED = 6


def restricted(network: Network, ranks: Indices | Sequence[int]) -> tuple[Network, Ints]:
    """Return (part of ``network`` among ``ranks``, renumbered in order; row of each kept link)."""
    chosen = np.asarray(ranks)
    number = np.full(network.ranks, -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero((number[network.src] >= 0) & (number[network.dst] >= 0))
    kept = kept_links(network, rows)
    hosts = tuple(network.hosts[rank] for rank in chosen.tolist())
    return replace(kept, hosts=hosts, src=ints(number[kept.src]), dst=ints(number[kept.dst])), ints(rows)


def link_table(network: Network, chunk_bytes: int) -> Ints:
    """Return (ranks, ranks): the row of the link on which a chunk arrives first, or -1."""
    table = np.full((network.ranks, network.ranks), -1, dtype=np.int32)
    rows = cheapest_of_parallel(network.ranks, network.src, network.dst, network.travel_s(chunk_bytes))
    table[network.src[rows], network.dst[rows]] = rows
    return table


def links_between(table: Ints, src: Indices, dst: Indices, method: str) -> Indices:
    """Return the links of many pairs; raise NotApplicableError naming a pair that has none."""
    found = table[src, dst]
    if (found < 0).any():
        at = np.unravel_index(int(np.argmax(found < 0)), found.shape)
        src, dst = np.broadcast_arrays(src, dst)
        raise NotApplicableError(f"{method} needs a link from rank {src[at]} to rank {dst[at]}")
    return np.asarray(found)


def hosts_of(network: Network, method: str) -> Ints:
    """Return (hosts, ranks a host): the ranks of every host.

    Raises NotApplicableError unless there are two hosts or more, all with the same number of ranks, at least
    two.
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


def host_places(members: Indices) -> tuple[Indices, Indices]:
    """Return (host, place in it) of each rank; row h of ``members`` holds the ranks of host h."""
    found = np.empty((2, members.size), dtype=np.int64)
    found[:, members.ravel()] = np.divmod(np.arange(members.size), members.shape[1])
    return found[0], found[1]


def reachable(network: Network, collective: Collective) -> Indices:
    """Return the ranks that take part and the ranks on paths between them, in rising order."""
    takes_part = np.zeros(network.ranks, dtype=bool)
    for sets in (collective.sources, collective.targets):
        takes_part[sets.rank[np.repeat(_used(sets), np.diff(sets.start))]] = True
    onward = _spread(takes_part, network.src, network.dst)
    back = _spread(takes_part, network.dst, network.src)
    return np.flatnonzero(takes_part | (onward & back))


def renumbered(collective: Collective, ranks: Indices) -> Collective:
    """Return the same collective on ``ranks`` (rising) only, renumbered from 0."""
    number = np.full(collective.ranks, -1, dtype=np.int32)
    number[ranks] = np.arange(len(ranks))
    if collective.custom is not None:
        return replace(collective, ranks=len(ranks), custom=_only_used(collective.custom, number))
    taking_part = number[collective.participants].tolist()
    members = () if len(taking_part) == len(ranks) else tuple(taking_part)
    return replace(collective, ranks=len(ranks), root=int(max(0, number[collective.root])), members=members)


def embedded(collective: Collective, ranks: int) -> Collective:
    """Return the same collective in a network of ``ranks`` ranks; the added ranks have no data."""
    if collective.ranks == ranks:
        return collective
    if collective.kind == "several":
        parts = tuple(embedded(part, ranks) for part in collective.parts)
        return replace(collective, ranks=ranks, parts=parts)
    members = () if collective.kind == "custom" else tuple(collective.participants.tolist())
    sets = collective.custom and replace(collective.custom, blocks=None)
    return replace(collective, ranks=ranks, members=members, custom=sets)


def _only_used(sets: Custom, number: Indices) -> Custom:
    """Return the sets without blocks and without unused groups, because these may name removed ranks."""
    used, place = np.unique(np.concatenate([sets.source, sets.target]), return_inverse=True)
    size = np.diff(sets.group_start)[used]
    kept = np.isin(np.repeat(np.arange(len(sets.group_start) - 1), np.diff(sets.group_start)), used)
    return replace(
        sets,
        source=ints(place[: len(sets.source)]),
        target=ints(place[len(sets.source) :]),
        group_start=ints(offsets(size)),
        group_rank=ints(number[sets.group_rank[kept]]),
        blocks=None,
    )


def rank_list(ranks: Indices) -> str:
    """Return rising ranks in a few words: ``3``, ``0–7``, ``1, 3, 5`` or the first six of them."""
    if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    few = ", ".join(map(str, ranks[:_LISTED]))
    return few + (f", … ({len(ranks)})" if len(ranks) > _LISTED else "")


def named_back(text: str, ranks: Indices) -> str:
    """Return the text with renumbered ranks, listed as by `rank_list`, under their own numbers."""

    def original(match: re.Match[str]) -> str:
        if first := match["first"]:
            return match["noun"] + rank_list(np.sort(ranks[int(first) : int(match["last"]) + 1]))
        numbers = [str(ranks[int(number)]) for number in re.findall(r"\d+", match["list"])]
        return match["noun"] + ", ".join(numbers if match["more"] else sorted(numbers, key=int))

    return re.sub(
        r"(?P<noun>\branks? )(?:(?P<first>\d+)–(?P<last>\d+)|(?P<list>\d+(?:, \d+)*)(?=(?P<more>, …)?))",
        original,
        text,
    )


def _used(sets: RankSets) -> Mask:
    used = np.zeros(len(sets.start) - 1, dtype=bool)
    used[sets.group] = True
    return used


def _spread(seeds: Mask, tail: Indices, head: Indices) -> Mask:
    """Return ``seeds`` and all ranks that can be reached from them over links."""
    reached = seeds.copy()
    while True:
        new = reached.copy()
        new[head[reached[tail]]] = True
        if (new == reached).all():
            return reached
        reached = new
