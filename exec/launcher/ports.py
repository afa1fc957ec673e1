"""Protection of the ports of mpirun: only its own daemons reach them.

The daemon of Open MPI (PRRTE 3) listens at all addresses for daemons of other hosts, even if the job has only
one host, and asks them for no secret. This module changes the daemon's sockets from another process, without
disturbing the daemon. First the sockets accept only the loopback interface, and later a filter drops all
packets.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable

__all__ = ["bind_to_loopback", "refuse_connections"]

# pidfd_getfd(2) has this number on every architecture.
_PIDFD_GETFD = 438
_SO_ATTACH_FILTER = 26
# BPF_RET | BPF_K: keep no byte of any packet.
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)


def bind_to_loopback(pid: int) -> bool:
    """Restrict new connections to the TCP ports of process ``pid`` to this host.

    Return False if that is impossible: the kernel is older than 5.7, or its rules forbid it.
    """
    return _each_listener(pid, _bind)


def refuse_connections(pid: int) -> bool:
    """Refuse all new connections to the TCP ports of process ``pid``.

    Return False if that is impossible: as in ``bind_to_loopback``, or the kernel has no room for a filter.
    """
    return _each_listener(pid, _drop_packets)


def _each_listener(pid: int, change: Callable[[socket.socket], None]) -> bool:
    import psutil

    try:
        found = psutil.Process(pid).net_connections("tcp")
        process = os.pidfd_open(pid)
    except (psutil.Error, OSError):
        return False
    changed = True
    try:
        for connection in found:
            if connection.status == psutil.CONN_LISTEN:
                try:
                    with _shared(process, connection.fd) as listener:
                        change(listener)
                except OSError:
                    changed = False
    finally:
        os.close(process)
    return changed


def _shared(process: int, descriptor: int) -> socket.socket:
    """Return a duplicate of the socket with ``descriptor`` in another process; raises OSError."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    ours = call(_PIDFD_GETFD, process, descriptor, 0)
    if ours < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return socket.socket(fileno=ours)


def _bind(listener: socket.socket) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


def _drop_packets(listener: socket.socket) -> None:
    code = ctypes.create_string_buffer(_DROP)
    program = struct.pack("HL", 1, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
