"""Connections between the processes of one run, over TCP and UCX, and groups of ranks without MPI.

In: the run's key and an all-gather of a few bytes. Out: a `Group` of ranks, which stands in for an MPI
communicator and outlives the death of its members. Read `group`, `mesh` and `wires`; below them are `channel`
(messages with MACs), `greeter` (authenticates connections), `listeners`, `reach`, `tcp_ends` (a compiled loop
that moves messages) and `ucx`. `stalls` finds connections that carry nothing though both ends live; `detours`
goes around them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
