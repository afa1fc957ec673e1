"""Artifacts as text: one module for each kind, and for results of commands about them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
