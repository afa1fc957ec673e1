"""Scheduling: an order for given sends (list scheduling, justification), places for them in a period (modulo
scheduling, edge colouring), or sends for given chunks (matching, exchange, stars).

In: a network with sends or chunks. Out: sends in the order of their starts, or with their starts in a period.
On symmetric networks `symmetric_spreading` and `symmetric_paths`, for one send of each orbit.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
