"""Detection of connections that carry nothing, as opposed to a peer that has nothing to send yet.

A rank that waits for a peer's data, or for room to send, probes the peer's host. The kernel of a live host
answers at once, whatever its processes do. A connection without answer and without data for a second is
stalled.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from exec.sockets.unacknowledged import goes_nowhere

__all__ = ["STALL_S", "Peers", "Pending", "Stalls"]

# Time without progress after which a connection counts as stalled.
STALL_S = 1.0
_PROBE_AFTER_S, _LOOK_EVERY_S = 0.2, 0.05


class Peers(Protocol):
    """The methods of a mesh that `Stalls` uses."""

    def probe(self, peer: int) -> None:
        """Make the host of ``peer`` answer."""

    def is_mute(self, peer: int) -> bool:
        """Return whether the host of ``peer`` does not answer."""

    def stalled(self, peer: int) -> None:
        """Report that nothing passes."""


@dataclass(frozen=True)
class Pending:
    """A wait at one end of a connection; ``moved`` changes with each byte that passes."""

    peer: int
    end: socket.socket
    outgoing: bool
    moved: int


class Stalls:
    """Monitor of a rank's waits; call ``look`` whenever nothing moves."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._looked_s = 0.0
        self._since: dict[int, tuple[int, float]] = {}
        self._told: set[int] = set()

    def look(self, pending: Iterable[Pending], now_s: float | None = None) -> None:
        """Probe the awaited peers, and report each stalled one once until it moves."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        if now_s - self._looked_s > STALL_S / 2:
            # No call waited meanwhile.
            self._since.clear()
        self._looked_s = now_s
        waiting: dict[int, list[Pending]] = {}
        for one in pending:
            waiting.setdefault(one.peer, []).append(one)
        for peer, ends in waiting.items():
            moved = sum(one.moved for one in ends)
            before, since_s = self._since.get(peer, (-1, now_s))
            if moved != before:
                self._since[peer] = (moved, now_s)
                self._told.discard(peer)
            elif now_s - since_s > _PROBE_AFTER_S:
                self._peers.probe(peer)
                if now_s - since_s > STALL_S and peer not in self._told and self._carries_nothing(peer, ends):
                    self._told.add(peer)
                    self._peers.stalled(peer)
        self._since = {peer: since for peer, since in self._since.items() if peer in waiting}

    def _carries_nothing(self, peer: int, ends: list[Pending]) -> bool:
        return self._peers.is_mute(peer) or any(one.outgoing and goes_nowhere(one.end) for one in ends)
