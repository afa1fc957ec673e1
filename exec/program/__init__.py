"""What every executor shares: memory layout, moves, data types and operators, expected results."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
