"""Starters of a run's processes: mpirun, or an agent on each host that needs no MPI.

In: a program, the number of ranks, their hosts. Out: a `Starter`, which tells how a rank ended and can kill
one.

Read `starter`, the common protocol; `mpirun`; `agents` with `remote` (access to other hosts, nodes of a Slurm
job) and `host_agent` (their process on each host). `order_files` writes orders of ranks for other launchers.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
