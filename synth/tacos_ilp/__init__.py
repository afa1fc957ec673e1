"""TACOS-ILP (Sec. V): the time-expanded network, its integer program, the search over horizons, recovery."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
