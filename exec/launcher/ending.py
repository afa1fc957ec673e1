"""Messages for a job under the user's own mpirun, aborted because no exception can end it."""

from __future__ import annotations

import logging
from signal import Signals

__all__ = ["Ending"]

_log = logging.getLogger(__name__)


class Ending:
    """Receiver of the reason for an abort, and source of the job's exit status.

    This class logs the reason; a program that must save something first overrides the methods.
    """

    out_of_time_status = 124

    def waiting(self, rank: str, where: str) -> None:
        """Handle the time limit; called on every rank with its state."""
        _log.error(f"{rank} {where}")

    def out_of_time(self, timeout_s: float) -> None:
        """Handle the time limit on rank 0, soon after ``waiting``."""
        _log.error(f"not done within {timeout_s:g} s")

    def signalled(self, number: Signals) -> int:
        """Handle a signal that ends rank 0; return the status of the job."""
        _log.error(f"ended by {number.name}")
        return 128 + number

    def failed(self, rank: str, error: BaseException) -> int:
        """Handle ``error``, raised by the function on this rank; return the status of the job."""
        _log.error(f"{rank}: {error}", exc_info=error)
        return 1
