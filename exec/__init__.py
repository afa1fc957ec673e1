"""Execution of programs on ranks: MPI on CPUs, CUDA on GPUs; benchmarks; emulated networks.

In: proven programs and data. Out: results (``run``), or reports of times and bandwidths (``bench``).
``launch`` starts ranks and calls any function on them. A ``Session`` on such ranks adapts while a job runs.

Read `stages` (run and bench); `run_once` and `benchmark` (the tasks of the ranks); `executors` (the choice of
`mpi` or `cuda`); `program` (shared by both executors); `launcher` (starts ranks); `sockets` (communication
without MPI); `adaptive` and `stragglers`; `peers` and `published` (for comparison); `replan`;
`memory_demand`; `lab` (networks emulated on one host).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
