"""How long a thread was ready to run, but had no core, as Linux counts it."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["waited_s"]

# Nanoseconds on a core, then on the run queue, then the number of slices (proc_pid_schedstat of the kernel).
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


def waited_s(schedstat: Path = _SCHEDSTAT) -> float:
    """Seconds that this thread has waited for a core since it began; 0 where the kernel counts none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(schedstat.read_text(encoding="ascii").split()[1]) * 1e-9
    return 0.0
