"""Which addresses of this host other hosts are reached from, as the kernel's routes say."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence

__all__ = ["own_addresses_towards"]

# A name server that does not answer is not waited for; the answer is worth no more.
_PATIENCE_S = 2.0
_MOST_ADDRESSES = 8
# Nothing is sent: a datagram socket that is connected only has its route looked up.
_ANY_PORT = 9


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
        except OSError:
            return set()
    return sources
