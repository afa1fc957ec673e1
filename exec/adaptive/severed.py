"""Pairs of live hosts between which nothing passes: when they count as severed, and when as healed.

The tracker is a state machine without threads or clocks. A rank reports that its data to or from another is
stalled. If both ranks still send heartbeats, the pair of their hosts is severed and schedules go around it.
The two hosts then keep trying to connect. Once every try has succeeded for long enough, the pair is used
again. After each new failure, tries must succeed for twice as long, so that a pair that fails again and again
is not used each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from synth.network import Network
from synth.networks import kept_links, strong_components

__all__ = ["FIRST_HOLD_S", "HostPair", "Severed", "is_connected", "pair_of", "without_pairs"]

HostPair = tuple[int, int]
"""Two hosts, each named by its lowest rank, in rising order."""

# A rank counts as alive if it was heard within this many seconds; the `Coordinator` decides which ranks are
# lost.
_LIVES_S = 0.35
# Seconds after which a report is dropped if its pair has not been severed.
_DROPPED_S = 10.0
# Time for which new connections must succeed before a pair is used: after its first failure, and at most.
FIRST_HOLD_S, _MOST_HOLD_S = 2.0, 120.0


@dataclass
class _Cut:
    """When a pair was severed, and since when all tries have succeeded (None: no try, or the last failed)."""

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
        """Note that nothing passes between ``rank`` and ``peer``."""
        pair = pair_of(self.hosts, rank, peer)
        if pair[0] != pair[1] and pair not in self._cut:
            self._said.setdefault(pair, (now_s, rank, peer))

    def found(
        self, heard_s: Mapping[int, float], goes_on: Callable[[tuple[HostPair, ...]], bool], now_s: float
    ) -> tuple[HostPair, ...]:
        """Return the pairs that are newly severed.

        ``heard_s`` is when each member was last heard. ``goes_on`` says whether all members still reach each
        other without the given pairs; a pair that they need stays in use.
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
        """Note whether an end of a severed pair made a new connection."""
        cut = self._cut.get(pair)
        if cut is not None:
            good_since_s = now_s if cut.good_since_s is None else cut.good_since_s
            cut.good_since_s = good_since_s if reached else None

    def healed(self, now_s: float) -> dict[HostPair, float]:
        """Return the newly healed pairs, each with the seconds for which it was severed."""
        found = {
            pair: now_s - cut.since_s
            for pair, cut in self._cut.items()
            if cut.good_since_s is not None and now_s - cut.good_since_s >= self.hold_s(pair)
        }
        for pair in found:
            del self._cut[pair]
        return found

    def hold_s(self, pair: HostPair) -> float:
        """Return how long new connections must succeed before the pair is used again."""
        return min(_MOST_HOLD_S, FIRST_HOLD_S * 2.0 ** (self._times.get(pair, 1) - 1))


def pair_of(hosts: list[int], rank: int, peer: int) -> HostPair:
    """Return the pair of hosts of two ranks."""
    host, peer_host = hosts[rank], hosts[peer]
    return min(host, peer_host), max(host, peer_host)


def without_pairs(
    network: Network, hosts: list[int], members: Iterable[int], pairs: Iterable[HostPair]
) -> Network:
    """Return ``network``, whose ranks are ``members``, without the links between hosts of ``pairs``."""
    host = np.array([hosts[rank] for rank in members])
    dropped = np.zeros(network.links, dtype=np.bool_)
    for one, other in pairs:
        src, dst = host[network.src], host[network.dst]
        dropped |= ((src == one) & (dst == other)) | ((src == other) & (dst == one))
    return kept_links(network, ~dropped) if dropped.any() else network


def is_connected(network: Network) -> bool:
    """Return whether every rank reaches every other over links."""
    return not strong_components(network, np.arange(network.links)).any()
