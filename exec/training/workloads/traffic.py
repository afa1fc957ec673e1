"""Bytes that a process has sent over TCP, from the kernel's counters of each connection."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

__all__ = ["sent_bytes"]

# Two fields of struct tcp_info (linux/tcp.h, since Linux 4.19), tcpi_bytes_sent and tcpi_bytes_retrans, and
# the offset of the first in bytes.
_SENT = struct.Struct("@QQ")
_SENT_AT = 200


def sent_bytes() -> int:
    """Return the payload bytes sent over this process's open TCP connections, without retransmissions.

    Communication by shared memory or other protocols is not counted.
    """
    total = 0
    with os.scandir("/proc/self/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    for number in numbers:
        with contextlib.suppress(OSError):
            if not str(Path(f"/proc/self/fd/{number}").readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(number)) as end:
                if end.family not in (socket.AF_INET, socket.AF_INET6) or end.type != socket.SOCK_STREAM:
                    continue
                info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= _SENT_AT + _SENT.size:
                    sent, again = _SENT.unpack_from(info, _SENT_AT)
                    total += sent - again
    return total
