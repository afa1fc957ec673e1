"""What the processes of a run find in their environment, whatever starts them."""

from __future__ import annotations

import os

__all__ = ["FORWARDED", "variables"]

_ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The ranks of other hosts see nothing of our environment but this.
FORWARDED = (
    "CCCTL_CONTROL",
    "CCCTL_CONTROL_KEY",
    "CCCTL_SCRATCH",
    "CCCTL_START",
    "CCCTL_TASK",
    *_ONE_THREAD,
)


def variables(folder: str) -> dict[str, str]:
    """The environment of this process, with its temporary files in ``folder``.

    A library takes one thread of a rank, unless the user says otherwise.
    """
    return {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ, "TMPDIR": folder}
