"""The pieces that all executors share: memory layout, moves, types, operators, expected results."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
