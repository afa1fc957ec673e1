"""The launcher's protocol for starters of ranks, and what all of them share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from typing import Protocol

__all__ = ["FORWARDED", "Starter", "how_it_ended", "rank_program", "variables"]

_ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The only variables of this process that ranks of other hosts receive by mpirun.
FORWARDED = (
    "CCCTL_CONTROL",
    "CCCTL_CONTROL_KEY",
    "CCCTL_SCRATCH",
    "CCCTL_START",
    "CCCTL_TASK",
    *_ONE_THREAD,
)


class Starter(Protocol):
    """The processes that have started the ranks of one run, and what they report about these ranks."""

    label: str
    """The prefix of each line printed by these processes and by the ranks."""

    @property
    def pids(self) -> frozenset[int]:
        """The processes on this host that are not ranks and that clean up after the ranks."""

    def ended(self, heard: Collection[int]) -> str:
        """Return in words which rank or process ended although it is needed; "" if none did.

        Ranks in ``heard`` have said hello and are ignored, because their connections tell more.
        """

    def how_it_died(self, rank: int) -> str:
        """Return how a rank with a broken connection ended, as far as it is known soon."""

    def blamed(self) -> list[tuple[int, int | None, str]]:
        """Return (rank, pid if known, host) of each rank whose end no other rank caused."""

    def look_at(self, rank: int) -> None:
        """Request a look at a rank on its host; return at once."""

    def seen_running(self, rank: int) -> bool:
        """Return whether a silent rank was lately seen at work; False if nobody can look."""

    def kill(self, rank: int) -> None:
        """Send SIGKILL to a rank if its host can be reached; return at once."""

    def restart(self, rank: int, start: int) -> None:
        """Start a lost rank again on its host, or a spare; return at once.

        ``start`` is the number of this start. Raises UnavailableError if the start cannot be tried.
        """

    def failed_again(self, rank: int) -> str:
        """Return how a restarted rank ended; "" if it did not."""

    def terminate(self) -> None:
        """End all these processes and everything that they have started."""

    def wait(self, limit_s: float) -> bool:
        """Wait for these processes to end after the run; return whether all did in ``limit_s``."""

    def close(self) -> None:
        """Release everything that has ended."""


def rank_program() -> list[str]:
    """Return the command line of one rank."""
    return [sys.executable, "-P", "-m", "exec.launcher.worker"]


def how_it_ended(status: int) -> str:
    """Return a status in words; a negative one is a signal, as in ``subprocess``."""
    if -status in {int(known) for known in signal.Signals}:
        return f"was killed ({signal.Signals(-status).name})"
    return f"died (status {status})"


def variables(folder: str) -> dict[str, str]:
    """Return the environment of this process, with its temporary files in ``folder``.

    Libraries use one thread per rank, unless the user says otherwise.
    """
    return {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ, "TMPDIR": folder}
