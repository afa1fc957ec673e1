"""Descriptors of sockets for compiled code, which uses their numbers while another thread closes sockets.

The system gives the number of a closed socket to the next one that is opened. So compiled code has a
descriptor of its own, which stays open as long as it is used.
"""

from __future__ import annotations

import contextlib
import os
import socket
from weakref import WeakKeyDictionary

__all__ = ["Descriptor", "close_flow", "descriptor_of"]


class Descriptor:
    """A further descriptor of a socket; ``number`` is -1 if the socket is closed already."""

    def __init__(self, end: socket.socket) -> None:
        self.number = -1
        with contextlib.suppress(OSError):
            self.number = os.dup(end.fileno())

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


_DESCRIPTORS: WeakKeyDictionary[socket.socket, Descriptor] = WeakKeyDictionary()


def descriptor_of(end: socket.socket) -> Descriptor:
    """Return the descriptor of a socket, the same for all who ask."""
    return _DESCRIPTORS.setdefault(end, Descriptor(end))


def close_flow(end: socket.socket) -> None:
    """Close a connection at both ends, also for those who have a `Descriptor` of it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
    _DESCRIPTORS.pop(end, None)
