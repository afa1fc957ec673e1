"""Which links may take a chunk next, and in which order they choose."""

from __future__ import annotations

from probes.columns import Indices
from synth.kernels.bitset import Words, throw
from synth.kernels.compiled import compiled

__all__ = ["after", "in_turns", "offer", "shuffled"]


@compiled
def offer(link: int, queued: Indices, instant: int, candidate: Indices, candidates: int) -> int:
    """Add a link to the candidates of this instant, once; how many there are now."""
    if queued[link] == instant:
        return candidates
    queued[link] = instant
    candidate[candidates] = link
    return candidates + 1


@compiled
def in_turns(turns: Indices, turn: int, queued: Indices, instant: int, candidate: Indices) -> int:
    """The queued links from ``turn`` on, those of equal distance between their ranks together.

    On a switch the links of one distance are a perfect matching of egress to ingress ports.
    """
    count = 0
    for step in range(len(turns)):
        link = turns[(turn + step) % len(turns)]
        if queued[link] == instant:
            candidate[count] = link
            count += 1
    return count


@compiled
def after(turns: Indices, lead: int, src: Indices, dst: Indices, ranks: int) -> int:
    """Where the next greater distance than that of the link ``lead`` begins."""
    distance = (dst[lead] - src[lead]) % ranks
    low, high = 0, len(turns)
    while low < high:
        middle = (low + high) // 2
        link = turns[middle]
        if (dst[link] - src[link]) % ranks <= distance:
            low = middle + 1
        else:
            high = middle
    return low % len(turns)


@compiled
def shuffled(candidate: Indices, count: int, dice: Words) -> None:
    """Bring the first ``count`` candidates into a random order."""
    for at in range(count - 1, 0, -1):
        other = throw(dice, at + 1)
        candidate[at], candidate[other] = candidate[other], candidate[at]
