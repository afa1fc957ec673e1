"""Peers: the libraries that a benchmark races against, each behind the same few calls.

In: a communicator and a collective. Out: calls to time on the same buffers. Read `base`, `registry`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
