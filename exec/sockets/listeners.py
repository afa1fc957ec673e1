"""Listening sockets of a process, at as few addresses as possible."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from probes.base import UnavailableError

__all__ = ["interface_of", "listen", "listen_towards", "own_addresses_towards", "published"]

# The default of net.core.somaxconn since Linux 5.4; the kernel lowers larger values to it.
_BACKLOG = 4096
# Longest path of a Unix socket: sun_path(7).
_LONGEST_PATH = 107
# Longest wait for the name and route look-ups of all hosts.
_PATIENCE_S = 2.0
_MOST_ADDRESSES = 8
# Port for route look-ups, never contacted: connecting a datagram socket sends nothing, it only looks up the
# route.
_ANY_PORT = 9


def listen(folder: Path, hosts: Sequence[str] = ()) -> list[socket.socket]:
    """Open the sockets at which ranks reach this process: on this host alone, or from ``hosts``.

    The socket for this host lies in ``folder``, or at the loopback address if its path is too long. For other
    hosts there is one socket at each address of this host that they reach. If those addresses are unknown,
    one socket listens at all addresses.
    """
    path = str(folder / "control")
    if hosts or len(path.encode()) > _LONGEST_PATH:
        return listen_towards(hosts)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_BACKLOG)
    return [listener]


def listen_towards(hosts: Collection[str]) -> list[socket.socket]:
    """Open a socket at each address of this host that ``hosts`` reach; without hosts, at loopback.

    If those addresses are unknown, one socket listens at all addresses.
    """
    addresses = own_addresses_towards(sorted(hosts)) if hosts else ["127.0.0.1"]
    return [socket.create_server((address, 0), backlog=_BACKLOG) for address in addresses or ["0.0.0.0"]]


def published(listeners: Iterable[socket.socket]) -> list[str]:
    """Return the addresses of ``listeners`` for others: host:port, loopback addresses last, or a path."""
    found = []
    for listener in listeners:
        bound = listener.getsockname()
        if isinstance(bound, str):
            found.append(bound)
        else:
            addresses = _own_addresses() if bound[0] == "0.0.0.0" else [bound[0]]
            found += [f"{address}:{bound[1]}" for address in addresses]
    return found


def _own_addresses() -> list[str]:
    import psutil

    every = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    found = [entry.address for entry in every if entry.family == socket.AF_INET]
    return sorted(found, key=lambda address: address.startswith("127."))


def own_addresses_towards(hosts: Sequence[str]) -> list[str]:
    """Return the addresses (IPv4) from which this host reaches ``hosts``, loopback addresses last.

    The list is empty if a host is unknown or has no route, if all look-ups together take over two seconds, or
    if there are more than eight addresses.
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


def interface_of(address: str) -> str:
    """Return this host's network interface with ``address``; raises UnavailableError if there is none."""
    import psutil

    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return str(name)
    raise UnavailableError(f"no network interface of {socket.gethostname()} has the address {address}")


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
