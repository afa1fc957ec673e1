"""Tells a peer that has nothing to send yet from a connection that carries nothing.

Who waits for data of a peer, or for room to send it some, has its host asked for a sign of life; a host that
lives answers at once, whatever its processes do. Where no answer comes, and no data either, for a second,
the connection is stalled.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from exec.sockets.unacknowledged import goes_nowhere

__all__ = ["STALL_S", "Peers", "Pending", "Stalls"]

# So long nothing may pass.
STALL_S = 1.0
_PROBE_AFTER_S, _LOOK_EVERY_S = 0.2, 0.05


class Peers(Protocol):
    """What a mesh knows of its ranks."""

    def probe(self, peer: int) -> None:
        """Have the host of ``peer`` answer."""

    def is_mute(self, peer: int) -> bool:
        """Whether it does not."""

    def stalled(self, peer: int) -> None:
        """Say that nothing passes."""


@dataclass(frozen=True)
class Pending:
    """What is waited for at one end of a connection; ``moved`` changes with each byte that passes."""

    peer: int
    end: socket.socket
    outgoing: bool
    moved: int


class Stalls:
    """Watches what a rank waits for; ``look`` whenever nothing moves."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._looked_s = 0.0
        self._since: dict[int, tuple[int, float]] = {}
        self._told: set[int] = set()

    def look(self, pending: Iterable[Pending], now_s: float | None = None) -> None:
        """Probe the peers that are waited for, and say which of them is stalled, once until it moves."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        if now_s - self._looked_s > STALL_S / 2:
            # Nobody waited meanwhile.
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
