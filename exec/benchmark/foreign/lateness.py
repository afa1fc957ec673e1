"""Ranks that others wait for in a job that hangs or is slow, as dumps of NCCL or PyTorch show.

The calls of a communicator are numbered. A rank that holds the others up is

- late: it has not begun a call that others are in, or not finished its initialization;
- stuck: others have completed its call, or it lags with the same count of calls in several dumps;
- mismatch: in the call of that number, it runs another collective or size than the other ranks;
- failed: NCCL reports an error of it;
- missing: it gave no answer, or wrote no dump.

A rank that lags by one call in a single dump is "behind": it may be late, or it was asked before the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from probes.link_costs import Profile, ProfiledRank
from probes.profiling import Sends, passive_profile

__all__ = ["Lag", "Recorded", "SentMessages", "What"]

What = Literal["late", "behind", "stuck", "mismatch", "failed", "missing"]


@dataclass(frozen=True)
class Lag:
    """A rank that holds others up in a communicator, and why; ``host`` is "" where it is not known."""

    what: What
    communicator: str
    rank: int
    host: str
    text: str


@dataclass(frozen=True)
class SentMessages:
    """Seconds of sends by (source rank, target rank) and bytes; each rank's host, if known."""

    seconds: Sends
    hosts: Mapping[int, str]

    def profile(self, library: str) -> Profile | None:
        """Return the profile of the links that carried messages; None without messages."""
        if not self.seconds:
            return None
        most = max(max(pair) for pair in self.seconds)
        ranks = [
            ProfiledRank(rank, self.hosts.get(rank, f"rank{rank}"), "process") for rank in range(most + 1)
        ]
        return passive_profile(ranks, self.seconds, library)


@dataclass(frozen=True)
class Recorded:
    """The dumps of a job: the tool that wrote them, ranks that hold others up, sends between two ranks.

    ``unclear`` are ranks that are behind: a single dump does not show whether they are late.
    """

    tool: str
    ranks: int
    communicators: int
    lags: tuple[Lag, ...]
    sent: SentMessages
    unclear: tuple[Lag, ...] = ()
