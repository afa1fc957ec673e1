"""Execution: programs on ranks, over MPI on CPUs and over CUDA on GPUs; benchmarks; the lab.

In: proven programs and data. Out: results (``run``), and reports of times and bandwidths (``bench``).
``launch`` calls any function on ranks that it starts. A ``Session`` on such ranks adapts while a job runs.

Read `stages`, which has these functions; `run_once` and `benchmark`, the two tasks of ranks; `executors`,
which chooses `mpi` or `cuda`; `program`, which both share; `launcher`, which starts ranks; `sockets`, which
joins them without MPI; `adaptive` and `stragglers`; `peers` and `published`, for comparison; `replan` and
`memory_demand`; `lab`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
