"""Rerouting of packed chunks: each moves to a cheaper tree, at the prices that all other chunks cause.

Packing chooses among the plans that schedules have. Where these crowd some links, other trees do better. So
each chunk in turn is taken away, and takes the cheapest of a few trees (`synth.scheduling.priced_trees`) if
that costs less than its plan. This is negotiated congestion, as in PathFinder (McMurchie and Ebeling, FPGA
1995). A chunk of an all_reduce is summed up at a root by a tree inward, and copied by a tree outward. The
roots, and the slots in which they have the sums, are drawn at random.
"""

from __future__ import annotations

import numpy as np

from probes.base import Floats, Indices, Mask, bytes_of, ints, offsets
from synth.collective import Collective, collective
from synth.kernels import compiled
from synth.network import Network
from synth.networks import distances_s
from synth.schedules import COPY, REDUCE, Schedule
from synth.scheduling.chunk_plans import plans_of
from synth.scheduling.packing import ChunkPacking, PackedChunks
from synth.scheduling.priced_trees import add_cheapest_tree
from synth.scheduling.slot_loads import SAME_S, Held, Load, TimedLinks, add, held_by, timed_links, unloaded

__all__ = ["rerouted"]

# Each chunk has _PASSES turns, and tries _TRIES roots in each; more of either gains nothing. The product of
# chunks, ranks² + links, and slots is at most _MOST_WORK: a second.
_TRIES, _PASSES, _MOST_WORK = 2, 3, 60_000_000


def rerouted(
    packing: ChunkPacking,
    packed: PackedChunks,
    shape: Collective,
    chunk_bytes: int,
    within_s: float,
    seed: int,
    chunk: Indices | None = None,
) -> tuple[ChunkPacking, PackedChunks]:
    """Return the packing with trees as further plans, and the chunks that take them.

    All ranks take part in the collective ``shape``. ``chunk`` has the number of each packed chunk, if they
    are not numbered in order. Chunks of an all_to_all need no trees and keep their plans.

    O(chunks · (ranks² + links) · slots) for each turn.
    """
    network, begin_s = packing.network, packed.begin_s
    chunk = np.arange(len(packed.plan)) if chunk is None else chunk
    work = len(packed.plan) * (network.ranks**2 + network.links) * (len(begin_s) - 1)
    inward, outward = shape.reduces, shape.kind not in ("reduce", "reduce_scatter")
    if inward and outward:
        root, ready = _drawn_roots(network, begin_s, within_s, len(packed.plan), seed)
    else:
        root = np.tile(shape.owner_of()[0][chunk].astype(np.int64), _PASSES)[:, None]
        # The root has the data at once, or needs the sum at the end.
        ready = np.full_like(root, len(begin_s) - 1 if inward else 0)
    if work > _MOST_WORK or not root.size or shape.kind == "all_to_all":
        return packing, packed
    links, held = timed_links(network, begin_s, within_s), held_by(network, chunk_bytes)
    load = unloaded(network, begin_s, held)
    chosen = [packing.plans[plan] for plan in packed.plan.tolist()]
    first = offsets([len(plan.link) for plan in chosen])
    link = np.concatenate([plan.link for plan in chosen])
    slot = np.searchsorted(begin_s, packed.start_s, side="right") - 1
    is_tree, link_of, slot_of = _reroute(
        links, held, load, packing.images, first, link, slot, root, ready, network.ranks, inward, outward
    )
    new = np.flatnonzero(is_tree)
    if not len(new):
        return packing, packed
    trees, starts = _trees(network, chunk_bytes, link_of[new], slot_of[new])
    plan = packed.plan.copy()
    plan[new] = len(packing.plans) + np.arange(len(new))
    wider = ChunkPacking(network, [*packing.plans, *plans_of(trees, chunk_bytes)], packing.images)
    of_chunk: list[Indices] = list(np.split(slot, first[1:-1]))
    for row, start in zip(new.tolist(), starts, strict=True):
        of_chunk[row] = start
    sends = np.array([len(start) for start in of_chunk])
    return wider, PackedChunks.in_slots(plan, np.concatenate(of_chunk), sends, load.cost, begin_s)


def _drawn_roots(
    network: Network, begin_s: Floats, within_s: float, chunks: int, seed: int
) -> tuple[Indices, Indices]:
    """Return roots to try in each turn [turn, try], and the slots in which they have all sums.

    There are none if the time is too short to reach any root from all ranks, and all ranks from it.
    """
    far_s = distances_s(network, network.alpha_s, np.arange(network.ranks))
    first = np.searchsorted(begin_s, far_s.max(axis=0) - SAME_S)
    last = np.searchsorted(begin_s, within_s - far_s.max(axis=1) + SAME_S, side="right") - 1
    near = np.flatnonzero(first <= last)
    draw, size = np.random.default_rng(seed), (_PASSES * chunks, _TRIES if len(near) else 0)
    root = near[draw.integers(max(1, len(near)), size=size)]
    return root, first[root] + (draw.random(size) * (last - first + 1)[root]).astype(np.int64)


def _trees(
    network: Network, chunk_bytes: int, link_of: Indices, slot_of: Indices
) -> tuple[Schedule, list[Indices]]:
    """Return a schedule of the trees, and the slots of the sends of each; tables are [chunk, way · ranks]."""
    chunks, ranks = len(link_of), network.ranks
    link_of = link_of[:, : 2 * ranks].reshape(chunks, 2, ranks)
    slot_of = slot_of[:, : 2 * ranks].reshape(chunks, 2, ranks)
    towards_root = np.stack((network.dst, network.src)).astype(np.int64)
    # The number of sends between each rank and the root.
    depth, rank = np.zeros(link_of.shape, np.int64), np.tile(np.arange(ranks), (chunks, 2, 1))
    way = np.arange(2)[None, :, None]
    while (left := (here := np.take_along_axis(link_of, rank, axis=2)) >= 0).any():
        depth += left
        rank = np.where(left, towards_root[way, here], rank)
    chunk, both, at = np.nonzero(link_of >= 0)
    link, slot = link_of[chunk, both, at], slot_of[chunk, both, at]
    deep = depth[chunk, both, at]
    order = np.lexsort((np.where(both == 0, -deep, deep), slot, both, chunk))
    made = Schedule(
        network,
        # Plans depend on sends alone, and an all_reduce has no roots.
        collective("all_reduce", ranks, chunks),
        chunk_bytes,
        "mixture",
        0,
        ints(chunk[order]),
        ints(link[order]),
        bytes_of(np.where(both[order] == 0, REDUCE, COPY)),
    )
    return made, np.split(slot[order], np.cumsum(np.bincount(chunk, minlength=chunks))[:-1])


@compiled
def _reroute(
    links: TimedLinks,
    held: Held,
    load: Load,
    images: Indices,
    first: Indices,
    link: Indices,
    slot: Indices,
    root: Indices,
    ready: Indices,
    ranks: int,
    inward: bool,
    outward: bool,
) -> tuple[Mask, Indices, Indices]:
    """Return whether each chunk takes a tree, and the links and slots of its sends [chunk, send].

    A tree has the sends of the ranks inward, then outward, each −1 if there is none. ``root`` and ``ready``
    are the roots to try in each turn [turn, try], and the slots in which they have the data or the sum.
    """
    chunks = len(first) - 1
    most = max(2 * ranks, int((first[1:] - first[:-1]).max()))
    link_of, slot_of = np.full((chunks, most), -1), np.zeros((chunks, most), np.int64)
    is_tree = np.zeros(chunks, np.bool_)
    for chunk in range(chunks):
        sends = first[chunk + 1] - first[chunk]
        link_of[chunk, :sends] = link[first[chunk] : first[chunk + 1]]
        slot_of[chunk, :sends] = slot[first[chunk] : first[chunk + 1]]
        _add_all(held, load, images[chunk % len(images)], link_of[chunk], slot_of[chunk], 1.0)
    tree, when = np.full(most, -1), np.zeros(most, np.int64)
    for turn in range(len(root)):
        chunk = turn % chunks
        image = images[chunk % len(images)]
        _add_all(held, load, image, link_of[chunk], slot_of[chunk], -1.0)
        # A tree costs what its sends cost when they are added, and so does the plan.
        least = _add_all(held, load, image, link_of[chunk], slot_of[chunk], 1.0)
        _add_all(held, load, image, link_of[chunk], slot_of[chunk], -1.0)
        for attempt in range(root.shape[1]):
            price = 0.0
            tree[:] = -1
            for way in range(2):
                if (inward if way == 0 else outward) and price < least:
                    rows = slice(way * ranks, (way + 1) * ranks)
                    price += add_cheapest_tree(
                        links,
                        held,
                        load,
                        image,
                        root[turn, attempt],
                        ready[turn, attempt],
                        way == 0,
                        least - price,
                        tree[rows],
                        when[rows],
                    )
            _add_all(held, load, image, tree, when, -1.0)
            if price < least:
                least, is_tree[chunk] = price, True
                link_of[chunk], slot_of[chunk] = tree, when
        _add_all(held, load, image, link_of[chunk], slot_of[chunk], 1.0)
    return is_tree, link_of, slot_of


@compiled
def _add_all(held: Held, load: Load, image: Indices, link: Indices, slot: Indices, times: float) -> float:
    """Add sends to the load, or take them away, and return their price before each."""
    price = 0.0
    for send in range(len(link)):
        if link[send] >= 0:
            price += load.cost[image[link[send]], slot[send]]
            add(image[link[send]], slot[send], held, load, times)
    return price
