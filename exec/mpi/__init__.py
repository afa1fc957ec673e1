"""The executor on CPUs: programs within a host through shared memory, between hosts by messages.

In: a program laid out for this rank, and ranks joined by MPI or by sockets. Out: a plan that runs it many
times. Read `plan`, `encode`, `interpreter` (a compiled loop), `connections` and `wires`.
"""

import synth.kernels  # noqa: F401 - it says how numba is to be loaded, which modules here do first
