"""Execution: programs on ranks, over MPI on CPUs and over CUDA on GPUs; benchmarks; the lab.

In: proven programs and data. Out: results, and reports of how fast they came.

Read `run_once` and `benchmark`, the two tasks of ranks; `executors`, which chooses `mpi` or `cuda`;
`program`, what both share; `launcher`, which starts ranks; `peers`; `predict` and `memory_demand`; `lab`,
a cluster on one machine.
"""
