"""The executor on CPUs: programs within a host through shared memory, between hosts by messages.

In: a program laid out for this rank, and ranks joined by MPI or by sockets. Out: a plan that runs it many
times. Read `plan`, `encode`, `interpreter` (a compiled loop), `connections` and `wires`.
"""

import lazy_loader as lazy

import synth.kernels  # noqa: F401 - it configures numba, which modules here load

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
