"""Peers: the libraries that a benchmark compares with, each behind the same few calls.

In: a communicator and a collective. Out: calls to time on the same buffers. Read `base` (the protocol),
`mpi`, `gloo` and `nccl` (the libraries), and `registry` (libraries by name).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
