"""Scheduling gives each send an order, a place in a period, or a link.

List scheduling and justification order given sends. Modulo scheduling and edge colouring place given sends in
a period. Matching, exchange and stars choose the sends of given chunks.

In: a network with sends or chunks. Out: sends in the order of their starts, or with their starts in a period.

`symmetric_spreading` and `symmetric_paths` choose sends on symmetric networks, one of each orbit.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
