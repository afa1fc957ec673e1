"""Spreads a chunk of each orbit to all ranks of a symmetric network, greedily and event by event.

As greedy matching does (TACOS, Sec. IV; `link_chunk_matching`), but of an orbit of links only one: whenever
it and its ports are free, it takes the chunk that came first to a source of one of its links whose other end
still lacks it. A slow link prefers what the whole block of ranks that faster links join lacks. By translation
all other chunks spread the same way at the same time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from probes.columns import Bytes, Floats, Indices, Longs, Mask, offsets
from synth.kernels.compiled import compiled
from synth.kernels.event_queue import pop, push
from synth.networks.symmetric import SymmetricNetwork

__all__ = ["Ranks", "far_end", "rank_table", "spread"]

Table = NDArray[np.int64]


class _Classes(NamedTuple):
    """Links of one source and cost that hold the same resources: ``links[start[c]:start[c + 1]]``.

    A class holds ``held[held_start[c]:held_start[c + 1]]``; ``block`` is the number of the size of blocks
    that it prefers to enter first, 0 for single ranks.
    """

    cell: Indices
    start: Indices
    links: Indices
    held_start: Indices
    held: Indices
    hold_s: Floats
    travel_s: Floats
    block: Indices
    of_cell_start: Indices
    of_cell: Indices
    of_held_start: Indices
    of_held: Indices


class Ranks(NamedTuple):
    """Digits of ranks and of the far ends of links, and which digits translations add to."""

    digit: Table
    far: Table
    size: Indices
    stride: Indices
    moves: Mask
    cell: Indices


def spread(
    network: SymmetricNetwork, chunk_bytes: int, share: int, *, strict: bool
) -> tuple[Indices, Indices, Indices]:
    """(chunk, link, shift) of sends of ``share`` chunks from each rank in ``cells`` to all, as they start.

    ``strict``: slow links never enter a block that has the chunk. Fewer sends than chunks · (ranks - 1) show
    that links lead not everywhere. O(sends · classes of links at a rank).
    """
    classes, block_size = _classes(network, chunk_bytes)
    roots = np.repeat(network.cells, share)
    chunk, link, source = _spread(classes, rank_table(network), block_size, roots, len(network.src), strict)
    return chunk, link, network.shift_of(source)


def rank_table(network: SymmetricNetwork) -> Ranks:
    """What compiled loops need to translate links."""
    ranks = np.arange(network.ranks)
    strides = np.array(network.strides, np.int64)
    sizes = np.array(network.sizes, np.int64)
    return Ranks(
        ranks[:, None] // strides % sizes,
        network.dst.astype(np.int64)[:, None] // strides % sizes,
        sizes,
        strides,
        np.isin(np.arange(len(sizes)), network.axes),
        np.searchsorted(network.cells, network.cell_of(ranks)),
    )


def _classes(network: SymmetricNetwork, chunk_bytes: int) -> tuple[_Classes, Indices]:
    """The classes of links, and the sizes of blocks that matter, the first of them 1."""
    rows = len(network.src)
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    sizes, block = _blocks(network)
    cell = np.searchsorted(network.cells, network.src)
    number: dict[tuple[object, ...], int] = {}
    of = np.empty(rows, np.int64)
    held: list[list[int]] = []
    for row in range(rows):
        ports = network.ports_of(row).tolist()
        mine = [rows + port for port in ports] or [row]
        key = (int(cell[row]), *mine, int(block[row]), float(hold_s[row]), float(travel_s[row]))
        of[row] = number.setdefault(key, len(number))
        if of[row] == len(held):
            held.append(mine)
    links = np.argsort(of, kind="stable")
    start = offsets(np.bincount(of))
    first = links[start[:-1]]
    flat, resource = np.unique([one for mine in held for one in mine], return_inverse=True)
    held_start = offsets([len(mine) for mine in held])
    user = np.repeat(np.arange(len(held)), np.diff(held_start))
    by_cell, by_held = np.argsort(cell[first], kind="stable"), np.argsort(resource, kind="stable")
    return (
        _Classes(
            cell[first],
            start,
            links,
            held_start,
            resource,
            hold_s[first],
            travel_s[first],
            block[first],
            offsets(np.bincount(cell[first], minlength=len(network.cells))),
            by_cell,
            offsets(np.bincount(resource, minlength=len(flat))),
            user[by_held],
        ),
        sizes,
    )


def _blocks(network: SymmetricNetwork) -> tuple[Longs, Longs]:
    """(sizes of blocks, the first 1; for each link which of them): ranks that all faster links stay within.

    A link that stays within that block itself, or has no faster ones, counts single ranks.
    """
    prefix = np.array([math.prod(network.sizes[:axis]) for axis in range(len(network.sizes) + 1)], np.int64)
    src, dst = network.src.astype(np.int64), network.dst.astype(np.int64)
    within = (src[:, None] // prefix == dst[:, None] // prefix).argmax(axis=1)
    found = np.zeros(len(src), np.int64)
    betas = np.unique(network.beta_s_per_byte)
    for beta in betas[1:]:
        level = within[network.beta_s_per_byte < beta].max()
        mine = (network.beta_s_per_byte == beta) & (within > level)
        found[mine] = level
    levels = np.unique(np.append(found, 0))
    return prefix[levels], np.searchsorted(levels, found)


@compiled
def _spread(
    classes: _Classes, ranks: Ranks, block_size: Indices, roots: Indices, links: int, strict: bool
) -> tuple[Indices, Indices, Indices]:
    """(chunk, link, source) of each send, in the order in which they start."""
    count, chunks = len(ranks.cell), len(roots)
    cells, blocks = len(classes.of_cell_start) - 1, len(block_size)
    total = chunks * (count - 1)
    known = np.zeros((chunks, count), np.uint8)
    entered = np.zeros((blocks, chunks, count), np.uint8) if blocks > 1 else np.zeros((1, 1, 1), np.uint8)
    # What came to the ranks of a cell, in that order; each link looks at every entry once.
    room = chunks * (count // cells)
    came_chunk, came_rank = np.empty((cells, room), np.int32), np.empty((cells, room), np.int32)
    came = np.zeros(cells, np.int64)
    first, again = np.zeros(links, np.int64), np.zeros(links, np.int64)
    turn = np.zeros(len(classes.cell), np.int64)
    busy_s = np.zeros(len(classes.of_held_start) - 1)
    chunk_of, link_of = np.empty(total, np.int64), np.empty(total, np.int64)
    source_of, class_of = np.empty(total, np.int64), np.empty(total, np.int64)
    target_of = np.empty(total, np.int64)
    heap_s, heap_what = np.empty(2 * total + 2), np.empty(2 * total + 2, np.int64)
    size, sent, now_s = 0, 0, 0.0
    waking, woken, stamp = np.empty(len(classes.cell), np.int64), 0, np.full(len(classes.cell), -1, np.int64)
    tried = stamp.copy()
    for chunk in range(chunks):
        root = roots[chunk]
        _mark(known, entered, block_size, chunk, root)
        cell = ranks.cell[root]
        came_chunk[cell, came[cell]], came_rank[cell, came[cell]] = chunk, root
        came[cell] += 1
    for one in range(len(classes.cell)):
        waking[one] = one
    woken = len(classes.cell)
    instant = 0
    # What has just found a chunk mostly finds the next one, too; what has not looks through all that came.
    lucky = np.ones(len(classes.cell), np.bool_)
    while sent < total:
        for at in range(2 * woken):
            one = waking[at % woken]
            if lucky[one] != (at < woken) or tried[one] == instant:
                continue
            tried[one] = instant
            begin, end = classes.held_start[one], classes.held_start[one + 1]
            free = True
            for place in range(begin, end):
                free = free and busy_s[classes.held[place]] <= now_s
            if not free:
                continue
            found, chunk, source, target = _choice(
                classes,
                ranks,
                block_size,
                one,
                known,
                entered,
                came_chunk,
                came_rank,
                came,
                first,
                again,
                turn,
                strict,
            )
            lucky[one] = found >= 0
            if found < 0:
                continue
            _mark(known, entered, block_size, chunk, target)
            chunk_of[sent], link_of[sent], source_of[sent] = chunk, found, source
            class_of[sent], target_of[sent] = one, target
            for place in range(begin, end):
                busy_s[classes.held[place]] = now_s + classes.hold_s[one]
            size = push(heap_s, heap_what, size, now_s + classes.hold_s[one], 2 * sent)
            size = push(heap_s, heap_what, size, now_s + classes.travel_s[one], 2 * sent + 1)
            sent += 1
        if size == 0:
            break
        now_s = heap_s[0]
        woken = 0
        instant += 1
        while size > 0 and heap_s[0] <= now_s:
            send, arrives = heap_what[0] // 2, heap_what[0] % 2
            size = pop(heap_s, heap_what, size)
            if arrives:
                cell = ranks.cell[target_of[send]]
                came_chunk[cell, came[cell]], came_rank[cell, came[cell]] = chunk_of[send], target_of[send]
                came[cell] += 1
                for place in range(classes.of_cell_start[cell], classes.of_cell_start[cell + 1]):
                    one = classes.of_cell[place]
                    if stamp[one] != instant:
                        stamp[one], waking[woken] = instant, one
                        woken += 1
            else:
                one = class_of[send]
                for held in range(classes.held_start[one], classes.held_start[one + 1]):
                    resource = classes.held[held]
                    for place in range(classes.of_held_start[resource], classes.of_held_start[resource + 1]):
                        other = classes.of_held[place]
                        if stamp[other] != instant:
                            stamp[other], waking[woken] = instant, other
                            woken += 1
    return chunk_of[:sent], link_of[:sent], source_of[:sent]


@compiled
def _choice(
    classes: _Classes,
    ranks: Ranks,
    block_size: Indices,
    one: int,
    known: Bytes,
    entered: Bytes,
    came_chunk: Indices,
    came_rank: Indices,
    came: Indices,
    first: Indices,
    again: Indices,
    turn: Indices,
    strict: bool,
) -> tuple[int, int, int, int]:
    """(link, chunk, source, target) that a free class of links takes up; link -1 where there is none."""
    begin, end = classes.start[one], classes.start[one + 1]
    cell, block = classes.cell[one], classes.block[one]
    for lap in range(1 if block == 0 or strict else 2):
        seen = first if lap == 0 else again
        for step in range(end - begin):
            place = (turn[one] + step) % (end - begin)
            link = classes.links[begin + place]
            while seen[link] < came[cell]:
                chunk, source = came_chunk[cell, seen[link]], came_rank[cell, seen[link]]
                target = far_end(ranks, link, source)
                lacking = known[chunk, target] == 0
                if lap == 0 and block > 0:
                    lacking = lacking and entered[block, chunk, target // block_size[block]] == 0
                if lacking:
                    # The next link first, so that all get their turn.
                    turn[one] = place + 1
                    return link, chunk, source, target
                seen[link] += 1
    return -1, 0, 0, 0


@compiled
def far_end(ranks: Ranks, link: int, source: int) -> int:
    """Where a link of an orbit ends that starts at ``source``."""
    found = 0
    for axis in range(len(ranks.size)):
        digit = ranks.far[link, axis]
        if ranks.moves[axis]:
            digit += ranks.digit[source, axis]
            if digit >= ranks.size[axis]:
                digit -= ranks.size[axis]
        found += digit * ranks.stride[axis]
    return found


@compiled
def _mark(known: Bytes, entered: Bytes, block_size: Indices, chunk: int, rank: int) -> None:
    known[chunk, rank] = 1
    for block in range(1, len(block_size)):
        entered[block, chunk, rank // block_size[block]] = 1
