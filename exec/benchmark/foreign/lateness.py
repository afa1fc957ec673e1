"""Which rank others wait for in a job that stands still or is slow, as dumps of counters and states tell.

A call of a communicator has a number. A rank that has not begun a call which others are in is late; one whose
call has another name or size went its own way; one that gave no answer is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from probes.link_costs import Profile, ProfiledRank
from probes.profiling.passive import Sends, passive_profile

__all__ = ["Lag", "Recorded", "SentMessages"]

What = Literal["missing", "late", "stuck", "failed", "apart"]


@dataclass(frozen=True)
class Lag:
    """A rank that holds others up: its host ("" where nothing says it), the communicator, and why."""

    what: What
    communicator: str
    rank: int
    host: str
    text: str


@dataclass(frozen=True)
class SentMessages:
    """Seconds of messages by (rank from, rank to) and bytes, and the hosts of ranks where they are known."""

    seconds: Sends
    hosts: Mapping[int, str]

    def profile(self, library: str) -> Profile | None:
        """The profile of the links that carried messages; None where none did."""
        if not self.seconds:
            return None
        most = max(max(pair) for pair in self.seconds)
        ranks = [
            ProfiledRank(rank, self.hosts.get(rank, f"rank{rank}"), "process") for rank in range(most + 1)
        ]
        return passive_profile(ranks, self.seconds, library)


@dataclass(frozen=True)
class Recorded:
    """What dumps tell: of which tool, of how many ranks, who is late, and sends between two ranks."""

    tool: str
    ranks: int
    communicators: int
    lags: tuple[Lag, ...]
    sent: SentMessages
