"""Where a run can be reached: at no more addresses than its ranks need, and by nobody else.

The daemon of Open MPI (PRRTE 3) listens for daemons of other hosts, at all addresses and without asking for
a secret, even where there are no other hosts. Its sockets are changed from outside, which leaves it
undisturbed: the loopback interface alone reaches them, and in the end a filter drops all packets.
"""

from __future__ import annotations

import ctypes
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["bind_to_loopback", "listen", "own_addresses_towards", "refuse_connections"]

_BACKLOG = 4096
# What an address of a socket in a folder may take: sun_path(7).
_LONGEST_PATH = 107
# A name server that does not answer is not waited for; the answer is worth no more.
_PATIENCE_S = 2.0
_MOST_ADDRESSES = 8
# Nothing is sent: a datagram socket that is connected only has its route looked up.
_ANY_PORT = 9
# pidfd_getfd(2) has this number on every architecture.
_PIDFD_GETFD = 438
_SO_ATTACH_FILTER = 26
# BPF_RET | BPF_K: keep no byte of any packet.
_DROP = struct.pack("HBBI", 0x06, 0, 0, 0)


def listen(folder: Path, hosts: Sequence[str] = ()) -> list[socket.socket]:
    """The sockets at which ranks reach this process: those of this host alone, or those on ``hosts``.

    The one for this host lies in ``folder``, or where its name is too long at the loopback address. For
    other hosts there is one at each address of this host from which they are reached; where that cannot be
    told, one at all addresses.
    """
    path = str(folder / "control")
    if hosts:
        return [_server(address) for address in own_addresses_towards(hosts)] or [_server("0.0.0.0")]
    if len(path.encode()) > _LONGEST_PATH:
        return [_server("127.0.0.1")]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_BACKLOG)
    return [listener]


def _server(address: str) -> socket.socket:
    return socket.create_server((address, 0), backlog=_BACKLOG)


def own_addresses_towards(hosts: Sequence[str]) -> list[str]:
    """The addresses (IPv4) from which this host reaches ``hosts``, those of the loopback last.

    Empty where one of them is unknown, cannot be routed to, or is not found out in two seconds, and where
    there are many.
    """
    found: queue.SimpleQueue[set[str]] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(_sources(hosts)), name="routes", daemon=True).start()
    try:
        addresses = found.get(timeout=_PATIENCE_S)
    except queue.Empty:
        return []
    if len(addresses) > _MOST_ADDRESSES:
        return []
    return sorted(addresses, key=lambda address: (address.startswith("127."), address))


def _sources(hosts: Sequence[str]) -> set[str]:
    sources = set()
    for host in hosts:
        try:
            address = socket.getaddrinfo(host, _ANY_PORT, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.connect(address)
                sources.add(end.getsockname()[0])
        except (OSError, UnicodeError):
            return set()
    return sources


def bind_to_loopback(pid: int) -> bool:
    """Let new connections to the TCP ports of our process ``pid`` come from this host alone.

    False where that cannot be had: the kernel is older than 5.7, or its rules forbid it.
    """
    return _each_listener(pid, _bind)


def refuse_connections(pid: int) -> bool:
    """Let no new connection come to the TCP ports of our process ``pid``.

    False where that cannot be had: as with ``bind_to_loopback``, or the kernel has no room for a filter.
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
        for one in found:
            if one.status == psutil.CONN_LISTEN:
                try:
                    with _shared(process, one.fd) as listener:
                        change(listener)
                except OSError:
                    changed = False
    finally:
        os.close(process)
    return changed


def _shared(process: int, descriptor: int) -> socket.socket:
    """The socket that another process has as ``descriptor``; raises OSError."""
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
