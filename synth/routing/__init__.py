"""Routing: paths and trees through a network so that no link or port is busier than it must be."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
