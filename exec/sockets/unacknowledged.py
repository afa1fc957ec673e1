"""What the other end of a TCP connection has not acknowledged: whether the connection carries anything.

The other host's kernel acknowledges what arrives, however busy or stopped the process there is. Data that is
sent again and again without an answer goes nowhere; a peer that only has no room says so (RFC 9293).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

__all__ = ["goes_nowhere", "unacknowledged_bytes"]

# linux/tcp.h: of struct tcp_info the third byte, and the fifth number after the first eight bytes.
_RETRANSMITS_AT, _UNACKED = 2, struct.Struct("@8x16xI")


def unacknowledged_bytes(end: socket.socket) -> int:
    """Bytes that were sent and not acknowledged, whether they have left this host or not."""
    return int(struct.unpack("i", fcntl.ioctl(end, termios.TIOCOUTQ, b"\0" * 4))[0])


def goes_nowhere(end: socket.socket) -> bool:
    """Whether what this end sent was sent again after a timeout, and is still not acknowledged.

    False where the other end has no room, where all has been acknowledged, and on what is no TCP connection.
    """
    try:
        found = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    except (OSError, AttributeError):
        return False
    if len(found) < _UNACKED.size:
        return False
    return found[_RETRANSMITS_AT] > 0 and _UNACKED.unpack_from(found)[0] > 0
