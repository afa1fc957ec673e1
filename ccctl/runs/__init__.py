"""Runs of several steps on ranks: profiles, races, tuning, adaptive runs; their rows as they arrive."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
