"""Processes of one run over TCP: connections that only they can make, and groups of ranks without MPI.

In: the run's key and an all-gather of a few bytes. Out: a `Group` of ranks, which stands in for an MPI
communicator and outlives the death of its members. Read `group`, `mesh` and `wires`; below them
`channel` (messages with MACs), `greeter` (who is let in), `listeners` and `reach`. Where a connection carries
nothing though both ends live: `unacknowledged` and `stalls` find it, `detours` goes round.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
