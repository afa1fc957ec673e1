"""Refuses connections to a process of ours that listens on every interface and cannot be told otherwise.

The daemon of Open MPI (PRRTE 3) listens for daemons of other hosts, at all addresses and without asking for
a secret, even where there are no other hosts. A socket filter that drops all packets leaves it undisturbed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct

__all__ = ["refuse_connections"]

# pidfd_getfd(2) has this number on every architecture.
_PIDFD_GETFD = 438
_SO_ATTACH_FILTER = 26
# BPF_RET | BPF_K: keep no byte of any packet.
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)


def refuse_connections(pid: int, *, from_here: bool) -> bool:
    """Let no new connection come to the TCP ports of our process ``pid``.

    Those of the loopback interface only with ``from_here``. False where that cannot be had: the kernel is
    older than 5.6, or its rules forbid it.
    """
    import psutil

    try:
        found = psutil.Process(pid).net_connections("tcp")
        process = os.pidfd_open(pid)
    except (psutil.Error, OSError):
        return False
    listening = [one for one in found if one.status == psutil.CONN_LISTEN]
    if not from_here:
        listening = [one for one in listening if one.laddr.ip not in ("127.0.0.1", "::1")]
    try:
        return all([_drop_packets(process, one.fd) for one in listening])
    finally:
        os.close(process)


def _drop_packets(process: int, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        ours = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, descriptor, 0)
        if ours >= 0:
            code = ctypes.create_string_buffer(_DROP)
            with socket.socket(fileno=ours) as listener:
                program = struct.pack("HL", 1, ctypes.addressof(code))
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            return True
    return False
