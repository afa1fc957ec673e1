"""Detection of connections that carry nothing, as opposed to peers that have nothing to send yet.

A rank that waits for a peer's data, or for room to send, probes the peer's host. The kernel of a live host
acknowledges data at once, whatever its processes do; a peer without room says so (RFC 9293). If for a second
there is neither an answer nor data, the connection is stalled.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exec.sockets.mesh import Mesh

__all__ = ["STALL_S", "Pending", "Stalls", "goes_nowhere", "unacknowledged_bytes"]

# Time without progress after which a connection counts as stalled.
STALL_S = 1.0
_PROBE_AFTER_S, _LOOK_EVERY_S = 0.2, 0.05
# Offsets in struct tcp_info (linux/tcp.h): tcpi_retransmits is the third byte, tcpi_unacked the fifth 32-bit
# number after the first 8 bytes.
_RETRANSMITS_AT, _UNACKED = 2, struct.Struct("@8x16xI")


def unacknowledged_bytes(end: socket.socket) -> int:
    """Return the number of bytes written and not acknowledged, including those still in this host."""
    return int(struct.unpack("i", fcntl.ioctl(end, termios.TIOCOUTQ, b"\0" * 4))[0])


def goes_nowhere(end: socket.socket) -> bool:
    """Return whether data of this end was retransmitted after a timeout and is still not acknowledged.

    The result is False if the other end has no room, or if this is no TCP connection.
    """
    try:
        found = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    except (OSError, AttributeError):
        return False
    if len(found) < _UNACKED.size:
        return False
    return found[_RETRANSMITS_AT] > 0 and _UNACKED.unpack_from(found)[0] > 0


@dataclass(frozen=True)
class Pending:
    """A wait at one end of a connection; ``moved`` changes with each byte that passes."""

    peer: int
    end: socket.socket
    outgoing: bool
    moved: int


class Stalls:
    """Monitor of a rank's waits; call ``look`` whenever nothing moves."""

    def __init__(self, peers: Mesh) -> None:
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
            # ``look`` was not called for so long that earlier waits may have ended meanwhile.
            self._since.clear()
        self._looked_s = now_s
        waiting: dict[int, list[Pending]] = {}
        for end in pending:
            waiting.setdefault(end.peer, []).append(end)
        for peer, ends in waiting.items():
            moved = sum(end.moved for end in ends)
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

    def distrust(self, peer: int) -> None:
        """Note that UCX does not carry data to or from ``peer``, though the peer lives."""
        self._peers.distrust(peer)

    def _carries_nothing(self, peer: int, ends: list[Pending]) -> bool:
        return self._peers.is_mute(peer) or any(end.outgoing and goes_nowhere(end.end) for end in ends)
