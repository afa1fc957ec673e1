"""Simulation: the start and end of each send of a schedule, or of each step of a program.

In: a schedule or a program and its network. Out: times, the critical path, the load of each link and port.
Read `schedule`; `program` with `threadblock_machine`, or with `max_min_fairness` and `fair_program`.
`simgrid` runs another simulator in a process of its own (`simgrid_engine`).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
