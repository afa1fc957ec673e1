"""The launcher: starts ranks, here or on hosts, watches them, and ends them all.

In: a task by name, its arguments, a `World`. Out: the value of rank 0, or an error that names the rank. With
MPI a lost rank ends the run; with ccctl's own sockets the others may go on without it.

Read `run`, `session`, `starters`, `watchdog`, `ranks`, `protocol`, `worker`. `attached` is for the
user's own mpirun; there `ending` receives the reason for an abort.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
