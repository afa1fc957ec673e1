"""Duplicate descriptors of sockets, which stay open in compiled code when another thread closes a socket.

The system gives the number of a closed descriptor to the next one that is opened. Compiled code that kept the
number would then read from a connection that is not its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from weakref import WeakKeyDictionary

__all__ = ["Descriptor", "close_flow", "descriptor_of"]


class Descriptor:
    """A duplicate of a socket's descriptor; ``number`` is -1 if the socket is closed already."""

    def __init__(self, end: socket.socket) -> None:
        self.number = -1
        with contextlib.suppress(OSError):
            self.number = os.dup(end.fileno())

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


_DESCRIPTORS: WeakKeyDictionary[socket.socket, Descriptor] = WeakKeyDictionary()


def descriptor_of(end: socket.socket) -> Descriptor:
    """Return the duplicate for a socket, made at the first call."""
    found = _DESCRIPTORS.get(end)
    if found is None:
        found = _DESCRIPTORS[end] = Descriptor(end)
    return found


def close_flow(end: socket.socket) -> None:
    """Shut a connection down and close the socket; a duplicate then finds the connection ended."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
    _DESCRIPTORS.pop(end, None)
