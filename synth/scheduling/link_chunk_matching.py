"""Matching of chunks to free links at every instant: the event loop of the greedy (TACOS Sec. IV).

All loops here are compiled; sets of chunks are rows of 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Floats, Indices, Ints, Mask
from synth.kernels import (
    Calendar,
    LinkState,
    Words,
    add,
    after,
    compiled,
    contains,
    dice_of,
    enter,
    in_turns,
    is_free,
    lowest,
    occupy,
    offer,
    shuffled,
    take,
    throw,
)

__all__ = ["CLUSTER", "PLAIN", "STRICT", "LinkFigures", "MatchingPolicy", "match"]

# PLAIN: no preference. CLUSTER: first the chunks that the target's cluster lacks. STRICT: only these chunks.
PLAIN, CLUSTER, STRICT = range(3)


class MatchingPolicy(NamedTuple):
    """A rule of choice: a link takes the rarest of up to ``sample`` chunks, by its ``preference``.

    With ``rotate``, links choose in turn while many are free, and otherwise in random order.
    """

    preference: int
    sample: int
    rotate: bool = False


class LinkFigures(NamedTuple):
    """The links as matching needs them, besides their ports.

    ``level`` is each link's cost class. ``cluster[level, rank]`` is the number of the rank's cluster, which
    links of lower levels connect. The links out of rank r are ``out_links[out_start[r]:out_start[r + 1]]``;
    ``next_group[row]`` is the next row of ``out_links`` whose link has another port or source. ``turns`` is
    the order of rotation.
    """

    src: Indices
    dst: Indices
    hold_s: Floats
    travel_s: Floats
    out_start: Indices
    out_links: Indices
    next_group: Indices
    level: Indices
    cluster: Indices
    turns: Indices


class _Chunks(NamedTuple):
    """Sets of chunks: by rank ``has``, and ``awaited``: chunks held, on their way, or not wanted.

    For each level, ``home`` has the chunks that a rank held at first or received over links of higher levels.
    ``in_cluster`` has the chunks that a cluster holds or awaits. With one level ``home`` and ``in_cluster``
    stay empty. ``copies`` counts the sends of each chunk.
    """

    has: Words
    awaited: Words
    home: Words
    in_cluster: Words
    copies: Ints


class _Sends(NamedTuple):
    """The sends in the order of their starts."""

    chunk: Ints
    link: Ints
    arrival_s: Floats


@compiled
def match(
    wires: LinkFigures,
    state: LinkState,
    calendar: Calendar,
    held: Mask,
    wanted: Mask,
    policy: MatchingPolicy,
    seed: int,
) -> tuple[Ints, Ints, Floats, int]:
    """Return (chunk, link, arrival) of every send by start, and a rank with a chunk missing, or -1.

    ``held`` and ``wanted`` are (ranks, chunks). ``state`` must have all links free and ``calendar`` must be
    empty; both are so again afterwards.
    """
    dice = dice_of(seed)
    links, ranks = len(wires.src), len(held)
    chunks, total = _chunks_of(wires, held, wanted)
    sends = _Sends(np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total))
    sent, instant, candidates, events = 0, 0, 0, 0
    now_s = 0.0
    state.offered[:] = -1
    for link in range(links):
        candidates = offer(state, link, instant, candidates)
    turn = after(wires.turns, throw(dice, links), wires.src, wires.dst, ranks) if links else 0
    while True:
        rotating = policy.rotate and 8 * candidates > links
        if rotating:
            candidates = in_turns(state, wires.turns, turn, instant)
        else:
            shuffled(state.candidate, candidates, dice)
        lead, sent, events = _begin(
            wires, state, calendar, chunks, sends, policy, dice, candidates, sent, events, now_s
        )
        if events == 0:
            break
        if rotating and lead >= 0:
            turn = after(wires.turns, lead, wires.src, wires.dst, ranks)
        now_s = calendar.heap_s[0]
        instant += 1
        candidates, events = _end(wires, state, calendar, chunks, sends, instant, events, now_s)
    missing = -1
    if sent < total:
        for rank in range(ranks):
            for chunk in range(held.shape[1]):
                if wanted[rank, chunk] and not contains(chunks.has[rank], chunk):
                    missing = rank
    return sends.chunk[:sent], sends.link[:sent], sends.arrival_s[:sent], missing


@compiled
def _chunks_of(wires: LinkFigures, held: Mask, wanted: Mask) -> tuple[_Chunks, int]:
    """Return the sets before the first send, and the total number of sends."""
    ranks, count = held.shape
    levels, words = len(wires.cluster), (count + 63) // 64
    rows = ranks if levels > 1 else 1
    chunks = _Chunks(
        np.zeros((ranks, words), np.uint64),
        np.zeros((ranks, words), np.uint64),
        np.zeros((levels, rows, words), np.uint64),
        np.zeros((levels, rows, words), np.uint64),
        np.zeros(count, np.int32),
    )
    total = 0
    for rank in range(ranks):
        for chunk in range(count):
            if held[rank, chunk]:
                add(chunks.has[rank], chunk)
                _bring_home(chunks.home, levels, rank, chunk)
                _await(chunks, wires.cluster, rank, chunk)
            elif wanted[rank, chunk]:
                total += 1
            else:
                add(chunks.awaited[rank], chunk)
    return chunks, total


@compiled
def _begin(
    wires: LinkFigures,
    state: LinkState,
    calendar: Calendar,
    chunks: _Chunks,
    sends: _Sends,
    policy: MatchingPolicy,
    dice: Words,
    candidates: int,
    sent: int,
    events: int,
    now_s: float,
) -> tuple[int, int, int]:
    """Let every free candidate take a chunk, level by level.

    Return (first link of the highest level to do so, or -1; sends so far; pending events).
    """
    levels, lead = len(wires.cluster), -1
    for level in range(levels):
        for at in range(candidates):
            link = state.candidate[at]
            if wires.level[link] != level or not is_free(state, link):
                continue
            dst = wires.dst[link]
            chunk = _choose(chunks, wires.cluster, level, wires.src[link], dst, policy, dice)
            if chunk < 0:
                continue
            if lead < 0 and level == levels - 1:
                lead = link
            _await(chunks, wires.cluster, dst, chunk)
            chunks.copies[chunk] += 1
            occupy(state, link, False)
            arrival_s = now_s + wires.travel_s[link]
            sends.chunk[sent], sends.link[sent], sends.arrival_s[sent] = chunk, link, arrival_s
            events = enter(calendar, events, calendar.hold_queue[link], now_s + wires.hold_s[link], sent)
            events = enter(calendar, events, calendar.travel_queue[link], arrival_s, sent)
            sent += 1
    return lead, sent, events


@compiled
def _end(
    wires: LinkFigures,
    state: LinkState,
    calendar: Calendar,
    chunks: _Chunks,
    sends: _Sends,
    instant: int,
    events: int,
    now_s: float,
) -> tuple[int, int]:
    """End all holds and travels due now, and return (links that may take a chunk, pending events)."""
    candidates, links = 0, len(wires.src)
    while events > 0 and calendar.heap_s[0] <= now_s * (1 + 1e-12):
        send, queue, events = take(calendar, events)
        link = sends.link[send]
        if queue < calendar.holds:
            occupy(state, link, True)
            if is_free(state, link):
                candidates = offer(state, link, instant, candidates)
            for at in range(state.port_start[link], state.port_start[link + 1]):
                port = state.port[at]
                for user in range(state.user_start[port], state.user_start[port + 1]):
                    if is_free(state, state.user[user]):
                        candidates = offer(state, state.user[user], instant, candidates)
            continue
        rank, chunk = wires.dst[link], sends.chunk[send]
        add(chunks.has[rank], chunk)
        _bring_home(chunks.home, wires.level[link], rank, chunk)
        at = wires.out_start[rank]
        while at < wires.out_start[rank + 1]:
            onward = wires.out_links[at]
            first = state.port_start[onward]
            if first < state.port_start[onward + 1] and not state.free[links + state.port[first]]:
                at = wires.next_group[at]
                continue
            at += 1
            # An idle link found no chunk to send before, so only this chunk can be new to its target.
            if is_free(state, onward) and not contains(chunks.awaited[wires.dst[onward]], chunk):
                candidates = offer(state, onward, instant, candidates)
    return candidates, events


@compiled
def _choose(
    chunks: _Chunks, cluster: Indices, level: int, src: int, dst: int, policy: MatchingPolicy, dice: Words
) -> int:
    """Return a chunk that ``src`` has and ``dst`` neither has nor awaits, the rarest of a sample, or -1."""
    held, awaited, copies, sample = chunks.has[src], chunks.awaited[dst], chunks.copies, policy.sample
    if policy.preference != PLAIN and len(cluster) > 1:
        clustered = chunks.in_cluster[level, cluster[level, dst]]
        # Chunks that this rank brought into its cluster go first: no other rank there can send them yet.
        chunk = _rarest(chunks.home[level, src], awaited, clustered, copies, sample, dice)
        if chunk >= 0:
            return chunk
        chunk = _rarest(held, awaited, clustered, copies, sample, dice)
        if chunk >= 0 or policy.preference == STRICT:
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
def _await(chunks: _Chunks, cluster: Indices, rank: int, chunk: int) -> None:
    add(chunks.awaited[rank], chunk)
    if len(cluster) > 1:
        for at in range(len(cluster)):
            add(chunks.in_cluster[at, cluster[at, rank]], chunk)
