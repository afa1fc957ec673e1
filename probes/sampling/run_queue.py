"""Time that a thread was ready to run but had no core, as counted by Linux."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["waited_s"]

# Nanoseconds on a core, nanoseconds on the run queue, number of slices (the kernel's proc_pid_schedstat).
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


def waited_s(schedstat: Path = _SCHEDSTAT) -> float:
    """Return the seconds that this thread has waited for a core so far; 0 if the kernel counts none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(schedstat.read_text(encoding="ascii").split()[1]) * 1e-9
    return 0.0
