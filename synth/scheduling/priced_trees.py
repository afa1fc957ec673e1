"""The cheapest tree for a broadcast or a reduction, over links whose prices change with time.

Every link has a price in each slot (`synth.scheduling.slot_loads`). A tree outward carries data from a root
to all ranks. In a tree inward each rank sends its sum once the sums of its children have arrived. The price
of a rank is that of the cheapest path between it and the tree in the time-expanded network (Ford and
Fulkerson 1958). Cheap ranks join first, as in Prim's algorithm.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Mask
from synth.kernels import compiled
from synth.scheduling.slot_loads import Held, Load, TimedLinks, add

__all__ = ["add_cheapest_tree"]

# Instead of a link: the rank waits for the next slot, or has joined the tree.
_WAITS, _JOINED = -1, -2
# Prices rise as ranks join. A path is sought anew if it costs more than this factor of its price when found.
_DEARER = 1.2


@compiled
def add_cheapest_tree(
    links: TimedLinks,
    held: Held,
    load: Load,
    image: Indices,
    root: int,
    ready: int,
    inward: bool,
    below: float,
    link_of: Indices,
    slot_of: Indices,
) -> float:
    """Add a tree to the load, and return its price; fill in the link and slot of each rank.

    Link l is ``image[l]`` in the load. The root has the data, or the sums of all others, in the slot
    ``ready``; its link is −1. The price is infinite if the time is too short, or if the price is not
    ``below``; then the tree is incomplete, and its sends are in the load, too.

    O(ranks · (ranks + links) · slots), mostly O((ranks² + links) · slots).
    """
    ranks, slots = len(link_of), load.cost.shape[1]
    price, changed = np.empty((ranks, slots + 1)), np.zeros((ranks, slots + 1), np.bool_)
    via, since = np.empty((ranks, slots + 1), np.int64), np.zeros((ranks, slots + 1), np.int64)
    joined, when = np.zeros(ranks, np.bool_), np.zeros(ranks, np.int64)
    link_of[:] = -1
    joined[root], when[root] = True, ready
    end, left, total, anew = 0 if inward else slots, ranks - 1, 0.0, True
    while left > 0:
        if anew:
            price[:], via[:] = np.inf, _WAITS
        for rank in range(ranks):
            if joined[rank] and price[rank, when[rank]] > 0.0:
                price[rank, when[rank]], via[rank, when[rank]] = 0.0, _JOINED
                changed[rank, when[rank]] = True
        _search(links, load.cost, image, inward, price, via, since, changed)
        best = -1
        for rank in range(ranks):
            if not joined[rank] and (best < 0 or price[rank, end] < price[best, end]):
                best = rank
        if price[best, end] == np.inf:
            return np.inf
        walk = links, held, load, image, inward, best, via, since, joined, when, link_of, slot_of
        if not anew and _walk(*walk, False) > _DEARER * price[best, end]:
            anew = True
            continue
        anew = False
        total += _walk(*walk, True)
        if total >= below:
            return np.inf
        left = 0
        for rank in range(ranks):
            left += not joined[rank]
    return total


@compiled
def _walk(
    links: TimedLinks,
    held: Held,
    load: Load,
    image: Indices,
    inward: bool,
    rank: int,
    via: Indices,
    since: Indices,
    joined: Mask,
    when: Indices,
    link_of: Indices,
    slot_of: Indices,
    joins: bool,
) -> float:
    """Return the price of the path between a rank and the tree; if ``joins``, its ranks join the tree.

    A rank that has the data too late, or has sent its sum too early, changes its link.
    """
    node, slot, total = rank, 0 if inward else via.shape[1] - 1, 0.0
    while not (joined[node] and (when[node] >= slot if inward else when[node] <= slot)):
        while via[node, slot] == _WAITS:
            slot += 1 if inward else -1
        link, start = via[node, slot], since[node, slot]
        if link == _JOINED:
            break
        total += load.cost[image[link], start]
        if joins:
            if link_of[node] >= 0:
                add(image[link_of[node]], slot_of[node], held, load, -1.0)
            add(image[link], start, held, load, 1.0)
            link_of[node], slot_of[node], when[node], joined[node] = link, start, slot, True
        if inward:
            node, slot = links.dst[link], links.next[links.latency[link], slot]
        else:
            node, slot = links.src[link], start
    return total


@compiled
def _search(
    links: TimedLinks,
    cost: Floats,
    image: Indices,
    inward: bool,
    price: Floats,
    via: Indices,
    since: Indices,
    changed: Mask,
) -> None:
    """Find the least price for which each rank has the data by each slot, or sends its sum after it.

    Only what follows from the entries that have ``changed`` is sought; none are left changed.
    """
    ranks, slots = len(price), cost.shape[1]
    way, onward = (0, -1) if inward else (1, 1)
    for turn in range(slots + 1):
        slot = slots - turn if inward else turn
        again = True
        while again:
            again = False
            for rank in range(ranks):
                if not changed[rank, slot]:
                    continue
                changed[rank, slot] = False
                asked, then = price[rank, slot], slot + onward
                if 0 <= then <= slots and asked < price[rank, then]:
                    price[rank, then], via[rank, then], changed[rank, then] = asked, _WAITS, True
                for place in range(links.links_at_start[way, rank], links.links_at_start[way, rank + 1]):
                    link = links.links_at[way, place]
                    latency = links.latency[link]
                    if not inward:
                        if slot > links.last[latency]:
                            continue
                        other, then = links.dst[link], links.next[latency, slot]
                        asked = price[rank, slot] + cost[image[link], slot]
                        if asked < price[other, then]:
                            price[other, then], via[other, then], since[other, then] = asked, link, slot
                            changed[other, then] = True
                            again |= then == slot
                        continue
                    other, then = links.src[link], links.prior[latency, slot]
                    while then >= 0 and links.next[latency, then] == slot:
                        asked = price[rank, slot] + cost[image[link], then]
                        if asked < price[other, then]:
                            price[other, then], via[other, then], since[other, then] = asked, link, then
                            changed[other, then] = True
                            again |= then == slot
                        then -= 1
