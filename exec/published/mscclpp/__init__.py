"""MSCCL++'s executor, modelled from its sources alone, on the CPU with real data.

In goes a ``synth.mscclpp.Plan``; out comes whether all outputs were right. ``machine`` is what each operation
does to buffers, signals and semaphores; ``interleave`` runs it in an order drawn by chance among all that the
rules leave open.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
