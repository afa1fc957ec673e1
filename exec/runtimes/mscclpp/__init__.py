"""MSCCL++'s executor on the CPU with real data, written from the executor's sources alone.

In: a plan as read from JSON. Out: a report of wrong elements, deadlocks and races. ``machine`` models the
effect of each operation on buffers, signals and semaphores; ``ordering`` follows what they order;
``interleave`` runs it all in a random order that the rules allow.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
