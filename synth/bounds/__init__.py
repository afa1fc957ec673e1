"""Lower bounds on the time of a collective on a network, each proven and named.

In: network, collective, chunk size. Out: `Bound` records, the largest first (`bounds.bounds`).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
