"""Routing: paths and trees through a network that keep the load of the busiest link or port low."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
