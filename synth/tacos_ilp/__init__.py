"""TACOS-ILP (Sec. V): time-expanded network, integer program, search over horizons, and recovery."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
