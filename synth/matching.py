"""The event loop of the greedy: at every instant, free links are matched with chunks.

All loops here are compiled; sets of chunks are rows of 64-bit words.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from probes.columns import Floats, Indices, Ints, Mask
from synth.events import is_free, occupy, pop, push
from synth.jit import compiled

__all__ = ["CLUSTER", "PLAIN", "STRICT", "match"]

PLAIN, CLUSTER, STRICT = range(3)
Words: TypeAlias = NDArray[np.uint64]


@compiled
def match(
    src: Indices,
    dst: Indices,
    hold_s: Floats,
    travel_s: Floats,
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
    """
    np.random.seed(seed)
    links, levels = len(src), len(cluster)
    ranks, chunks = held.shape
    words = (chunks + 63) // 64
    has = np.zeros((ranks, words), np.uint64)
    awaited = np.zeros((ranks, words), np.uint64)
    in_cluster = np.zeros((levels, ranks, words), np.uint64)
    copies = np.zeros(chunks, np.int32)
    total = 0
    for rank in range(ranks):
        for chunk in range(chunks):
            if held[rank, chunk]:
                _set(has[rank], chunk)
                _await(awaited, in_cluster, cluster, rank, chunk)
            elif wanted[rank, chunk]:
                total += 1
            else:
                _set(awaited[rank], chunk)
    sent_chunk = np.empty(total, np.int32)
    sent_link = np.empty(total, np.int32)
    arrival_s = np.empty(total)
    resource_free = np.ones(links + len(port_start) - 1, np.bool_)
    # Two kinds of events in one heap: -1 - send, its link is free again; send, it has arrived.
    heap_s = np.empty(min(2 * total, _most_in_flight(hold_s, travel_s)) + 1)
    heap_what = np.empty(len(heap_s), np.int64)
    heap_size = 0
    queued = np.ones(links, np.int64)
    candidate = np.empty(links, np.int32)
    candidates = links
    for link in range(links):
        candidate[link] = link
    sent = 0
    now_s = 0.0
    instant = 1
    while True:
        if rotate and 8 * candidates > links:
            candidates = _in_turns(turns, queued, instant, candidate)
        else:
            _shuffle(candidate, candidates)
        for at_level in range(levels):
            for at in range(candidates):
                link = candidate[at]
                if level[link] != at_level or not is_free(
                    link, resource_free, link_port_start, link_port, links
                ):
                    continue
                chunk = _choose(
                    has[src[link]],
                    awaited[dst[link]],
                    in_cluster[at_level, cluster[at_level, dst[link]]],
                    copies,
                    preference,
                    sample,
                )
                if chunk < 0:
                    continue
                _await(awaited, in_cluster, cluster, dst[link], chunk)
                copies[chunk] += 1
                occupy(link, resource_free, link_port_start, link_port, links, False)
                sent_chunk[sent] = chunk
                sent_link[sent] = link
                arrival_s[sent] = now_s + travel_s[link]
                heap_size = push(heap_s, heap_what, heap_size, now_s + hold_s[link], -1 - sent)
                heap_size = push(heap_s, heap_what, heap_size, arrival_s[sent], sent)
                sent += 1
        if heap_size == 0:
            break
        now_s = heap_s[0]
        instant += 1
        candidates = 0
        while heap_size > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            what = heap_what[0]
            heap_size = pop(heap_s, heap_what, heap_size)
            if what < 0:
                link = sent_link[-1 - what]
                occupy(link, resource_free, link_port_start, link_port, links, True)
                if is_free(link, resource_free, link_port_start, link_port, links):
                    candidates = _offer(link, queued, instant, candidate, candidates)
                for at in range(link_port_start[link], link_port_start[link + 1]):
                    for other in range(port_start[link_port[at]], port_start[link_port[at] + 1]):
                        sibling = port_links[other]
                        if is_free(sibling, resource_free, link_port_start, link_port, links):
                            candidates = _offer(sibling, queued, instant, candidate, candidates)
            else:
                rank = dst[sent_link[what]]
                chunk = sent_chunk[what]
                _set(has[rank], chunk)
                at = out_start[rank]
                while at < out_start[rank + 1]:
                    link = out_links[at]
                    first = link_port_start[link]
                    if first < link_port_start[link + 1] and not resource_free[links + link_port[first]]:
                        at = next_group[at]
                        continue
                    at += 1
                    # An idle link had nothing to take before: only this chunk can be of use to it.
                    if not _has(awaited[dst[link]], chunk) and is_free(
                        link, resource_free, link_port_start, link_port, links
                    ):
                        candidates = _offer(link, queued, instant, candidate, candidates)
    missing = -1
    if sent < total:
        for rank in range(ranks):
            for chunk in range(chunks):
                if wanted[rank, chunk] and not _has(has[rank], chunk):
                    missing = rank
    return sent_chunk[:sent], sent_link[:sent], arrival_s[:sent], missing


@compiled
def _most_in_flight(hold_s: Floats, travel_s: Floats) -> int:
    """How many events can be pending at once: one a link, and one for each send under way."""
    most = 0
    for link in range(len(hold_s)):
        most += 3 + int(min(travel_s[link] / hold_s[link], 1e9))
    return most


@compiled
def _choose(
    held: Words, awaited: Words, clustered: Words, copies: Indices, preference: int, sample: int
) -> int:
    """A chunk that is held, wanted and not awaited, the rarest of a sample, or -1."""
    if preference != PLAIN:
        chunk = _rarest(held, awaited, clustered, copies, sample)
        if chunk >= 0 or preference == STRICT:
            return chunk
    return _rarest(held, awaited, awaited, copies, sample)


@compiled
def _rarest(held: Words, awaited: Words, excluded: Words, copies: Indices, sample: int) -> int:
    words = len(held)
    first = np.random.randint(64 * words)
    above = ~np.uint64(0) << np.uint64(first % 64)
    best = -1
    seen = 0
    for step in range(words + 1):
        at = (first // 64 + step) % words
        left = held[at] & ~awaited[at] & ~excluded[at]
        if step == 0:
            left &= above
        elif step == words:
            left &= ~above
        while left != 0:
            bit = _lowest(left)
            left &= left - np.uint64(1)
            chunk = at * 64 + bit
            seen += 1
            if (
                best < 0
                or copies[chunk] < copies[best]
                or (copies[chunk] == copies[best] and np.random.randint(seen) == 0)
            ):
                best = chunk
            if seen >= sample:
                return best
    return best


@compiled
def _lowest(word: np.uint64) -> int:
    """The index of the lowest set bit."""
    bit = 0
    shift = 32
    while shift > 0:
        if word & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1)) == 0:
            word >>= np.uint64(shift)
            bit += shift
        shift >>= 1
    return bit


@compiled
def _set(words: Words, chunk: int) -> None:
    words[chunk // 64] |= np.uint64(1) << np.uint64(chunk % 64)


@compiled
def _has(words: Words, chunk: int) -> bool:
    return bool(words[chunk // 64] & (np.uint64(1) << np.uint64(chunk % 64)) != 0)


@compiled
def _await(awaited: Words, in_cluster: Words, cluster: Indices, rank: int, chunk: int) -> None:
    _set(awaited[rank], chunk)
    for at in range(len(cluster)):
        _set(in_cluster[at, cluster[at, rank]], chunk)


@compiled
def _offer(link: int, queued: Indices, instant: int, candidate: Indices, candidates: int) -> int:
    if queued[link] == instant:
        return candidates
    queued[link] = instant
    candidate[candidates] = link
    return candidates + 1


@compiled
def _in_turns(turns: Indices, queued: Indices, instant: int, candidate: Indices) -> int:
    """The queued links, those of equal distance between their ranks together, from a random start on.

    On a switch the links of one distance are a perfect matching of egress to ingress ports.
    """
    first = np.random.randint(len(turns))
    count = 0
    for step in range(len(turns)):
        link = turns[(first + step) % len(turns)]
        if queued[link] == instant:
            candidate[count] = link
            count += 1
    return count


@compiled
def _shuffle(candidate: Indices, count: int) -> None:
    for at in range(count - 1, 0, -1):
        other = np.random.randint(at + 1)
        candidate[at], candidate[other] = candidate[other], candidate[at]
