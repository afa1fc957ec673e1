"""The portfolio: which methods are tried on a request, with which options, and the best of them.

In: a request (network, collective, size). Out: the best proven schedule with its bound.
Read `synthesize`, `attempts`, `attempt_runner`, `incumbent`, `size_sweep`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
