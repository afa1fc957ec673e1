"""Execution: programs on ranks, over MPI on CPUs and over CUDA on GPUs; benchmarks; the lab.

In: proven programs and data. Out: results (``run``), and reports of how fast they came (``bench``).
``launch`` calls any function on ranks that it starts; a ``Session`` on them adapts while a job runs.

Read `stages`, these functions; `run_once` and `benchmark`, the two tasks of ranks; `executors`, which
chooses `mpi` or `cuda`; `program`, what both share; `launcher`, which starts ranks; `sockets`, which joins
them without MPI; `adaptive` and `relays`; `peers` and `published`, to compare with; `replan` and
`memory_demand`; `lab`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exec.adaptive import Session
    from exec.benchmark import Report
    from exec.launcher import launch
    from exec.stages import bench, run

__all__ = ["Report", "Session", "bench", "launch", "run"]

# What is heavy is imported by whoever asks for it (PEP 562).
_HOME = {
    "Report": "exec.benchmark.report",
    "Session": "exec.adaptive.session",
    "bench": "exec.stages",
    "launch": "exec.launcher.run",
    "run": "exec.stages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
