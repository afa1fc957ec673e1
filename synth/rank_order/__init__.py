"""Rank reordering: the order of hosts, and of ranks in them, that suits a library's fixed algorithms.

In: a `Network`, a library's algorithm and the bytes of the buffer. Out: `RankOrder`, with the predicted times
of the found and the given order, and a lower bound for all orders. Read `algorithms`, `costs`, `search`,
`relaxation`, then `planner`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
