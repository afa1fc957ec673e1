"""Synthesis for thousands of ranks on symmetric networks.

In: a symmetric network and a size. Out: a proven schedule with its bounds: a symmetric one (`symmetric`), or,
if ranks or links have failed, a periodic all_reduce along trees between hosts (`host_trees`).
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
