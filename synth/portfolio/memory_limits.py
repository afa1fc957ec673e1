"""Memory limits: the memory that synthesis needs and has used, and the memory of this machine."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

from probes.base import UnavailableError

__all__ = ["machine_bytes", "peak_bytes", "peak_of", "require_memory"]

# The least that a send takes, in the table and while it is simulated and checked.
_BYTES_A_SEND = 40
_CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """Return the memory of this machine, or the limit of this process's cgroup if the limit is less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP:
        with suppress(OSError, ValueError):
            found = min(found, int(Path(path).read_text()))
    return found


def require_memory(sends: int) -> None:
    """Raise UnavailableError if a table of that many sends exceeds the memory of this machine."""
    needed, there = sends * _BYTES_A_SEND, machine_bytes()
    if needed > there:
        raise UnavailableError(
            f"at least {sends:.3g} sends take {needed / 1e9:.1f} GB; this machine has {there / 1e9:.1f} GB",
            hint="fewer or larger chunks take less",
        )


def peak_bytes() -> int:
    """Return the peak memory of this process plus its largest ended child's, such as a solver's."""
    own, children = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return (own + children) * 1024


def peak_of(pid: int) -> int:
    """Return the peak memory of another process; 0 if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
