"""What is printed before a job of the user's own mpirun is aborted, where no exception can end it."""

from __future__ import annotations

import logging
from signal import Signals

__all__ = ["Ending"]

_log = logging.getLogger(__name__)


class Ending:
    """Is told why a job is aborted, and gives the status to abort it with.

    This one logs the reason; a program that has something to save before overrides the methods.
    """

    out_of_time_status = 124

    def waiting(self, rank: str, where: str) -> None:
        """The time limit was met; called on every rank with what it is at."""
        _log.error(f"{rank} {where}")

    def out_of_time(self, timeout_s: float) -> None:
        """The time limit was met; called on rank 0, soon after ``waiting``."""
        _log.error(f"not done within {timeout_s:g} s")

    def signalled(self, number: Signals) -> int:
        """Rank 0 was told to end; returns the status of the job."""
        _log.error(f"ended by {number.name}")
        return 128 + number

    def failed(self, rank: str, error: BaseException) -> int:
        """The function raised ``error`` on this rank; returns the status of the job."""
        _log.error(f"{rank}: {error}", exc_info=error)
        return 1
