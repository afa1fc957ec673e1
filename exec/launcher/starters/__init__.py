"""What starts the processes of a run: mpirun, or an agent on each host that needs no MPI.

In: a program, how many ranks, their hosts. Out: a `Starter`, which tells how a rank ended and kills one.
Read `starter`, what both have in common; `environment`; `mpirun`; `agents`, `remote`, how they reach other
hosts, and `host_agent`, the process that they start on each host; `spares`, the ranks that are started
later; `allocation`, the nodes of a job of Slurm.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
