"""TACOS-Greedy as published (Sec. VI): requests choose links of a time-expanded network at random.

At each instant, every request (a chunk that a rank lacks) is taken up once, in random order. The candidates
are the free links into the rank whose source holds the chunk. One of the shortest candidates is drawn at
random (Fig. 15, Fig. 16a). A chunk can be sent on only after it has arrived (Fig. 16b).
A request stays open while its chunk is in flight, because another link may still bring the chunk earlier. If
a link does, the overtaken transmission carries another chunk: one that its source held when the transmission
started, that its destination requests, and that no other link brings (Fig. 16c). Without such a chunk the
transmission is dropped.

Sums are copies reversed in time, and an all_reduce is a reduce_scatter and an all_gather (Sec. VII-A).
Switches must be unwound into links first (Sec. IV-D). A link is busy for alpha + beta·c, as an edge of the
time-expanded network is. The paper divides time into equal steps, to which it rounds travel times; here the
instants are the exact times at which links become free. In `synth.methods.greedy`, ccctl's own search, links
instead choose chunks, the rarest first.
"""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np

from probes.base import Floats, Indices, Ints, Mask, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.kernels import Words, compiled, dice_of, throw
from synth.methods import both_halves, require_one_way
from synth.network import Network
from synth.schedules import COPY, Schedule
from synth.scheduling import in_start_order, reversed_in_time
from synth.simulation import replay

__all__ = ["synthesize"]

# The paper starts several searches and keeps the best one (Sec. VI-C); it does not say how many.
_STARTS = 8
# The seeds of the searches are this far apart, so that the searches of nearby ``seed`` values all differ.
_STRIDE = 1_000_003
# Times that differ by no more than this factor are equal, because sums of floats round.
_EQUAL = 1 + 1e-12


def synthesize(
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    starts: int = _STARTS,
    time_limit_s: float = math.inf,
) -> Schedule:
    """Return the best schedule of ``starts`` searches; none begins after ``time_limit_s``.

    Raises NotApplicableError if the network has ports, if the collective sums to several ranks at once, or if
    a rank cannot be reached over ranks that request the same chunk: the paper's search has no other relays.
    """
    if len(network.ports):
        raise NotApplicableError(
            f"tacos_published: {network.name} has ports that links share: its switches must be unwound first"
        )
    require_one_way("tacos_published", collective)
    if collective.kind == "all_reduce":
        half = partial(
            synthesize,
            network,
            chunk_bytes=chunk_bytes,
            seed=seed,
            starts=starts,
            time_limit_s=time_limit_s / 2,
        )
        return in_start_order(both_halves(network, collective, chunk_bytes, "tacos_published", seed, half))
    turned = collective.reversal is not None
    copying = collective.reversal or collective
    onward = network.transposed() if turned else network
    end_s = time.perf_counter() + time_limit_s
    best = _searched(onward, copying, chunk_bytes, seed)
    for start in range(1, starts):
        if time.perf_counter() > end_s:
            break
        found = _searched(onward, copying, chunk_bytes, seed + start * _STRIDE)
        best = min(best, found, key=lambda made: replay(made).time_s)
    return in_start_order(reversed_in_time(best, network, collective) if turned else best)


def _searched(network: Network, collective: Collective, chunk_bytes: int, seed: int) -> Schedule:
    """Return the schedule of one search for a collective that copies."""
    held, wanted = collective.held(), collective.wanted()
    start, links = network.in_links
    travel_s = network.alpha_s + network.beta_s_per_byte * chunk_bytes
    chunk, link, missing = _matched(network.src, travel_s, start, links, held, wanted, seed)
    if missing >= 0:
        raise NotApplicableError(
            f"tacos_published: {network.name}: rank {missing} cannot be reached over ranks that request the "
            "same chunks"
        )
    ops = bytes_of(np.full(len(chunk), COPY))
    return Schedule(network, collective, chunk_bytes, "tacos_published", seed, ints(chunk), ints(link), ops)


@compiled
def _matched(
    src: Indices,
    travel_s: Floats,
    in_start: Indices,
    in_links: Indices,
    held: Mask,
    wanted: Mask,
    seed: int,
) -> tuple[Ints, Ints, int]:
    """Return (chunk, link) of every send in the order of starts, and a rank that lacks a chunk, or -1.

    ``held`` and ``wanted`` are (ranks, chunks). O(instants · requests · links into a rank).
    """
    dice = dice_of(seed)
    ranks, chunks = held.shape
    # When each rank has each chunk, and the send that brings it; infinite while none is under way.
    has_s = np.full((ranks, chunks), np.inf)
    bringer = np.full((ranks, chunks), -1)
    request = np.empty(ranks * chunks, np.int64)
    requests = 0
    for rank in range(ranks):
        for chunk in range(chunks):
            if held[rank, chunk]:
                has_s[rank, chunk] = 0.0
            elif wanted[rank, chunk]:
                request[requests] = rank * chunks + chunk
                requests += 1
    room = 2 * requests + len(src)
    sent_chunk, sent_link = np.full(room, -1), np.empty(room, np.int64)
    sent_s, free_s = np.empty(room), np.zeros(len(src))
    sends, now_s = 0, 0.0
    while requests:
        left = requests
        while left:
            # Draw the requests in random order: each one drawn goes behind those that are left.
            drawn = throw(dice, left)
            left -= 1
            request[drawn], request[left] = request[left], request[drawn]
            rank, chunk = request[left] // chunks, request[left] % chunks
            link = _candidate(src, travel_s, in_start, in_links, has_s, free_s, rank, chunk, now_s, dice)
            if link < 0:
                continue
            if sends == room:
                return sent_chunk[:0].astype(np.int32), sent_link[:0].astype(np.int32), rank
            outdated = bringer[rank, chunk]
            has_s[rank, chunk] = now_s + travel_s[link]
            bringer[rank, chunk] = sends
            sent_chunk[sends], sent_link[sends], sent_s[sends] = chunk, link, now_s
            free_s[link] = now_s + travel_s[link]
            sends += 1
            if outdated >= 0:
                sent_chunk[outdated] = -1
                _replace(src, travel_s, has_s, bringer, wanted, sent_chunk, sent_link, sent_s, outdated, rank)
        next_s = np.inf
        for link in range(len(src)):
            if free_s[link] > now_s:
                next_s = min(next_s, free_s[link])
        now_s = next_s
        if math.isinf(now_s):
            return sent_chunk[:0].astype(np.int32), sent_link[:0].astype(np.int32), request[0] // chunks
        kept = 0
        for at in range(requests):
            if has_s[request[at] // chunks, request[at] % chunks] > now_s * _EQUAL:
                request[kept] = request[at]
                kept += 1
        requests = kept
    carrying = np.flatnonzero(sent_chunk[:sends] >= 0)
    return sent_chunk[carrying].astype(np.int32), sent_link[carrying].astype(np.int32), -1


@compiled
def _candidate(
    src: Indices,
    travel_s: Floats,
    in_start: Indices,
    in_links: Indices,
    has_s: Floats,
    free_s: Floats,
    rank: int,
    chunk: int,
    now_s: float,
    dice: Words,
) -> int:
    """Return a free link that brings the chunk to the rank, one of the shortest at random, or -1.

    A link that would not arrive before a transmission under way is no candidate.
    """
    best, alike = -1, 0
    until_s = now_s * _EQUAL
    for at in range(in_start[rank], in_start[rank + 1]):
        link = in_links[at]
        if free_s[link] > until_s or has_s[src[link], chunk] > until_s:
            continue
        if (now_s + travel_s[link]) * _EQUAL >= has_s[rank, chunk]:
            continue
        if best < 0 or travel_s[link] < travel_s[best]:
            best, alike = link, 1
        elif travel_s[link] == travel_s[best]:
            alike += 1
            if throw(dice, alike) == 0:
                best = link
    return best


@compiled
def _replace(
    src: Indices,
    travel_s: Floats,
    has_s: Floats,
    bringer: Indices,
    wanted: Mask,
    sent_chunk: Indices,
    sent_link: Indices,
    sent_s: Floats,
    send: int,
    rank: int,
) -> None:
    """Let a send that was overtaken carry another chunk that ``rank`` wants and nobody brings, if possible.

    Its source must have held the chunk when the send started.
    """
    link = sent_link[send]
    for chunk in range(has_s.shape[1]):
        held = has_s[src[link], chunk] <= sent_s[send] * _EQUAL
        if held and wanted[rank, chunk] and math.isinf(has_s[rank, chunk]):
            sent_chunk[send] = chunk
            has_s[rank, chunk] = sent_s[send] + travel_s[link]
            bringer[rank, chunk] = send
            return
