"""The event loop of the greedy: at every instant, free links are matched with chunks.

All loops here are compiled; sets of chunks are rows of 64-bit words.
"""

from __future__ import annotations

import numpy as np

from probes.columns import Floats, Indices, Ints, Mask
from synth.kernels.bitset import Words, add, contains, dice_of, lowest, throw
from synth.kernels.compiled import compiled
from synth.kernels.event_queue import is_free, next_event, occupy, push
from synth.kernels.link_candidates import after, in_turns, offer, shuffled

__all__ = ["CLUSTER", "PLAIN", "STRICT", "match"]

PLAIN, CLUSTER, STRICT = range(3)


@compiled
def match(
    src: Indices,
    dst: Indices,
    hold_s: Floats,
    travel_s: Floats,
    hold_queue: Indices,
    travel_queue: Indices,
    holds: int,
    ring_start: Indices,
    link_port_start: Indices,
    link_port: Indices,
    port_start: Indices,
    port_links: Indices,
    out_start: Indices,
    out_links: Indices,
    next_group: Indices,
    level: Indices,
    cluster: Indices,
    held: Mask,
    wanted: Mask,
    preference: int,
    sample: int,
    rotate: bool,
    turns: Indices,
    seed: int,
) -> tuple[Ints, Ints, Floats, int]:
    """(chunk, link, arrival) of every send in the order of starts, and a rank left wanting, or -1.

    ``level`` is each link's class of cost and ``cluster[level, rank]`` the rank's cluster of links of
    lower levels; ``next_group`` skips the links of one port; ``turns`` is the order of rotation.
    ``hold_queue`` to ``ring_start`` are as ``synth.kernels.event_queue.queues_of`` gives them.
    """
    dice = dice_of(seed)
    links, levels = len(src), len(cluster)
    ranks, chunks = held.shape
    words = (chunks + 63) // 64
    has = np.zeros((ranks, words), np.uint64)
    # By level: what a rank holds at first, or has got over links of higher levels, and so is first to have.
    home = np.zeros((levels, ranks if levels > 1 else 1, words), np.uint64)
    awaited = np.zeros((ranks, words), np.uint64)
    in_cluster = np.zeros((levels, ranks if levels > 1 else 1, words), np.uint64)
    copies = np.zeros(chunks, np.int32)
    total = 0
    for rank in range(ranks):
        for chunk in range(chunks):
            if held[rank, chunk]:
                add(has[rank], chunk)
                _bring_home(home, levels, rank, chunk)
                _await(awaited, in_cluster, cluster, rank, chunk)
            elif wanted[rank, chunk]:
                total += 1
            else:
                add(awaited[rank], chunk)
    sent_chunk = np.empty(total, np.int32)
    sent_link = np.empty(total, np.int32)
    arrival_s = np.empty(total)
    resource_free = np.ones(links + len(port_start) - 1, np.bool_)
    # Queues of holds: a link is free again; of travels: a send has come. What takes equally long ends in the
    # order it began, so each duration has one queue, a ring of sends, and the heap holds queues.
    queues = len(ring_start) - 1
    ring_s, ring_send = np.empty(ring_start[-1]), np.empty(ring_start[-1], np.int32)
    first_in, waiting = np.zeros(queues, np.int64), np.zeros(queues, np.int64)
    heap_s, heap_queue = np.empty(queues + 1), np.empty(queues + 1, np.int64)
    heap_size = 0
    queued = np.ones(links, np.int64)
    candidate = np.empty(links, np.int32)
    candidates = links
    for link in range(links):
        candidate[link] = link
    sent, instant, now_s = 0, 1, 0.0
    turn = after(turns, throw(dice, links), src, dst, ranks) if links else 0
    while True:
        if rotate and 8 * candidates > links:
            candidates = in_turns(turns, turn, queued, instant, candidate)
            rotating = True
        else:
            shuffled(candidate, candidates, dice)
            rotating = False
        lead = -1
        for at_level in range(levels):
            for at in range(candidates):
                link = candidate[at]
                if level[link] != at_level or not is_free(
                    link, resource_free, link_port_start, link_port, links
                ):
                    continue
                chunk = _choose(
                    has[src[link]],
                    home[at_level, src[link] if levels > 1 else 0],
                    awaited[dst[link]],
                    in_cluster[at_level, cluster[at_level, dst[link]] if levels > 1 else 0],
                    copies,
                    preference if levels > 1 else PLAIN,
                    sample,
                    dice,
                )
                if chunk < 0:
                    continue
                if lead < 0 and at_level == levels - 1:
                    lead = link
                _await(awaited, in_cluster, cluster, dst[link], chunk)
                copies[chunk] += 1
                occupy(link, resource_free, link_port_start, link_port, links, False)
                sent_chunk[sent] = chunk
                sent_link[sent] = link
                arrival_s[sent] = now_s + travel_s[link]
                for queue, end_s in (
                    (hold_queue[link], now_s + hold_s[link]),
                    (travel_queue[link], arrival_s[sent]),
                ):
                    if not waiting[queue]:
                        heap_size = push(heap_s, heap_queue, heap_size, end_s, queue)
                    size = ring_start[queue + 1] - ring_start[queue]
                    slot = ring_start[queue] + (first_in[queue] + waiting[queue]) % size
                    ring_s[slot], ring_send[slot] = end_s, sent
                    waiting[queue] += 1
                sent += 1
        if heap_size == 0:
            break
        if rotating and lead >= 0:
            turn = after(turns, lead, src, dst, ranks)
        now_s = heap_s[0]
        instant += 1
        candidates = 0
        while heap_size > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            queue = heap_queue[0]
            send, heap_size = next_event(
                heap_s, heap_queue, heap_size, ring_start, ring_s, ring_send, first_in, waiting
            )
            link = sent_link[send]
            if queue < holds:
                occupy(link, resource_free, link_port_start, link_port, links, True)
                if is_free(link, resource_free, link_port_start, link_port, links):
                    candidates = offer(link, queued, instant, candidate, candidates)
                for at in range(link_port_start[link], link_port_start[link + 1]):
                    for other in range(port_start[link_port[at]], port_start[link_port[at] + 1]):
                        sibling = port_links[other]
                        if is_free(sibling, resource_free, link_port_start, link_port, links):
                            candidates = offer(sibling, queued, instant, candidate, candidates)
            else:
                rank = dst[link]
                chunk = sent_chunk[send]
                add(has[rank], chunk)
                _bring_home(home, level[link], rank, chunk)
                at = out_start[rank]
                while at < out_start[rank + 1]:
                    link = out_links[at]
                    first = link_port_start[link]
                    if first < link_port_start[link + 1] and not resource_free[links + link_port[first]]:
                        at = next_group[at]
                        continue
                    at += 1
                    # An idle link had nothing to take before: only this chunk can be of use to it.
                    if is_free(link, resource_free, link_port_start, link_port, links) and not contains(
                        awaited[dst[link]], chunk
                    ):
                        candidates = offer(link, queued, instant, candidate, candidates)
    missing = -1
    if sent < total:
        for rank in range(ranks):
            for chunk in range(chunks):
                if wanted[rank, chunk] and not contains(has[rank], chunk):
                    missing = rank
    return sent_chunk[:sent], sent_link[:sent], arrival_s[:sent], missing


@compiled
def _choose(
    held: Words,
    home: Words,
    awaited: Words,
    clustered: Words,
    copies: Indices,
    preference: int,
    sample: int,
    dice: Words,
) -> int:
    """A chunk that is held, wanted and not awaited, the rarest of a sample, or -1."""
    if preference != PLAIN:
        # What a rank alone brings in goes first: nobody else can send it, and each serves its peers evenly.
        chunk = _rarest(home, awaited, clustered, copies, sample, dice)
        if chunk >= 0:
            return chunk
        chunk = _rarest(held, awaited, clustered, copies, sample, dice)
        if chunk >= 0 or preference == STRICT:
            return chunk
    return _rarest(held, awaited, awaited, copies, sample, dice)


@compiled
def _rarest(held: Words, awaited: Words, excluded: Words, copies: Indices, sample: int, dice: Words) -> int:
    words = len(held)
    first = throw(dice, 64 * words)
    above = ~np.uint64(0) << np.uint64(first % 64)
    best = -1
    seen = 0
    at = first // 64 - 1
    for step in range(words + 1):
        at = at + 1 if at + 1 < words else 0
        left = held[at] & ~awaited[at] & ~excluded[at]
        if step == 0:
            left &= above
        elif step == words:
            left &= ~above
        while left != 0:
            bit = lowest(left)
            left &= left - np.uint64(1)
            chunk = at * 64 + bit
            seen += 1
            if (
                best < 0
                or copies[chunk] < copies[best]
                or (copies[chunk] == copies[best] and throw(dice, seen) == 0)
            ):
                best = chunk
            if seen >= sample:
                return best
    return best


@compiled
def _bring_home(home: Words, level: int, rank: int, chunk: int) -> None:
    if home.shape[1] > 1:
        for lower in range(level):
            add(home[lower, rank], chunk)


@compiled
def _await(awaited: Words, in_cluster: Words, cluster: Indices, rank: int, chunk: int) -> None:
    add(awaited[rank], chunk)
    if len(cluster) > 1:
        for at in range(len(cluster)):
            add(in_cluster[at, cluster[at, rank]], chunk)
