"""Traces: the steps of each rank in one run of a program.

All times are nanoseconds of the monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from probes.base import Indices, Mask

__all__ = ["CONNECTION_BITS", "Connection", "KeptRun", "RankTrace", "connection_of"]

# A message's identifier is its connection's number, shifted left by this, plus its number within the run.
CONNECTION_BITS = 32


class Connection(NamedTuple):
    """A connection of two ranks.

    ``wired``: it goes over a wire to another host. ``settles``: the sender's run ends only once the
    receiver has read all of its messages.
    """

    sender: int
    receiver: int
    wired: bool
    settles: bool


@dataclass(frozen=True, eq=False)
class RankTrace:
    """The trace of one rank in one run: a row for each step and tile, in the order in which they ran.

    - ``off_before_ns``, ``off_ns``: time without a core before and during each step; ``off_after_ns``: after
      the last step. Times below 20 us are not seen.
    - ``adds``: whether the row reduced; other rows copied, or moved no data.
    - ``takes``, ``gives``: the messages received and sent (-1: none). ``there_ns``: when the received message
      had arrived over its wire; 0 within a host, where a message arrives when its sender's step ends.
      ``left_ns``: when the sent message had left by its wire.
    - Row ``reader_step[n]`` may begin only after message ``reader_message[n]`` has been read, because it
      overwrites the memory of that message. On a wire a message counts as read when it has left, at
      ``reader_ns[n]``.
    - ``ends``: the connections of this rank, by number. The run ends only once all messages of connections
      that settle have been read.
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
    """The raw log of one run: its size in bytes, and a function that converts it to a trace."""

    nbytes: int
    trace: Callable[[], RankTrace]


def connection_of(message: int) -> int:
    """Return the connection that a message goes over."""
    return message >> CONNECTION_BITS
