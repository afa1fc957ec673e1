"""Compiled loops that place instructions: chains of messages on channels, local rows on threadblocks."""

from __future__ import annotations

import numpy as np

from probes.base import Indices, Mask
from synth.kernels import compiled

__all__ = ["first_fit", "overtaken", "place_local"]


@compiled
def first_fit(
    heads: Indices,
    receiver: Indices,
    out: Indices,
    into: Indices,
    wanted_channel: Indices,
    instance: Indices,
    lowest: Indices,
    pairs: int,
    instances: int,
    span: int,
) -> tuple[Indices, Indices]:
    """Return (channel of each row's messages or -1, first rows of the chains that fit on no channel).

    A tie pairs two connections on a channel: what arrives over the first is forwarded over the second. Each
    end has at most one tie, and a chain takes the lowest channel on which its ties fit. ``goes_to`` is the
    connection over which a receiving end's data are forwarded; ``comes_from`` is the connection whose data a
    sending end forwards.
    """
    channel = np.full(len(receiver), -1, dtype=np.int64)
    goes_to = np.full(pairs * span, -1, dtype=np.int32)
    comes_from = np.full(pairs * span, -1, dtype=np.int32)
    tied = np.empty((len(receiver) + 1, 4), dtype=np.int64)
    bad, found = np.empty(len(heads), dtype=np.int64), 0
    for head in heads:
        chosen = -1
        first = instance[head]
        while first < lowest[head]:
            first += instances
        for candidate in range(first, span, instances):
            c = wanted_channel[head] if wanted_channel[head] >= 0 else candidate
            fits = True
            row, ties = receiver[head], 0
            while receiver[row] >= 0:
                receiving_end, sending_end = into[row] * span + c, out[row] * span + c
                fits = goes_to[receiving_end] < 0 or goes_to[receiving_end] == out[row]
                if not fits or (comes_from[sending_end] >= 0 and comes_from[sending_end] != into[row]):
                    fits = False
                    break
                # Tie at once: a chain that passes here twice may conflict with itself.
                if goes_to[receiving_end] < 0 or comes_from[sending_end] < 0:
                    tied[ties, 0], tied[ties, 1] = goes_to[receiving_end] < 0, comes_from[sending_end] < 0
                    tied[ties, 2], tied[ties, 3] = receiving_end, sending_end
                    ties += 1
                goes_to[receiving_end], comes_from[sending_end] = out[row], into[row]
                row = receiver[row]
            if fits:
                chosen = c
                break
            for tie in range(ties):
                if tied[tie, 0]:
                    goes_to[tied[tie, 2]] = -1
                if tied[tie, 1]:
                    comes_from[tied[tie, 3]] = -1
            if wanted_channel[head] >= 0:
                break
        if chosen < 0:
            bad[found] = head
            found += 1
            continue
        channel[head] = chosen
        row = receiver[head]
        while row >= 0:
            channel[row] = chosen
            row = receiver[row]
    return channel, bad[:found]


@compiled
def overtaken(receives: Indices, pair: Indices, place: Indices, channel: Indices) -> tuple[Indices, Indices]:
    """Return (receives, the receives that they overtake): messages received out of the order of their sends.

    ``receives`` are ordered by ``pair``, a number of their two ranks, and then by their sends. Time
    O(receives).
    """
    last = np.full(channel.max() + 1 if len(channel) else 0, -1, dtype=np.int64)
    ahead, behind = np.empty_like(receives), np.empty_like(receives)
    found = 0
    for row in receives:
        before = last[channel[row]]
        last[channel[row]] = row
        if before >= 0 and pair[before] == pair[row] and place[row] < place[before]:
            ahead[found], behind[found] = row, before
            found += 1
    return ahead[:found], behind[:found]


@compiled
def place_local(
    order: Indices,
    rank: Indices,
    start: Indices,
    before: Indices,
    local: Mask,
    first: Indices,
    block: Indices,
) -> None:
    """Choose a threadblock of its rank for each local row, in ``order``; write it to ``block``."""
    used = np.full(first[-1] + 1, -1, dtype=np.int64)
    for at in range(len(order)):
        row = order[at]
        if local[row]:
            # A row that depends on a local row stays on its threadblock, which needs no synchronization.
            chosen = -1
            for edge in range(start[row], start[row + 1]):
                if local[before[edge]]:
                    chosen = block[before[edge]]
            if chosen < 0:
                chosen = first[rank[row]]
                for candidate in range(first[rank[row]], first[rank[row] + 1]):
                    if used[candidate] < used[chosen]:
                        chosen = candidate
            block[row] = chosen
        used[block[row]] = at
