"""The variables and folders of a run on one host, and what removes the folders.

The agent of a host imports nothing larger, because the ranks of the host wait for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "AGENT",
    "RANK",
    "SCRATCH",
    "SCRATCH_PREFIX",
    "SESSION_PREFIX",
    "remove",
    "remove_after",
    "run_directories",
    "scratch_directory",
    "segments",
]

# The variable with the folder for a run's shared memory. The folder is unique to a run, so it also marks the
# run's processes.
SCRATCH = "CCCTL_SCRATCH"
SESSION_PREFIX, SCRATCH_PREFIX = "ccctl-session-", "ccctl-ranks-"
# Variables in which a host's agent gives a rank its number and the agent's process id.
RANK, AGENT = "CCCTL_RANK", "CCCTL_AGENT"
# Longest time for removing a run's leftovers.
_REMOVAL_S = 2.0
_REMOVE_AFTER = """
pid=$1 left=600; shift
while [ -e "/proc/$pid" ] && [ $left -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
rm -rf -- "$@"
"""


def scratch_directory() -> str:
    """Return the folder for shared memory, which is removed with the run."""
    return os.environ[SCRATCH]


def run_directories() -> list[str]:
    """Return every folder of this host to remove with the run."""
    session = os.environ.get("TMPDIR", "")
    return [scratch_directory(), *([session] if Path(session).name.startswith(SESSION_PREFIX) else [])]


def remove(folders: Sequence[str]) -> None:
    """Remove folders; wait for other processes that are removing them too."""
    for folder in folders:
        deadline_s = time.monotonic() + _REMOVAL_S
        while Path(folder).exists() and time.monotonic() < deadline_s:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.01)


def remove_after(pid: int, folders: Sequence[str]) -> None:
    """Remove folders once the process ``pid`` has ended, or after a minute; a detached shell does it."""
    subprocess.Popen(
        ["/bin/sh", "-c", _REMOVE_AFTER, "sh", str(pid), *folders],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def segments() -> tuple[str, ...]:
    """Return the shared-memory files that MPICH maps here; a killed process leaves them behind."""
    with contextlib.suppress(OSError):
        words = Path("/proc/self/maps").read_text().split()
        return tuple({word for word in words if word.startswith("/dev/shm/mpich_shm_")})
    return ()
