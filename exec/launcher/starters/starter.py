"""What the launcher asks of whatever has started its ranks."""

from __future__ import annotations

import signal
from collections.abc import Collection
from typing import Protocol

__all__ = ["Starter", "how_it_ended"]


class Starter(Protocol):
    """The processes that have started the ranks of one run, and what they know of them."""

    label: str
    """What stands before each line that they and the ranks have printed."""

    @property
    def pids(self) -> frozenset[int]:
        """The processes of this host that are no ranks, and clear up behind them."""

    def ended(self, heard: Collection[int]) -> str:
        """What has ended although its ranks are needed; "" where nothing has.

        ``heard`` are the ranks that have said hello: a connection tells more of them.
        """

    def how_it_died(self, rank: int) -> str:
        """How a rank ended whose connection is broken, as far as that is known soon."""

    def blamed(self) -> list[tuple[int, int | None, str]]:
        """(rank, pid where that is known, host) of each rank whose end is not that of another."""

    def look_at(self, rank: int) -> None:
        """Have a rank looked at on its host; returns at once."""

    def seen_running(self, rank: int) -> bool:
        """Whether a rank was lately seen at work, though it may be silent; False where nobody can look."""

    def kill(self, rank: int) -> None:
        """Send SIGKILL to a rank, where its host can be reached; returns at once."""

    def restart(self, rank: int, start: int) -> None:
        """Start a lost rank again on its host, or a spare; returns at once.

        ``start`` times that was tried before. Raises UnavailableError where it cannot be tried.
        """

    def failed_again(self, rank: int) -> str:
        """What has become of a rank that was started again, where it ended; "" where it did not."""

    def terminate(self) -> None:
        """Tell all of them to end, and all that they have started."""

    def wait(self, limit_s: float) -> bool:
        """Let what is done end; whether all have within ``limit_s``."""

    def close(self) -> None:
        """Let go of what has ended."""


def how_it_ended(status: int) -> str:
    """A status in words; a negative one is a signal, as ``subprocess`` has it."""
    if -status in {int(known) for known in signal.Signals}:
        return f"was killed ({signal.Signals(-status).name})"
    return f"died (status {status})"
