"""Where a process listens: at no more addresses than those it wants to hear need."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

__all__ = ["listen", "own_addresses_towards"]

_BACKLOG = 4096
# What an address of a socket in a folder may take: sun_path(7).
_LONGEST_PATH = 107
# A name server that does not answer is not waited for; the answer is worth no more.
_PATIENCE_S = 2.0
_MOST_ADDRESSES = 8
# Nothing is sent: a datagram socket that is connected only has its route looked up.
_ANY_PORT = 9


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
