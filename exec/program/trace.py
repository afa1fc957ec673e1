"""Traces: the steps of each rank in one run of a program.

All times are nanoseconds of the monotonic clock, which is one for all processes of a host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from probes.base import Indices, Mask

__all__ = ["CONNECTION_BITS", "Connection", "KeptRun", "RankTrace", "connection_of"]

# A message is named by its connection and its number within a run.
CONNECTION_BITS = 32


class Connection(NamedTuple):
    """A connection: its ranks, whether by a wire, whether its sender waits until all has been read."""

    sender: int
    receiver: int
    wired: bool
    settles: bool


@dataclass(frozen=True, eq=False)
class RankTrace:
    """The trace of one rank in one run: a row for each step and tile, in the order in which they ran.

    ``off_before_ns`` and ``off_ns`` say how long the rank had no core before a step and during it, and
    ``off_after_ns`` after the last; stretches below 20 us are not seen. ``adds``: it added, else it copied,
    or only passed on what need not be copied. ``takes`` and ``gives`` name messages (-1: none); ``there_ns``
    says when the one taken had come over its wire (0: within the host it is there when its sender's step
    ends), ``left_ns`` when the one given had left. Row ``reader_step[n]`` may not begin before message
    ``reader_message[n]`` has been read, which on a wire is when it has left, at ``reader_ns[n]``; a run ends
    no sooner than all messages of connections that settle have been read.
    """

    start_ns: int
    begin_ns: Indices
    end_ns: Indices
    off_before_ns: Indices
    off_ns: Indices
    adds: Mask
    takes: Indices
    there_ns: Indices
    gives: Indices
    left_ns: Indices
    given_bytes: Indices
    reader_step: Indices
    reader_message: Indices
    reader_ns: Indices
    off_after_ns: int
    ends: dict[int, Connection]


class KeptRun(NamedTuple):
    """The raw log of one run, which takes so many bytes; ``trace`` reads it."""

    nbytes: int
    trace: Callable[[], RankTrace]


def connection_of(message: int) -> int:
    """Return the connection that a message goes over."""
    return message >> CONNECTION_BITS
