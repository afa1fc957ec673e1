"""Unacknowledged data of a TCP connection, which shows whether the connection carries anything.

The other host's kernel acknowledges data, however busy or stopped the process there is. Data that is
retransmitted without an answer goes nowhere; a peer without room says so (RFC 9293).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

__all__ = ["goes_nowhere", "unacknowledged_bytes"]

# linux/tcp.h: in struct tcp_info the third byte, and the fifth number after the first eight bytes.
_RETRANSMITS_AT, _UNACKED = 2, struct.Struct("@8x16xI")


def unacknowledged_bytes(end: socket.socket) -> int:
    """Return the number of bytes written and not acknowledged, including those still in this host."""
    return int(struct.unpack("i", fcntl.ioctl(end, termios.TIOCOUTQ, b"\0" * 4))[0])


def goes_nowhere(end: socket.socket) -> bool:
    """Return whether data of this end was retransmitted after a timeout and is still not acknowledged.

    False if the other end has no room, if all data is acknowledged, or if this is no TCP connection.
    """
    try:
        found = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    except (OSError, AttributeError):
        return False
    if len(found) < _UNACKED.size:
        return False
    return found[_RETRANSMITS_AT] > 0 and _UNACKED.unpack_from(found)[0] > 0
