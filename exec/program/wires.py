"""A wire: one rank's end of a connection to a rank of another host, whatever carries its messages."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from exec.program.dtypes import Array
from probes.base import Indices

__all__ = ["Wire", "Wires", "counters_at"]


class Wire(NamedTuple):
    """One end of a connection that carries the same messages in every run.

    ``counters`` are two words: the messages written and the messages read. ``messages`` is the memory of
    each message of a run, in order. With ``early[n]`` message n is received into memory of its own, so it
    need not wait for one of the ``depth`` slots. ``through_ns[n]`` receives the time at which message n had
    passed, by the monotonic clock; an empty array turns that off. ``bytes_per_s`` limits the rate of sending;
    0: no limit.
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

    def may_move(self, number: int, before: int) -> bool:
        """Return whether message ``number`` of this run may move; ``before`` counts messages of earlier runs.

        The interpreter must have written an outgoing message, or have read the message whose slot an incoming
        message takes.
        """
        if self.outgoing:
            return bool(self.counters[0] > before + number)
        free = self.early[number] or number < self.depth
        return free or bool(self.counters[1] > before + number - self.depth)


class Wires(Protocol):
    """The transport of all wires of one rank."""

    def begin(self, run: int) -> None:
        """Start run number ``run``."""

    def serve(self, *, wait: bool) -> bool:
        """Move all messages that can move now; return whether any did.

        With ``wait``, first wait a moment until a message can move.
        """

    def free(self) -> None:
        """Free the resources of the wires."""


def counters_at(memory: Array, offset: int) -> Indices:
    """Return the two counters that begin at ``offset`` bytes, each in a cache line of its own."""
    return memory[offset : offset + 256].view(np.int64)[:: 128 // 8]
