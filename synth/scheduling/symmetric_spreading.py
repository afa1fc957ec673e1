"""An all_gather on a symmetric network: one rank of each orbit spreads its chunks greedily.

This is TACOS's matching of chunks to links (Sec. IV; `link_chunk_matching`) with one link for each orbit of
links. When a link and its ports are free, it looks at the chunks that have arrived at the sources of its
translates, in the order of arrival. It sends the first one that the target of that translate still lacks. A
slow link first looks for chunks that are missing in the whole block around its target, where a block is a set
of ranks that faster links join. All other chunks spread in the same way at the same time, by translation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from probes.base import Bytes, Floats, Indices, Longs, Mask, offsets
from synth.kernels import compiled, pop, push
from synth.networks import SymmetricNetwork

__all__ = ["RankDigits", "all_free", "far_end", "rank_table", "spread", "wake", "wake_users"]


class _Classes(NamedTuple):
    """Classes of listed links with the same source, cost and ports.

    Class c has the links ``links[start[c]:start[c + 1]]`` out of the ranks of ``cell[c]``, and holds the
    resources ``held[held_start[c]:held_start[c + 1]]``. ``block[c]`` is the index of a block size: the class
    first looks for chunks that a block of this size lacks; 0 is single ranks. ``of_cell`` and ``of_held`` are
    the classes of each cell and of each resource.
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


class RankDigits(NamedTuple):
    """Coordinates (digits) of ranks and of listed links' targets; axes that translations move.

    ``cell`` is the number of the cell of each rank.
    """

    digit: Longs
    far: Longs
    size: Indices
    stride: Indices
    moves: Mask
    cell: Indices


class _Progress(NamedTuple):
    """The state of the search: where chunks are, and how far each link has looked through the arrivals.

    ``known[chunk, rank]`` and ``entered[block size, chunk, block]`` are 1 once a chunk is there or on its
    way. ``came_chunk[cell, n]`` and ``came_rank[cell, n]`` are the n-th of ``came[cell]`` arrivals at the
    ranks of a cell. ``first`` and ``again`` count the arrivals that each link has looked at, for blocks and
    for single ranks. ``turn[class]`` is the place of the link to try first.
    """

    known: Bytes
    entered: Bytes
    came_chunk: Indices
    came_rank: Indices
    came: Indices
    first: Indices
    again: Indices
    turn: Indices


def spread(
    network: SymmetricNetwork, chunk_bytes: int, share: int, *, strict: bool
) -> tuple[Indices, Indices, Indices]:
    """Return (chunk, link, shift) of each listed send of ``share`` chunks a rank, in the order of starts.

    If ``strict``, slow links never enter a block that has the chunk. There are fewer than chunks · (ranks -
    1) sends if links do not join all ranks. O(sends · classes of links at a rank).
    """
    classes, block_size = _classes(network, chunk_bytes)
    roots = np.repeat(network.cells, share)
    progress = _progress(network, len(roots), len(classes.cell), len(block_size))
    chunk, link, source = _spread(classes, rank_table(network), block_size, roots, progress, strict)
    return chunk, link, network.shift_of(source)


def rank_table(network: SymmetricNetwork) -> RankDigits:
    """Return the digits and cells with which compiled loops translate links."""
    ranks = np.arange(network.ranks)
    strides = np.array(network.strides, np.int64)
    sizes = np.array(network.sizes, np.int64)
    return RankDigits(
        ranks[:, None] // strides % sizes,
        network.dst.astype(np.int64)[:, None] // strides % sizes,
        sizes,
        strides,
        np.isin(np.arange(len(sizes)), network.axes),
        np.searchsorted(network.cells, network.cell_of(ranks)),
    )


def _classes(network: SymmetricNetwork, chunk_bytes: int) -> tuple[_Classes, Indices]:
    """Return (the classes of links, the block sizes in ascending order from 1)."""
    rows = len(network.src)
    hold_s, travel_s = network.hold_s(chunk_bytes), network.travel_s(chunk_bytes)
    sizes, block = _blocks(network)
    cell = np.searchsorted(network.cells, network.src)
    number: dict[tuple[object, ...], int] = {}
    class_of = np.empty(rows, np.int64)
    held: list[list[int]] = []
    for row in range(rows):
        ports = network.ports_of(row).tolist()
        mine = [rows + port for port in ports] or [row]
        key = (int(cell[row]), *mine, int(block[row]), float(hold_s[row]), float(travel_s[row]))
        class_of[row] = number.setdefault(key, len(number))
        if class_of[row] == len(held):
            held.append(mine)
    links = np.argsort(class_of, kind="stable")
    start = offsets(np.bincount(class_of))
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
    """Return (block sizes from 1 on, index of each link's size); no faster link leaves a block.

    The size is 1 for a link inside such a block, and for the fastest links.
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


def _progress(network: SymmetricNetwork, chunks: int, classes: int, blocks: int) -> _Progress:
    """Return the progress before the first arrival."""
    count, cells, links = network.ranks, len(network.cells), len(network.src)
    came = (cells, chunks * network.translations)
    return _Progress(
        np.zeros((chunks, count), np.uint8),
        np.zeros((blocks, chunks, count) if blocks > 1 else (1, 1, 1), np.uint8),
        np.empty(came, np.int32),
        np.empty(came, np.int32),
        np.zeros(cells, np.int64),
        np.zeros(links, np.int64),
        np.zeros(links, np.int64),
        np.zeros(classes, np.int64),
    )


@compiled
def _spread(
    classes: _Classes,
    ranks: RankDigits,
    block_size: Indices,
    roots: Indices,
    progress: _Progress,
    strict: bool,
) -> tuple[Indices, Indices, Indices]:
    """Return (chunk, link, source) of each send, in the order of starts."""
    total = len(roots) * (len(ranks.cell) - 1)
    count = len(classes.cell)
    busy_s = np.zeros(len(classes.of_held_start) - 1)
    chunk_of, link_of = np.empty(total, np.int64), np.empty(total, np.int64)
    source_of, class_of = np.empty(total, np.int64), np.empty(total, np.int64)
    target_of = np.empty(total, np.int64)
    heap_s, heap_what = np.empty(2 * total + 2), np.empty(2 * total + 2, np.int64)
    size, sent, now_s = 0, 0, 0.0
    waking, stamp, tried = np.arange(count), np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    woken, instant = count, 0
    for chunk in range(len(roots)):
        _mark(progress, block_size, chunk, roots[chunk])
        _arrive(progress, ranks.cell[roots[chunk]], chunk, roots[chunk])
    # A class whose last search found a chunk usually finds another one soon, so such classes go first. A
    # class that finds none has looked through all arrivals.
    lucky = np.ones(count, np.bool_)
    while sent < total:
        for at in range(2 * woken):
            one = waking[at % woken]
            if lucky[one] != (at < woken) or tried[one] == instant:
                continue
            tried[one] = instant
            begin, end = classes.held_start[one], classes.held_start[one + 1]
            if not all_free(busy_s, classes.held, begin, end, now_s):
                continue
            found, chunk, source, target = _choice(classes, ranks, block_size, one, progress, strict)
            lucky[one] = found >= 0
            if found < 0:
                continue
            _mark(progress, block_size, chunk, target)
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
                _arrive(progress, cell, chunk_of[send], target_of[send])
                woken = wake_users(
                    classes.of_cell_start, classes.of_cell, cell, waking, stamp, instant, woken
                )
                continue
            one = class_of[send]
            for place in range(classes.held_start[one], classes.held_start[one + 1]):
                held = classes.held[place]
                woken = wake_users(
                    classes.of_held_start, classes.of_held, held, waking, stamp, instant, woken
                )
    return chunk_of[:sent], link_of[:sent], source_of[:sent]


@compiled
def all_free(busy_s: Floats, held: Indices, begin: int, end: int, now_s: float) -> bool:
    """Return whether the resources ``held[begin:end]`` are free at ``now_s``."""
    free = True
    for place in range(begin, end):
        free = free and busy_s[held[place]] <= now_s
    return free


@compiled
def wake(waking: Indices, stamp: Indices, one: int, instant: int, woken: int) -> int:
    """Put ``one`` on the list ``waking`` of this instant, once, and return the list's new length."""
    if stamp[one] == instant:
        return woken
    stamp[one], waking[woken] = instant, one
    return woken + 1


@compiled
def wake_users(
    start: Indices, user: Indices, which: int, waking: Indices, stamp: Indices, instant: int, woken: int
) -> int:
    """Put ``user[start[which]:start[which + 1]]`` on the list, and return its new length."""
    for place in range(start[which], start[which + 1]):
        woken = wake(waking, stamp, user[place], instant, woken)
    return woken


@compiled
def _choice(
    classes: _Classes, ranks: RankDigits, block_size: Indices, one: int, progress: _Progress, strict: bool
) -> tuple[int, int, int, int]:
    """Return (link, chunk, source, target) of the next send of a free class; link -1 if there is none."""
    begin, end = classes.start[one], classes.start[one + 1]
    cell, block = classes.cell[one], classes.block[one]
    for lap in range(1 if block == 0 or strict else 2):
        seen = progress.first if lap == 0 else progress.again
        for step in range(end - begin):
            place = (progress.turn[one] + step) % (end - begin)
            link = classes.links[begin + place]
            while seen[link] < progress.came[cell]:
                chunk = progress.came_chunk[cell, seen[link]]
                source = progress.came_rank[cell, seen[link]]
                target = far_end(ranks, link, source)
                lacking = progress.known[chunk, target] == 0
                if lap == 0 and block > 0:
                    lacking = lacking and progress.entered[block, chunk, target // block_size[block]] == 0
                if lacking:
                    # Next time, start with the link after this one, so that all get their turn.
                    progress.turn[one] = place + 1
                    return link, chunk, source, target
                seen[link] += 1
    return -1, 0, 0, 0


@compiled
def far_end(ranks: RankDigits, link: int, source: int) -> int:
    """Return the rank at which the translate of ``link`` that starts at ``source`` ends."""
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
def _mark(progress: _Progress, block_size: Indices, chunk: int, rank: int) -> None:
    """Mark the chunk as at the rank or on its way to it."""
    progress.known[chunk, rank] = 1
    for block in range(1, len(block_size)):
        progress.entered[block, chunk, rank // block_size[block]] = 1


@compiled
def _arrive(progress: _Progress, cell: int, chunk: int, rank: int) -> None:
    """Record that the chunk is at a rank of ``cell``; links out of it may now send the chunk."""
    at = progress.came[cell]
    progress.came_chunk[cell, at], progress.came_rank[cell, at] = chunk, rank
    progress.came[cell] = at + 1
