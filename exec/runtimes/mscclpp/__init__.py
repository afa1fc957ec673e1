"""A model of MSCCL++'s executor on the CPU with real data, written from the executor's sources alone.

In: a ``synth.mscclpp.Plan``. Out: whether all outputs were right. ``machine`` models the effect of each
operation on buffers, signals and semaphores; ``interleave`` runs it in a random order that the rules allow.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
