"""The free links and ports, the candidate links that may take a chunk next, and their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probes.base import Indices, Mask
from synth.kernels.bitset import Words, throw
from synth.kernels.compiled_loop import compiled

__all__ = ["LinkState", "after", "in_turns", "is_free", "link_state", "occupy", "offer", "shuffled"]


class LinkState(NamedTuple):
    """The resources, with links numbered before ports, and the candidate links of an instant.

    Link e uses the ports ``port[port_start[e]:port_start[e + 1]]``; port p is used by the links
    ``user[user_start[p]:user_start[p + 1]]``. ``free`` is by resource. ``offered`` is the last instant at
    which each link was a candidate. ``candidate`` has room for all links.
    """

    port_start: Indices
    port: Indices
    user_start: Indices
    user: Indices
    free: Mask
    offered: Indices
    candidate: Indices


def link_state(port_start: Indices, port: Indices, user_start: Indices, user: Indices) -> LinkState:
    """Return a state with all links and ports free, and no candidates."""
    links, ports = len(port_start) - 1, len(user_start) - 1
    free, offered = np.ones(links + ports, np.bool_), np.full(links, -1)
    return LinkState(port_start, port, user_start, user, free, offered, np.empty(links, np.int64))


@compiled
def is_free(state: LinkState, link: int) -> bool:
    """Return whether the link and all its ports are free."""
    if not state.free[link]:
        return False
    links = len(state.offered)
    for at in range(state.port_start[link], state.port_start[link + 1]):
        if not state.free[links + state.port[at]]:
            return False
    return True


@compiled
def occupy(state: LinkState, link: int, value: bool) -> None:
    """Mark the link and its ports as free (True) or held."""
    state.free[link] = value
    links = len(state.offered)
    for at in range(state.port_start[link], state.port_start[link + 1]):
        state.free[links + state.port[at]] = value


@compiled
def offer(state: LinkState, link: int, instant: int, candidates: int) -> int:
    """Add a link to the candidates of this instant, once, and return the number of candidates."""
    if state.offered[link] == instant:
        return candidates
    state.offered[link] = instant
    state.candidate[candidates] = link
    return candidates + 1


@compiled
def in_turns(state: LinkState, turns: Indices, turn: int, instant: int) -> int:
    """Put the candidates in the order of ``turns``, from ``turn`` on; return their number.

    ``turns`` lists links by the distance between their ranks. On a switch the links of one distance are a
    perfect matching of egress to ingress ports.
    """
    count = 0
    for step in range(len(turns)):
        link = turns[(turn + step) % len(turns)]
        if state.offered[link] == instant:
            state.candidate[count] = link
            count += 1
    return count


@compiled
def after(turns: Indices, lead: int, src: Indices, dst: Indices, ranks: int) -> int:
    """Return the first turn whose link has a greater distance than the link ``lead``."""
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
    """Shuffle the first ``count`` candidates."""
    for at in range(count - 1, 0, -1):
        other = throw(dice, at + 1)
        candidate[at], candidate[other] = candidate[other], candidate[at]
