"""Periodic all_reduces on equal machines with failures, along trees that load all NICs evenly.

Failures break the symmetry only at the hosts that they hit, so each tree is built host by host. Inside a host
the tree spans the ranks that are left. Between hosts it is a binary tree. Hosts that the tree enters at the
busiest NICs, or that have fewer NICs left, become leaves. The rank at which a tree enters a host is the
host's *door*, another one in each tree. Half of the hosts of a binary tree have two children and the others
none. Hosts change these roles from tree to tree, which loads all NICs evenly (two-tree; Sanders, Speck and
Träff 2009). The network of the schedule lists only the links that the trees use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from probes.base import SILENT, Floats, Indices, Mask, Progress, plural
from synth.bounds import host_bounds
from synth.collective import Kind, collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import Failures, SymmetricNetwork
from synth.portfolio import (
    Attempt,
    Request,
    Synthesis,
    body_of,
    in_periods,
    peak_bytes,
    proven_with,
    timed_periodic,
)
from synth.portfolio.symmetry.symmetric import is_large
from synth.schedules import Bound, PeriodicSchedule, Schedule
from synth.scheduling import coloured
from synth.tree_packing import TwoWayTree

__all__ = ["all_reduce_with_failures", "around_failures", "bounds_with_failures", "serves_failures"]

# Numbers to try: how many trees of a period enter a host at each of its ranks.
_TREES_A_RANK = range(2, 9)
# The most sends in a period.
_MOST_SENDS = 400_000
# No more trees are tried once the busiest NIC has at most this many times the load of perfect balance.
_EVEN = 1.01
# Chunk sizes to try, until a smaller one is no faster.
_CHUNKS_BYTES = (1 << 16, 1 << 15, 1 << 14, 1 << 13)


def bounds_with_failures(network: SymmetricNetwork, failures: Failures, size_bytes: int) -> tuple[Bound, ...]:
    """Return lower bounds on an all_reduce of the ranks that have not failed, over any links."""
    return tuple(host_bounds(network, survivors_of(network, failures), size_bytes))


def serves_failures(network: SymmetricNetwork, kind: Kind) -> bool:
    """Return whether it is an all_reduce on hosts of several ranks, too large for plain schedules."""
    return kind == "all_reduce" and network.ranks_per_host > 1 and is_large(network, kind)


def around_failures(request: Request, network: SymmetricNetwork, progress: Progress = SILENT) -> Synthesis:
    """Return the all_reduce of the ranks left; ``network`` is the request's in symmetric form."""
    begun_s = time.perf_counter()
    progress.update(0, 1, "periodic")
    failures = request.without
    assert failures is not None and request.size_bytes is not None
    made = all_reduce_with_failures(network, failures, request.size_bytes, request.seed)
    assert made.outcome is not None
    attempt = Attempt("periodic", made.chunks, made.outcome.time_s, "", made.sends)
    hosts = len({rank // network.ranks_per_host for rank in failures.ranks})
    why = f"trees between hosts that load all NICs alike, with {plural(hosts, 'host')} that lack ranks"
    return Synthesis(made, (attempt,), time.perf_counter() - begun_s, 0.0, why, peak_bytes())


def survivors_of(network: SymmetricNetwork, failures: Failures) -> tuple[int, ...]:
    """Return the ranks that have not failed."""
    gone = set(failures.ranks)
    return tuple(rank for rank in range(network.ranks) if rank not in gone)


def all_reduce_with_failures(
    network: SymmetricNetwork, failures: Failures, size_bytes: int, seed: int = 0
) -> PeriodicSchedule:
    """Return a proven and bounded periodic all_reduce of ``size_bytes`` on the ranks that have not failed.

    Its network has only the links that are used. Raises NotApplicableError if fewer than two ranks are left,
    if links do not join the ranks of a host in both directions, or if a link between hosts that the trees
    need is missing.
    """
    members = survivors_of(network, failures)
    if len(members) < 2:
        raise NotApplicableError(f"{network.name}: fewer than two ranks are left")
    on, trees = _most_even_trees(network, failures, members)
    shape = collective("all_reduce", network.ranks, len(trees), members[0], members)
    best: PeriodicSchedule | None = None
    for chunk_bytes in _CHUNKS_BYTES:
        periods = max(1, -(-size_bytes // (chunk_bytes * len(trees))))
        chunk_bytes = -(-size_bytes // (periods * len(trees)))
        body = replace(body_of(on, trees, chunk_bytes, seed), collective=shape, method="periodic")
        found = _placed(body, periods)
        if best is not None and found.time_s >= best.time_s:
            break
        best = found
    assert best is not None
    return proven_with(best, bounds_with_failures(network, failures, size_bytes))


def _placed(body: Schedule, periods: int) -> PeriodicSchedule:
    """Return the body placed in periods, by edge colouring if the ports allow it, else `timed_periodic`."""
    placed = coloured(body)
    return timed_periodic(body, periods) if placed is None else in_periods(body, periods, *placed)


def _most_even_trees(
    network: SymmetricNetwork, failures: Failures, members: tuple[int, ...]
) -> tuple[Network, list[TwoWayTree]]:
    """Return (network of the used links, trees over all members) with the most even load found."""
    row_of = {
        ends: row for row, ends in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True))
    }
    gone = set(failures.links)
    size = network.ranks_per_host
    # All hosts have the same inner links: read them off the first host.
    on_host = network.part(*_inner_links(network))
    inner = set(zip((on_host.src % size).tolist(), (on_host.dst % size).tolist(), strict=True))

    def has_link(src: int, dst: int) -> bool:
        return (src % size, dst % size) in inner and (src, dst) not in gone

    def ports(src: int, dst: int) -> int:
        shift = network.shift_of(np.array([src]))
        far = network.moved(np.array([dst]), network.back(shift))
        row = row_of.get((int(src - shift[0]), int(far[0])), -1)
        return -1 if row < 0 else len(network.ports_of(row))

    hosts: dict[int, list[int]] = {}
    for rank in members:
        hosts.setdefault(rank // size, []).append(rank)
    best: tuple[float, dict[tuple[int, int], int], list[TwoWayTree]] | None = None
    for laps in _TREES_A_RANK:
        if best is not None and 2 * laps * size * len(members) > _MOST_SENDS:
            continue
        # Sends of each NIC if all send equally often.
        least = laps * size * 2 * (len(hosts) - 1) / len(members)
        load, used, trees = _trees(network, hosts, laps, int(np.ceil(least)), has_link, ports)
        uneven = float(load.max()) / least
        if best is None or uneven < best[0]:
            best = uneven, used, trees
        if uneven < _EVEN:
            break
    assert best is not None
    _, used, trees = best
    pairs = np.array(list(used), np.int64)
    shift = network.shift_of(pairs[:, 0])
    far = network.moved(pairs[:, 1], network.back(shift))
    keys = zip(network.cell_of(pairs[:, 0]).tolist(), far.tolist(), strict=True)
    rows = [row_of.get(key, -1) for key in keys]
    lost = [pair for pair, row in zip(used, rows, strict=True) if row < 0 or pair in gone]
    if lost:
        raise NotApplicableError(f"{network.name}: there is no link {lost[0][0]} → {lost[0][1]}")
    what = f"{len(failures.ranks)} ranks and {len(failures.links)} links"
    return replace(network.part(np.array(rows), shift), name=f"{network.name} without {what}"), trees


def _trees(
    network: SymmetricNetwork,
    hosts: dict[int, list[int]],
    laps: int,
    most: int,
    has_link: Callable[[int, int], bool],
    ports: Callable[[int, int], int],
) -> tuple[Floats, dict[tuple[int, int], int], list[TwoWayTree]]:
    """Return (sends of each rank to other hosts, row of each used link, trees): ``laps`` trees a rank.

    ``most`` is the limit of sends of a rank to other hosts; ``ports`` counts the ports of a link.
    """
    size = network.ranks_per_host
    load, lent = np.zeros(network.ranks), np.zeros(network.ranks, bool)
    used: dict[tuple[int, int], int] = {}
    trees = []
    for number in range(laps * size):
        lap, place = divmod(number, size)
        # Each later tree will load its own door once.
        planned = load + laps - 1 - lap + (np.arange(network.ranks) % size > place)
        doors = _doors(hosts, place, size, planned)
        children, over = _children(hosts, doors, place, size, planned, lent, most)
        lent[[door for door in doors.values() if door % size != place]] = True
        # The root sends nothing up, so the host that exceeds its share becomes the root.
        order = sorted(children, key=lambda host: (-over[host], -children[host]))
        across: list[tuple[int, int, int]] = []
        depth = {doors[order[0]]: 0}
        within = {order[0]: _inside(hosts[order[0]], doors[order[0]], 0, has_link)}
        depth |= {below: level for below, _, level in within[order[0]]}
        for below, above in _between([doors[host] for host in order], [children[host] for host in order]):
            below, above = _on_one_rail(below, above, hosts, size, ports)
            across.append((below, above, depth[above] + 1))
            within[below // size] = _inside(hosts[below // size], below, depth[above] + 1, has_link)
            depth |= {below: depth[above] + 1} | {rank: level for rank, _, level in within[below // size]}
            load[below] += 1
            load[above] += 1
        edges = across + [edge for host in hosts for edge in within[host]]
        up = [used.setdefault((below, above), len(used)) for below, above, _ in edges]
        down = [used.setdefault((above, below), len(used)) for below, above, _ in edges]
        depths = np.array([depth for *_, depth in edges])
        trees.append(TwoWayTree(np.array(up), depths, np.array(down), depths))
    return load, used, trees


def _inner_links(network: SymmetricNetwork) -> tuple[Indices, Indices]:
    """Return (link, shift) of all links inside the first host."""
    size = network.ranks_per_host
    shifts = network.shifts[network.shifts < size]
    within = np.flatnonzero(network.src // size == network.dst // size)
    return np.repeat(within, len(shifts)), np.tile(shifts, len(within))


def _doors(hosts: dict[int, list[int]], place: int, ranks_per_host: int, load: Floats) -> dict[int, int]:
    """Return the door of each host: the rank at ``place``, or the least loaded one if that has failed."""
    found = {}
    for host, ranks in hosts.items():
        wanted = host * ranks_per_host + place
        found[host] = wanted if wanted in ranks else min(ranks, key=lambda rank: (load[rank], rank))
    return found


def _children(
    hosts: dict[int, list[int]],
    doors: dict[int, int],
    place: int,
    size: int,
    load: Floats,
    lent: Mask,
    most_uses: int,
) -> tuple[dict[int, int], dict[int, bool]]:
    """Return (children of each host in a tree, whether its door then sends more than ``most_uses``).

    Hosts whose doors are least loaded get children first. In a host that lacks ranks, one use of each door is
    kept free, if possible, for a tree whose own door there has failed. ``lent`` marks the doors that such a
    tree has used.
    """
    most, spare = {}, dict.fromkeys(hosts, 0)
    for host, ranks in hosts.items():
        if len(ranks) < size and doors[host] % size == place and not lent[doors[host]]:
            spare[host] = 1
        most[host] = most_uses - int(load[doors[host]]) - 1
    wanted = len(hosts) - 1
    found = dict.fromkeys(sorted(hosts, key=lambda host: (load[doors[host]], host)), 0)
    for limit, kept in ((2, 1), (3, 1), (4, 1), (4, 0)):
        for host in found:
            more = max(0, min(wanted, limit - found[host], most[host] - kept * spare[host] - found[host]))
            found[host] += more
            wanted -= more
    found[next(iter(found))] += wanted
    return found, {host: found[host] > max(0, most[host]) for host in found}


def _on_one_rail(
    below: int, above: int, hosts: dict[int, list[int]], size: int, ports: Callable[[int, int], int]
) -> tuple[int, int]:
    """Return (rank below, rank above) of an edge between hosts that passes as few ports as possible.

    In a rail fabric doors at different places are on different rails. Then one of the hosts enters the rail
    of the other at a rank of its own.
    """
    if below % size == above % size:
        return below, above
    best, fewest = (below, above), ports(above, below)
    for pair in (
        (below, above // size * size + below % size),
        (below // size * size + above % size, above),
    ):
        if all(rank in hosts[rank // size] for rank in pair) and 0 <= ports(pair[1], pair[0]) < fewest:
            best, fewest = pair, ports(pair[1], pair[0])
    return best


def _between(doors: list[int], children: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (rank below, rank above) of each edge between the doors of a tree, from the root down.

    ``children[n]`` counts the children of ``doors[n]``.
    """
    below = 1
    for place, count in enumerate(children):
        for _ in range(count):
            yield doors[below], doors[place]
            below += 1


def _inside(
    ranks: list[int], door: int, depth: int, has_link: Callable[[int, int], bool]
) -> list[tuple[int, int, int]]:
    """Return (rank below, rank above, depth below) of the edges in a host, breadth-first from its door.

    Raises NotApplicableError if links do not join all ranks in both directions.
    """
    edges, rest, reached = [], [rank for rank in ranks if rank != door], [(door, depth)]
    for above, level in reached:
        for below in list(rest):
            if has_link(below, above) and has_link(above, below):
                rest.remove(below)
                reached.append((below, level + 1))
                edges.append((below, above, level + 1))
    if rest:
        raise NotApplicableError(f"no links both ways join rank {rest[0]} to the others inside its host")
    return edges
