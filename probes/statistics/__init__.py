"""Statistics of measured times: the alpha-beta fit, bootstrap decisions, change points.

In: arrays of times. Out: parameters with their confidence.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
