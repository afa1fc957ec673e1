"""Environment variables of a run's processes, common to all starters."""

from __future__ import annotations

import os

__all__ = ["FORWARDED", "variables"]

_ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The only variables of this process that ranks of other hosts receive.
FORWARDED = (
    "CCCTL_CONTROL",
    "CCCTL_CONTROL_KEY",
    "CCCTL_SCRATCH",
    "CCCTL_START",
    "CCCTL_TASK",
    *_ONE_THREAD,
)


def variables(folder: str) -> dict[str, str]:
    """Return the environment of this process, with its temporary files in ``folder``.

    Libraries use one thread per rank, unless the user says otherwise.
    """
    return {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ, "TMPDIR": folder}
