"""An all_to_all on a symmetric network, along shortest paths that load all orbits of links evenly.

Between two ranks many paths are equally short. Paths from one rank of each orbit are chosen one by one, each
with its last hop over the link with the least load so far; the paths of all other ranks are translates of
these. Then the hops are list-scheduled (Graham 1969): a free link takes the chunk with the longest path left.

Where ports are oversubscribed, such as a leaf's uplinks, shortest paths are not the best ones. So a second
set of paths is chosen by prices: the time over a link grows with the load that the first set puts on its
busiest port. In a rail fabric a chunk then goes over NVLink to a GPU of the destination's rail first (PXN).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, floats, offsets, spans
from synth.errors import NotApplicableError
from synth.kernels import compiled, pop, push
from synth.networks import SymmetricNetwork
from synth.scheduling.symmetric_spreading import RankDigits, all_free, far_end, rank_table, wake, wake_users

__all__ = ["all_to_all_sends"]

# With more links no shortest paths are computed, and each chunk takes a direct link.
_MOST_LINKS = 1 << 22
# Paths whose times differ by less than this share are equally short, because sums of floats round.
_SLACK = 1e-9
# Paths by prices are scheduled only if shortest paths keep the busiest port busy for more than this many
# times as long; less is within the rounding of shares.
_UNEVEN = 1.01


class _Links(NamedTuple):
    """One link e per orbit: its costs and resources ``held[held_start[e]:held_start[e + 1]]``.

    The links out of ranks of cell c are ``of_cell[of_cell_start[c]:of_cell_start[c + 1]]``.
    """

    hold_s: Floats
    travel_s: Floats
    held_start: Indices
    held: Indices
    of_cell_start: Indices
    of_cell: Indices


def all_to_all_sends(
    network: SymmetricNetwork, chunk_bytes: int, share: int
) -> Iterator[tuple[Indices, Indices, Indices]]:
    """Yield tables (chunk, link, shift) of the listed sends by start; each pair has ``share`` chunks.

    The first table uses shortest paths. A second one uses paths by prices, if these keep the busiest port
    less busy. Raises NotApplicableError if there is no path to some rank; on a network with too many links
    for shortest paths, if there is no direct link. O(hops · log hops), and for each orbit of ranks O(links ·
    log ranks).
    """
    links = _links_of(network, chunk_bytes)
    if network.links > _MOST_LINKS:
        yield _sends(network, links, _direct(network, links, share), share)
        return
    hops = _shortest(network, links, links.travel_s, share)
    yield _sends(network, links, hops, share)
    load_s = _loads_s(network, links, hops[1])
    if not len(network.ports):
        return
    price = 1.0 + _busiest_s(links, load_s) / load_s.max()
    priced = _shortest(network, links, links.travel_s * price, share)
    if load_s.max() > _UNEVEN * _loads_s(network, links, priced[1]).max():
        yield _sends(network, links, priced, share)


def _shortest(
    network: SymmetricNetwork, links: _Links, cost_s: Floats, share: int
) -> tuple[Indices, Indices, Indices]:
    """Return (start, link, source) of each chunk's hops on paths of the least sum of ``cost_s``."""
    back = network.transposed()
    return _ways(
        links._replace(travel_s=cost_s),
        rank_table(network),
        _links_of(back, 1),
        rank_table(back),
        network.cells,
        share,
        len(network.src) + len(network.ports),
    )


def _loads_s(network: SymmetricNetwork, links: _Links, link: Indices) -> Floats:
    """Return the seconds that the hops over ``link`` keep each resource busy."""
    counts = np.diff(links.held_start)[link]
    held = links.held[spans(links.held_start[:-1][link], counts)]
    weights = np.repeat(links.hold_s[link], counts)
    return floats(np.bincount(held, weights=weights, minlength=len(network.src) + len(network.ports)))


def _busiest_s(links: _Links, load_s: Floats) -> Floats:
    """Return the load of each link's busiest resource."""
    return floats(np.maximum.reduceat(load_s[links.held], links.held_start[:-1]))


def _sends(
    network: SymmetricNetwork, links: _Links, hops: tuple[Indices, Indices, Indices], share: int
) -> tuple[Indices, Indices, Indices]:
    """Return (chunk, link, shift) of the hops in the order of their starts."""
    start, link, source = hops
    cells = len(network.cells)
    missing = np.flatnonzero(np.diff(start) == 0)
    if len(missing) > cells * share:
        raise NotApplicableError(f"{network.name}: chunks find no path to some rank")
    order = _in_turn(links, start, link, len(network.src) + len(network.ports))
    chunk = np.repeat(np.arange(cells * network.ranks * share), np.diff(start))[order]
    return chunk, link[order], network.shift_of(source[order])


def _links_of(network: SymmetricNetwork, chunk_bytes: int) -> _Links:
    rows = len(network.src)
    counts = np.diff(network.link_port_start)
    # A link whose ports carry one send at a time needs no resource of its own.
    held = np.where(counts > 0, counts, 1)
    start = offsets(held)
    resource = np.empty(start[-1], np.int64)
    with_ports = np.repeat(counts > 0, held)
    resource[with_ports] = rows + network.link_port
    resource[~with_ports] = np.flatnonzero(counts == 0)
    cell = np.searchsorted(network.cells, network.src)
    return _Links(
        network.hold_s(chunk_bytes),
        network.travel_s(chunk_bytes),
        start,
        resource,
        offsets(np.bincount(cell, minlength=len(network.cells))),
        np.argsort(cell, kind="stable"),
    )


def _direct(network: SymmetricNetwork, links: _Links, share: int) -> tuple[Indices, Indices, Indices]:
    """Return (start, link, source) of each chunk's hops: one hop over the fastest direct link."""
    count, cells = network.ranks, len(network.cells)
    over = np.full(cells * count, -1)
    slowest_first = np.argsort(-links.travel_s, kind="stable")
    cell = np.searchsorted(network.cells, network.src[slowest_first])
    over[cell * count + network.dst[slowest_first]] = slowest_first
    found = np.repeat(over, share)
    start = offsets(found >= 0)
    source = np.repeat(network.cells, count * share)
    return start, found[found >= 0], source[found >= 0]


@compiled
def _ways(
    links: _Links,
    ranks: RankDigits,
    back: _Links,
    behind: RankDigits,
    roots: Indices,
    share: int,
    resources: int,
) -> tuple[Indices, Indices, Indices]:
    """Return (start, link, source) of each chunk's hops on shortest paths; none if there is no path."""
    count, cells = len(ranks.cell), len(roots)
    load_s = np.zeros(resources)
    start = np.zeros(cells * count * share + 1, np.int64)
    room = cells * count * share
    link_of, source_of = np.empty(room, np.int64), np.empty(room, np.int64)
    used = 0
    for cell in range(cells):
        far_s, settled, order = _distances(links, ranks, roots[cell])
        # For each lap and rank: the link of the last hop to it, and the rank before it.
        entered = np.full((share, count), -1, np.int64)
        origin = np.full((share, count), -1, np.int64)
        for place in range(1, settled):
            rank = order[place]
            for lap in range(share):
                least_s = np.inf
                at_cell = behind.cell[rank]
                for at in range(back.of_cell_start[at_cell], back.of_cell_start[at_cell + 1]):
                    link = back.of_cell[at]
                    before = far_end(behind, link, rank)
                    if not far_s[before] + links.travel_s[link] <= far_s[rank] * (1.0 + _SLACK):
                        continue
                    loaded_s = 0.0
                    for held in range(links.held_start[link], links.held_start[link + 1]):
                        loaded_s = max(loaded_s, load_s[links.held[held]])
                    if loaded_s < least_s:
                        least_s = loaded_s
                        entered[lap, rank], origin[lap, rank] = link, before
                here = rank
                while here != roots[cell]:
                    link = entered[lap, here]
                    for held in range(links.held_start[link], links.held_start[link + 1]):
                        load_s[links.held[held]] += links.hold_s[link]
                    here = origin[lap, here]
        for rank in range(count):
            for lap in range(share):
                chunk = (cell * count + rank) * share + lap
                hops = 0
                here = rank
                while here != roots[cell] and entered[lap, here] >= 0:
                    hops += 1
                    here = origin[lap, here]
                if used + hops > len(link_of):
                    link_of = np.concatenate((link_of, np.empty(len(link_of) + hops, np.int64)))
                    source_of = np.concatenate((source_of, np.empty(len(source_of) + hops, np.int64)))
                here = rank
                for place in range(used + hops - 1, used - 1, -1):
                    link_of[place], source_of[place] = entered[lap, here], origin[lap, here]
                    here = origin[lap, here]
                used += hops
                start[chunk + 1] = used
    return start, link_of[:used], source_of[:used]


@compiled
def _distances(links: _Links, ranks: RankDigits, root: int) -> tuple[Floats, int, Indices]:
    """Return (seconds to each rank, number reached, reached ranks by distance) from ``root`` (Dijkstra)."""
    count = len(ranks.cell)
    far_s, done = np.full(count, np.inf), np.zeros(count, np.bool_)
    order = np.empty(count, np.int64)
    most = count
    for cell in ranks.cell:
        most += links.of_cell_start[cell + 1] - links.of_cell_start[cell]
    heap_s, heap_what = np.empty(most + 1), np.empty(most + 1, np.int64)
    far_s[root] = 0.0
    size, settled = push(heap_s, heap_what, 0, 0.0, root), 0
    while size > 0:
        rank = heap_what[0]
        size = pop(heap_s, heap_what, size)
        if done[rank]:
            continue
        done[rank] = True
        order[settled] = rank
        settled += 1
        cell = ranks.cell[rank]
        for at in range(links.of_cell_start[cell], links.of_cell_start[cell + 1]):
            link = links.of_cell[at]
            after = far_end(ranks, link, rank)
            come_s = far_s[rank] + links.travel_s[link]
            if come_s < far_s[after]:
                far_s[after] = come_s
                size = push(heap_s, heap_what, size, come_s, after)
    return far_s, settled, order


def _in_turn(links: _Links, start: Indices, link: Indices, resources: int) -> Indices:
    """Return the hops in the order of their starts."""
    # Links with the same resources share a queue.
    number: dict[tuple[int, ...], int] = {}
    spans = zip(links.held_start[:-1].tolist(), links.held_start[1:].tolist(), strict=True)
    queue = np.array([number.setdefault(tuple(links.held[a:b].tolist()), len(number)) for a, b in spans])
    of_held: list[list[int]] = [[] for _ in range(resources)]
    for held, one in number.items():
        for resource in held:
            of_held[resource].append(one)
    user_start = offsets([len(users) for users in of_held])
    users = np.array([one for users in of_held for one in users], np.int64)
    # Seconds from the start of each hop to the end of its chunk's path.
    left_s = np.append(np.cumsum(links.travel_s[link][::-1])[::-1], 0.0)
    to_go_s = left_s[:-1] - left_s[np.repeat(start[1:], np.diff(start))]
    first = start[:-1][np.diff(start) > 0]
    last = np.zeros(len(link), bool)
    last[start[1:][np.diff(start) > 0] - 1] = True
    room = offsets(np.bincount(queue[link], minlength=len(number)))
    return _list_scheduled(links, link, queue, -to_go_s, first, last, room, user_start, users, resources)


@compiled
def _list_scheduled(
    links: _Links,
    link: Indices,
    queue: Indices,
    urgency: Floats,
    first: Indices,
    last: Indices,
    room: Indices,
    user_start: Indices,
    users: Indices,
    resources: int,
) -> Indices:
    """Return the hops by start; in each queue the hop with the least urgency value goes first.

    ``first`` lists the hops that wait for no other; ``last`` marks hops that no other waits for. Queue q
    stores its hops in the range ``room[q]:room[q + 1]``; resource r belongs to the queues
    ``users[user_start[r]:user_start[r + 1]]``.
    """
    count, queues = len(link), len(room) - 1
    busy_s = np.zeros(resources)
    ready_s, ready = np.empty(count), np.empty(count, np.int64)
    waiting = np.zeros(queues, np.int64)
    heap_s, heap_what = np.empty(2 * count + 2), np.empty(2 * count + 2, np.int64)
    order = np.empty(count, np.int64)
    waking, stamp = np.arange(queues), np.full(queues, -1, np.int64)
    size, sent, woken, instant, now_s = 0, 0, queues, 0, 0.0
    for hop in first:
        one = queue[link[hop]]
        begin, end = room[one], room[one + 1]
        waiting[one] = push(ready_s[begin:end], ready[begin:end], waiting[one], urgency[hop], hop)
    while True:
        for at in range(woken):
            one = waking[at]
            if not waiting[one]:
                continue
            begin, end = room[one], room[one + 1]
            hop = ready[begin]
            e = link[hop]
            if not all_free(busy_s, links.held, links.held_start[e], links.held_start[e + 1], now_s):
                continue
            waiting[one] = pop(ready_s[begin:end], ready[begin:end], waiting[one])
            order[sent] = hop
            sent += 1
            for place in range(links.held_start[e], links.held_start[e + 1]):
                busy_s[links.held[place]] = now_s + links.hold_s[e]
            size = push(heap_s, heap_what, size, now_s + links.hold_s[e], 2 * hop)
            size = push(heap_s, heap_what, size, now_s + links.travel_s[e], 2 * hop + 1)
        if size == 0:
            break
        now_s = heap_s[0]
        woken = 0
        instant += 1
        while size > 0 and heap_s[0] <= now_s:
            hop, arrives = heap_what[0] // 2, heap_what[0] % 2
            size = pop(heap_s, heap_what, size)
            if not arrives:
                e = link[hop]
                for place in range(links.held_start[e], links.held_start[e + 1]):
                    woken = wake_users(user_start, users, links.held[place], waking, stamp, instant, woken)
            elif not last[hop]:
                one = queue[link[hop + 1]]
                begin, end = room[one], room[one + 1]
                waiting[one] = push(
                    ready_s[begin:end], ready[begin:end], waiting[one], urgency[hop + 1], hop + 1
                )
                woken = wake(waking, stamp, one, instant, woken)
    return order[:sent]
