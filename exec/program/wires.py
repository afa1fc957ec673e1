"""A wire: one rank's end of a connection to a rank of another host, whatever carries its messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from exec.program.dtypes import Array
from probes.base import Indices

__all__ = ["Wire", "Wires", "counters_at"]


class Wire(NamedTuple):
    """Whom it joins, where it counts (two words: written, read), and the bytes of a run's messages in order.

    ``early[n]``: message n arrives where nothing else lies, and need not wait for one of ``depth`` slots.
    ``through_ns[n]`` is set to when message n was through, by the monotonic clock; empty: nobody asks.
    What goes out is to go at ``bytes_per_s``; 0: as fast as it can.
    """

    outgoing: bool
    peer: int
    channel: int
    counters: Indices
    messages: list[Array]
    depth: int
    early: tuple[bool, ...]
    through_ns: Indices
    bytes_per_s: float = 0.0


class Wires(Protocol):
    """The transport of all wires of one rank."""

    def begin(self, run: int) -> None:
        """Start run number ``run``."""

    def serve(self, *, wait: bool) -> bool:
        """Move what can be; with ``wait`` stay until something has, or a moment. Whether anything did."""

    def free(self) -> None:
        """Give back what the wires hold."""


def counters_at(memory: Array, offset: int) -> Indices:
    """Return the two counters that begin at ``offset`` bytes, each in a line of its own."""
    return memory[offset : offset + 256].view(np.int64)[:: 128 // 8]
