"""The launcher: starts ranks, here or on hosts, watches them, ends them all.

In: a task by name, its arguments, a `World`. Out: the value of rank 0, or an error that names the rank.
With MPI a rank that is lost ends the run; with sockets of our own the others may go on without it.
Read `run`, `session`, `starters`, `watchdog`, `ranks`, `answers`, `protocol`, `worker`; `attached`
is for the user's own mpirun, where `ending` is told why a job is aborted.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
