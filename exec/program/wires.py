"""A wire: one rank's end of a connection to a rank of another host, whatever carries its messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from exec.program.dtypes import Array
from probes.columns import Indices

__all__ = ["BOUNCE_BYTES", "FETCHED_BYTES", "TILE_BYTES", "Wire", "Wires", "counters_at"]

# A rank of the same host copies a message of so many bytes out of the sender's private memory: one copy
# instead of two. Shorter ones go through a slot: a call into the kernel costs more than their copy.
FETCHED_BYTES = 32 << 10
# On one host a tile of a chunk is sent, added to and sent on while it is in the caches. Shorter ones fit
# closer caches, but the ranks wait for each other more often, which costs most where they share cores.
TILE_BYTES = 512 << 10
# What is fetched of another process at once to be added: less costs more calls into the kernel, more leaves
# the caches.
BOUNCE_BYTES = 128 << 10


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
    """What moves the messages of all wires of one rank."""

    def begin(self, run: int) -> None:
        """Start run number ``run``."""

    def serve(self, *, wait: bool) -> bool:
        """Move what can be; with ``wait`` stay until something has, or a moment. Whether anything did."""

    def free(self) -> None:
        """Give back what the wires hold."""


def counters_at(memory: Array, offset: int) -> Indices:
    """The two counters that begin at ``offset`` bytes, each in a line of its own."""
    return memory[offset : offset + 256].view(np.int64)[:: 128 // 8]
