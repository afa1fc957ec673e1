"""The launcher: starts ranks with mpirun, here or on hosts, watches them, ends them all.

In: a task by name, its arguments, a `World`. Out: the value of rank 0, or an error that names the rank.
Read `run`, `session`, `watchdog`, `greeter`, `channel`, `protocol`, `worker`; `attached` is for the user's
own mpirun, where `ending` is told why a job is aborted.
"""
