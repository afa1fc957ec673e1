"""Pairs of hosts between which nothing passes though both live: when they count so, and when no longer.

A state machine without threads or clocks. A rank says that its data to or from another is stalled. If both
hosts go on to say that they live, the pair is severed, and the schedules go round. Its ends then try a new
connection again and again; once one has come about each time for long enough, the pair carries again. Each
time that it fails anew it has to hold twice as long, so that it does not flap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from synth.network import Network
from synth.networks import kept_links, strong_components

__all__ = ["FIRST_HOLD_S", "HostPair", "Severed", "is_connected", "pair_of", "without_pairs"]

HostPair = tuple[int, int]
"""The lowest ranks of two hosts, rising."""

# Who has been heard so lately lives; who has not may be lost, which others decide.
_LIVES_S = 0.35
# How long an end may take to be heard again before what it said is dropped.
_DROPPED_S = 10.0
FIRST_HOLD_S, _MOST_HOLD_S = 2.0, 120.0


@dataclass
class _Cut:
    """A severed pair: since when new connections have come about each time, None while they do not."""

    since_s: float
    good_since_s: float | None = None


class Severed:
    """The pairs that are severed now; ``hosts[r]`` is the lowest rank on the host of rank r.

    ``pairs`` are severed from the start.
    """

    def __init__(self, hosts: list[int], pairs: Iterable[HostPair] = (), now_s: float = 0.0) -> None:
        self.hosts = hosts
        self._said: dict[HostPair, tuple[float, int, int]] = {}
        self._cut = {pair: _Cut(now_s) for pair in pairs}
        self._times: dict[HostPair, int] = {}

    @property
    def pairs(self) -> tuple[HostPair, ...]:
        """The severed pairs, rising."""
        return tuple(sorted(self._cut))

    def stalled(self, rank: int, peer: int, now_s: float) -> None:
        """A rank waits for data from or to ``peer``, and nothing passes."""
        pair = pair_of(self.hosts, rank, peer)
        if pair[0] != pair[1] and pair not in self._cut:
            self._said.setdefault(pair, (now_s, rank, peer))

    def found(
        self, heard_s: Mapping[int, float], goes_on: Callable[[tuple[HostPair, ...]], bool], now_s: float
    ) -> tuple[HostPair, ...]:
        """The pairs that are severed from now on.

        ``heard_s`` is when each member was heard last; pairs without which the rest cannot reach each other,
        as ``goes_on`` says, are not given up.
        """
        new: list[HostPair] = []
        for pair, (said_s, *ends) in tuple(self._said.items()):
            if not all(end in heard_s for end in ends) or now_s - said_s > _DROPPED_S:
                del self._said[pair]
            elif all(now_s - heard_s[end] < _LIVES_S for end in ends) and goes_on((*self.pairs, *new, pair)):
                del self._said[pair]
                new.append(pair)
        for pair in new:
            self._cut[pair] = _Cut(now_s)
            self._times[pair] = self._times.get(pair, 0) + 1
        return tuple(new)

    def tried(self, pair: HostPair, reached: bool, now_s: float) -> None:
        """One end of a severed pair has tried a new connection."""
        cut = self._cut.get(pair)
        if cut is not None:
            good_since_s = now_s if cut.good_since_s is None else cut.good_since_s
            cut.good_since_s = good_since_s if reached else None

    def healed(self, now_s: float) -> dict[HostPair, float]:
        """The pairs that carry again from now on, and for how many seconds they did not."""
        found = {
            pair: now_s - cut.since_s
            for pair, cut in self._cut.items()
            if cut.good_since_s is not None and now_s - cut.good_since_s >= self.hold_s(pair)
        }
        for pair in found:
            del self._cut[pair]
        return found

    def hold_s(self, pair: HostPair) -> float:
        """How long new connections must come about before the pair is used again."""
        return min(_MOST_HOLD_S, FIRST_HOLD_S * 2.0 ** (self._times.get(pair, 1) - 1))


def pair_of(hosts: list[int], rank: int, peer: int) -> HostPair:
    """The pair of hosts of two ranks."""
    here, there = hosts[rank], hosts[peer]
    return min(here, there), max(here, there)


def without_pairs(
    network: Network, hosts: list[int], members: Iterable[int], pairs: Iterable[HostPair]
) -> Network:
    """``network``, whose ranks are ``members``, without the links between hosts of ``pairs``."""
    host = np.array([hosts[rank] for rank in members])
    gone = np.zeros(network.links, dtype=np.bool_)
    for one, other in pairs:
        src, dst = host[network.src], host[network.dst]
        gone |= ((src == one) & (dst == other)) | ((src == other) & (dst == one))
    return kept_links(network, ~gone) if gone.any() else network


def is_connected(network: Network) -> bool:
    """Whether every rank reaches every other over links."""
    return not strong_components(network, np.arange(network.links)).any()
